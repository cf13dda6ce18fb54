// Submission of a render: the names in the request become stored objects, uploads are stored, and one transaction
// enqueues the job and holds its sources.

package render

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/separation"
	"cutroom/internal/film/media/container"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/staging"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/job"
	"cutroom/internal/work/quota"
)

// Submission is a request to render. The timeline is validated, and its stem selections still carry the URLs or names
// the client sent.
type Submission struct {
	Timeline timeline.Timeline
	// Files are the uploaded parts by name. InputID, unless "", replaces every key that begins with "video". Both are
	// unused with Assets.
	Files   map[string]staging.File
	InputID string
	// Assets are the sources by their keys in the timeline, nil if they are uploads.
	Assets map[string]asset.Key
	// Legacy means that the request has no segments: errors name its part, video, in place of a segment's field.
	Legacy bool
}

// Has reports whether a source key that begins with "video" names an upload or the cached input.
func (s Submission) Has(key string) bool {
	_, uploaded := findPart(s.Files, key)
	return uploaded || s.InputID != ""
}

// Submit enqueues a job. The caller keeps the staged files. A repeat under the same idempotency key returns the first
// job.
func (s *Service) Submit(ctx context.Context, owner string, sub Submission, key idempotency.Key) (jobID string, err error) {
	jobID = s.jobs.NewID()
	r := resolver{s: s, owner: owner, jobID: jobID, sub: sub, sources: map[string]object{}}
	answer, err := idempotency.Prepare(ctx, s.DB, key, func() error { return r.resolve(ctx) })
	if err != nil || answer != "" {
		return answer, err
	}
	n, err := r.job()
	if err != nil {
		return "", err
	}
	unused := true
	if err = r.store(ctx); err == nil {
		answer, unused, err = s.jobs.Enqueue(ctx, key, n)
	}
	if unused {
		s.dropUploads(ctx, jobID, spec{Sources: r.sources}.uploads(jobID)...)
	}
	return answer, err
}

// resolver turns the names of a submission into stored objects.
type resolver struct {
	s       *Service
	owner   string
	jobID   string
	sub     Submission
	sources map[string]object
	uploads []upload
	input   object        // the cached video that the submission names
	used    []asset.Found // the assets that the submission refers to
}

type upload struct {
	key  string
	file staging.File
}

// resolve makes the cheapest checks first.
func (r *resolver) resolve(ctx context.Context) error {
	if err := r.stems(ctx); err != nil {
		return err
	}
	var err error
	if r.sub.Assets != nil {
		err = r.assets(ctx)
	} else {
		err = r.files(ctx)
	}
	if err != nil {
		return err
	}
	return r.s.Quota.Check(ctx, r.s.DB, r.owner, quota.Usage{WaitingJobs: 1, StoredBytes: r.uploadBytes()})
}

// stems resolves the link or the ids of each selection to a stored stem of the owner.
func (r *resolver) stems(ctx context.Context) error {
	t := &r.sub.Timeline
	for i := range t.Directives {
		for k := range t.Directives[i].Selections {
			sel := &t.Directives[i].Selections[k]
			ref, err := r.stem(ctx, *sel)
			if err != nil {
				return err
			}
			// The link says which stem plays, whatever the request calls it: ducking follows voices.
			sel.StemID, sel.SourceKey = ref.StemID, stemSource+ref.JobID+"/"+ref.StemID
			r.sources[sel.SourceKey] = object{Object: ref.ObjectKey, SHA256: ref.SHA256}
		}
	}
	return nil
}

func (r *resolver) stem(ctx context.Context, sel timeline.Selection) (separation.StemRef, error) {
	if sel.SeparationID != "" {
		return r.s.Separations.ResolveStem(ctx, r.owner, sel.SeparationID, sel.StemID)
	}
	return r.s.Separations.ResolveStemURL(ctx, r.owner, sel.SourceKey)
}

// assets looks for the objects that the submission refers to. If several are missing, the answer names the first.
func (r *resolver) assets(ctx context.Context) error {
	var keys []asset.Key
	fields := map[asset.Key]string{} // the first of each
	add := func(source, field string, i int) {
		key := r.sub.Assets[source]
		if fields[key] == "" {
			keys, fields[key] = append(keys, key), fmt.Sprintf(field, i)
		}
	}
	for i, s := range r.sub.Timeline.Segments {
		add(s.SourceKey, "segments[%d].sourceAssetKey", i)
	}
	for i, c := range r.sub.Timeline.Clips {
		add(c.SourceKey, "bgmClips[%d].audioAssetKey", i)
	}
	found, err := r.s.Assets.Lookup(ctx, keys...)
	if missing, ok := errors.AsType[*asset.MissingError](err); ok {
		return fault.NotFoundf("%s: the asset does not exist in the object store", fields[missing.Key])
	}
	if err != nil {
		return err
	}
	for _, key := range keys {
		r.sources[key.String()] = object{Object: key.String(), SHA256: key.SHA256, Asset: true}
	}
	r.used = found
	return nil
}

