// The spec of a job: the edit and its sources, as they are kept in the job's row from its submission to its end.

package render

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cutroom/internal/base/db"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/separation"
	"cutroom/internal/film/timeline"
)

// spec is everything a worker needs to know of a job, as kept in its row.
type spec struct {
	Timeline timeline.Timeline `json:"timeline"`
	Sources  map[string]object `json:"sources"` // by the timeline's source keys
}

// object is one stored source of a job.
type object struct {
	Object string `json:"object"` // key in the store
	SHA256 string `json:"sha256"`
	Asset  bool   `json:"asset,omitempty"` // by reference: verified and cached
}

func (s spec) encode() (string, error) {
	b, err := json.Marshal(s)
	return string(b), err
}

func decodeSpec(text string) (s spec, err error) {
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("decode render spec: %w", err)
	}
	return s, nil
}

// ext is the extension of the output.
func (s spec) ext() string {
	if s.Timeline.OutputKind == timeline.Audio {
		return "m4a"
	}
	return "mp4"
}

// uploads are the objects of the spec that were uploaded for the job alone.
func (s spec) uploads(jobID string) []string { return s.objects("uploads/" + jobID + "/") }

// assets are the assets among the sources.
func (s spec) assets() (keys []asset.Key, err error) {
	for _, object := range s.objects("assets/") {
		key, err := asset.ParseKey(object)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// stemSource begins the keys of sources that are stems, before the separation's id, a slash and the stem's id.
const stemSource = "stem:"

// stems are the stems among the sources.
func (s spec) stems() (stems []separation.StemRef) {
	for name, o := range s.Sources {
		if stem, ok := strings.CutPrefix(name, stemSource); ok {
			jobID, stemID, _ := strings.Cut(stem, "/")
			stems = append(stems, separation.StemRef{JobID: jobID, StemID: stemID, ObjectKey: o.Object, SHA256: o.SHA256})
		}
	}
	return stems
}

// objects are the objects of the spec whose keys begin with a prefix, each once, in order.
func (s spec) objects(prefix string) (keys []string) {
	for _, o := range s.Sources {
		if strings.HasPrefix(o.Object, prefix) {
			keys = append(keys, o.Object)
		}
	}
	slices.Sort(keys) // the same order in every transaction
	return slices.Compact(keys)
}

// failedSpecs is how many failed jobs of a user keep their request, for support and a retry. A request may be a
// megabyte long, and failing costs the user nothing.
const failedSpecs = 20

// dropOldSpecs drops the requests of a user's failed jobs except the newest. If a sweep fails more than fifty jobs at
// once, [Service.Expire] drops the rest.
func dropOldSpecs(ctx context.Context, tx *db.Tx, userID string) error {
	_, err := tx.Exec(ctx, `UPDATE renders SET spec = '' WHERE spec <> '' AND job_id IN (SELECT j.id FROM jobs j
		WHERE j.user_id = $1 AND j.kind = 'render' AND j.state = 'FAILED'
		ORDER BY j.finished_at DESC LIMIT 50 OFFSET $2`+tx.SkipLockedOf("j")+`)`, userID, failedSpecs)
	if err != nil {
		return fmt.Errorf("drop requests of failed jobs: %w", err)
	}
	return nil
}