// files looks for the uploads, and for the cached video, that the submission names.
func (r *resolver) files(ctx context.Context) error {
	t := &r.sub.Timeline
	if r.sub.InputID != "" {
		if err := r.findInput(ctx); err != nil {
			return err
		}
	}
	for i := range t.Segments {
		field := fmt.Sprintf("segments[%d].sourceFileKey", i)
		if r.sub.Legacy {
			field = "video"
		}
		if err := r.source(t.Segments[i].SourceKey, field); err != nil {
			return err
		}
	}
	for i := range t.Clips {
		if err := r.source(t.Clips[i].SourceKey, fmt.Sprintf("bgmClips[%d].audioFileKey", i)); err != nil {
			return err
		}
	}
	return nil
}

var errUnknownInput = fault.Invalidf("inputId is unknown or has expired; upload the video again")

// findInput looks up the cached video that the submission names, used or not.
func (r *resolver) findInput(ctx context.Context) error {
	err := r.s.DB.QueryRow(ctx, `SELECT object_key, sha256 FROM render_inputs
		WHERE user_id = $1 AND input_id = $2 AND last_used_at > now_ms() - $3`,
		r.owner, r.sub.InputID, r.s.InputLifetime.Milliseconds()).Scan(&r.input.Object, &r.input.SHA256)
	if db.IsNoRows(err) {
		return errUnknownInput
	}
	if err != nil {
		return fmt.Errorf("look for cached input: %w", err)
	}
	return nil
}

func (r *resolver) source(key, field string) error {
	if _, done := r.sources[key]; done {
		return nil
	}
	if r.sub.InputID != "" && strings.HasPrefix(key, "video") {
		r.sources[key] = r.input
		return nil
	}
	file, ok := findPart(r.sub.Files, key)
	if !ok {
		return fault.Invalidf("%s names no uploaded part: %q", field, key)
	}
	if file.SizeBytes == 0 {
		return fault.Invalidf("%s: the uploaded part is empty", field)
	}
	class, err := container.SniffFile(file.Path)
	if err != nil {
		return fmt.Errorf("classify upload: %w", err)
	}
	if class.Kind == container.Unknown {
		return fault.Invalidf("%s: the uploaded part is not a video or audio file of a supported format", field)
	}
	object := object{Object: uploadKey(r.jobID, len(r.uploads)), SHA256: file.SHA256}
	r.uploads = append(r.uploads, upload{object.Object, file})
	r.sources[key] = object
	return nil
}

// findPart looks a part up by name. Released clients name music parts with an extension, for example bgm_0.audio, and
// refer to them without it.
func findPart(files map[string]staging.File, key string) (staging.File, bool) {
	if f, ok := files[key]; ok {
		return f, true
	}
	for name, f := range files {
		if base, _, cut := strings.Cut(name, "."); cut && base == key {
			return f, true
		}
	}
	base, _, cut := strings.Cut(key, ".")
	if !cut {
		return staging.File{}, false
	}
	f, ok := files[base]
	return f, ok
}

// uploadBytes is the size of the objects stored for this job only.
func (r *resolver) uploadBytes() (n int64) {
	for _, u := range r.uploads {
		n += u.file.SizeBytes
	}
	return n
}

// job returns the job with everything resolved.
func (r *resolver) job() (job.New, error) {
	t := r.sub.Timeline
	encoded, err := spec{Timeline: t, Sources: r.sources}.encode()
	n := job.New{ID: r.jobID, UserID: r.owner, State: StatePending, StoredBytes: r.uploadBytes(),
		SourceDurationMs: t.SourceDuration().Milliseconds(), Reserve: r.reserve,
		Details: map[string]any{"spec": encoded, "output_kind": string(t.OutputKind), "quality": string(t.Quality),
			"upload_bytes": r.uploadBytes()}}
	for _, o := range r.sources {
		n.Holds = append(n.Holds, o.Object)
	}
	return n, err
}

// store stores the uploads where every replica that may claim the job finds them.
func (r *resolver) store(ctx context.Context) error {
	for _, u := range r.uploads {
		if err := r.s.Store.Put(ctx, u.key, u.file.Path, "application/octet-stream"); err != nil {
			return fmt.Errorf("store upload: %w", err)
		}
	}
	return nil
}

// reserve keeps all sources of the job until the job holds them, or refuses the job.
func (r *resolver) reserve(ctx context.Context, tx *db.Tx) error {
	return keepSources(ctx, tx, r.owner, spec{Sources: r.sources}, r.used)
}

// keepSources keeps the sources of a job from the sweeps until the transaction that holds them commits, and refuses the
// job if a source is gone. used has the assets among the sources, as an earlier lookup found them. The caller has
// locked the owner.
func keepSources(ctx context.Context, tx *db.Tx, owner string, s spec, used []asset.Found) error {
	if err := asset.Hold(ctx, tx, owner, used...); err != nil {
		return err
	}
	for _, key := range s.objects("inputs/") {
		// Using an input renews it, which fails if a sweep was faster.
		n, err := tx.Exec(ctx, `UPDATE render_inputs SET last_used_at = now_ms() WHERE user_id = $1 AND object_key = $2`, owner, key)
		if err != nil {
			return fmt.Errorf("renew cached input: %w", err)
		}
		if n == 0 {
			return errUnknownInput
		}
	}
	return separation.Keep(ctx, tx, s.stems()...)
}
