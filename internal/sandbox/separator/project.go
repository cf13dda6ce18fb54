// A project of the stand-in provider: its submission, its progress over time, its results and their links.

package separator

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/stems"
)

// project is one separation. It is guarded by Provider.mu. The worker owns its folder until made is true.
type project struct {
	id          int64
	title       string
	at          time.Time // of its start
	done        bool
	failed      bool
	dir         string
	submitted   Behaviour // as it was at submit
	made        bool      // dir contains the results
	broken      bool      // the separation itself failed
	completedAt time.Time
	infoCalls   int               // project calls after completion
	files       map[string]string // result -> file name in dir
	links       int
	stale       map[string][]string // result -> links that always return 404
}

func (p *Provider) submit(w http.ResponseWriter, r *http.Request) {
	var body struct {
		MediaSeq       int64
		IsVideoProject *bool
		Title          string
	}
	if err := fake.ReadJSON(r, &body); err != nil || body.IsVideoProject == nil {
		refuse(w, http.StatusBadRequest, "COMMON_400", "malformed body")
		return
	}
	p.mu.Lock()
	raw := p.media[body.MediaSeq]
	if raw == "" || *body.IsVideoProject {
		p.mu.Unlock()
		refuse(w, http.StatusBadRequest, "MEDIA_404", "no such audio")
		return
	}
	pr := &project{id: p.newID(), title: body.Title, at: time.Now(), submitted: p.behaviour,
		files: map[string]string{}, stale: map[string][]string{}}
	pr.dir = filepath.Join(p.opts.Dir, "projects", strconv.FormatInt(pr.id, 10))
	p.projects[pr.id] = pr
	p.worker.Go(func() {
		files, err := p.separate(p.work, pr, raw)
		p.mu.Lock()
		defer p.mu.Unlock()
		pr.made, pr.broken, pr.files = true, err != nil, files
	})
	p.mu.Unlock()
	result(w, map[string]any{"startGenerateProjectIdList": []int64{pr.id}})
}

// separate creates the results of a project in its folder. It runs outside the lock, one separation at a time.
func (p *Provider) separate(ctx context.Context, pr *project, raw string) (map[string]string, error) {
	select {
	case p.slot <- struct{}{}:
		defer func() { <-p.slot }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := os.MkdirAll(pr.dir, 0o700); err != nil {
		return nil, err
	}
	opts := stems.Options{Fast: p.opts.Fast, Speakers: stems.SpeakersFound}
	if pr.submitted.Speakers != nil {
		opts.Speakers = *pr.submitted.Speakers
	}
	split, err := stems.Split(ctx, raw, pr.dir, opts)
	if err != nil {
		return nil, err
	}
	ext, tracks := ".wav", append([]string{split.Voice, split.Background}, split.Speakers...)
	if format := pr.submitted.StemFormat; format != "" && format != "wav" {
		ext = "." + format
		for i, path := range tracks {
			tracks[i] = strings.TrimSuffix(path, ".wav") + ext
			if err := stems.Encode(ctx, path, tracks[i]); err != nil {
				return nil, err
			}
		}
	}
	files := map[string]string{ResultVoice: "voice" + ext, ResultBackground: "background" + ext, ResultSubBackground: "background" + ext}
	if len(split.Speakers) > 0 {
		files[ResultSpeakers] = "speakers.tar"
		if err := writeTar(filepath.Join(pr.dir, "speakers.tar"), tracks[2:], ext); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// writeTar packs the speaker tracks as the provider does: a folder with files numbered from 1, without leading zeros,
// in arbitrary order.
func writeTar(path string, tracks []string, ext string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	err = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "speakers/", Mode: 0o755})
	for i, track := range slices.Backward(tracks) {
		content, unread := os.ReadFile(track)
		unwritten := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)),
			Name: fmt.Sprintf("speakers/original_speaker_%d%s", i+1, ext)})
		_, cut := archive.Write(content)
		err = errors.Join(err, unread, unwritten, cut)
	}
	return errors.Join(err, archive.Close(), out.Close())
}

// processing is the minimum time of the project.
func (pr *project) processing() time.Duration {
	return time.Duration(pr.submitted.ProcessingMs) * time.Millisecond
}

// advance returns the project's current percentage. The caller holds the lock.
func (p *Provider) advance(pr *project) int {
	if pr.failed || pr.done {
		return 100
	}
	percent := int(min(time.Since(pr.at)*100/max(pr.processing(), 1), 100))
	if hold := p.behaviour.HoldAtPercent; hold > 0 {
		percent = min(percent, hold)
	}
	if failAt := pr.submitted.FailAtPercent; failAt > 0 && percent >= failAt || pr.made && pr.broken {
		pr.failed = true
		return percent
	}
	if percent == 100 {
		if !pr.made {
			return 99
		}
		pr.done, pr.completedAt = true, time.Now()
	}
	return percent
}

// find looks up a project and updates its state. The caller holds the lock.
func (p *Provider) find(r *http.Request) *project {
	id, _ := strconv.ParseInt(r.PathValue("project"), 10, 64) // no project has the id 0
	pr := p.projects[id]
	if pr != nil {
		p.advance(pr)
	}
	return pr
}

// reasons are the progress texts of a running project, each for an equal share of its progress.
var reasons = []string{"Enqueue Pending", "Uploading", "Separating Voice", "Separating Speakers", "Packaging"}

func (p *Provider) progress(w http.ResponseWriter, _ *http.Request, pr *project) {
	percent := p.advance(pr)
	reason := reasons[min(percent*len(reasons)/100, len(reasons)-1)]
	failed := pr.failed
	switch {
	case pr.failed && p.behaviour.FailByReason:
		reason, failed = "Failed", false
	case pr.failed:
		reason = "Failed"
	case pr.done:
		reason = "Completed"
	}
	left := max(pr.processing()-time.Since(pr.at), 0)
	result(w, map[string]any{
		"projectSeq": pr.id, "progress": percent, "progressReason": reason, "hasFailed": failed,
		"expectedRemainingTimeMinutes": int((left + time.Minute - 1) / time.Minute),
	})
}

func (p *Provider) projectInfo(w http.ResponseWriter, _ *http.Request, pr *project) {
	b := p.behaviour
	if pr.done {
		pr.infoCalls++
	}
	ready := pr.done && pr.infoCalls > b.FlagsLagCalls
	flags, paths := map[string]bool{}, map[string]any{}
	for _, entry := range []struct{ result, flag, path string }{
		{ResultVoice, "hasOriginalVoiceOnly", "originalVoicePath"},
		{ResultBackground, "hasOriginalBackground", "originalBackgroundPath"},
		{ResultSubBackground, "hasOriginalSubBackground", "originalSubBackgroundPath"},
		{ResultSpeakers, "hasOriginalSpeakerAudioCollection", ""},
	} {
		has := ready && p.offers(pr, entry.result)
		flags[entry.flag] = has
		if entry.path != "" {
			paths[entry.path] = nil
			if has {
				paths[entry.path] = p.link(pr, entry.result)
			}
		}
	}
	result(w, map[string]any{"seq": pr.id, "title": pr.title, "spaceSeq": p.opts.Space, "downloadInfo": flags, "downloadPathInfo": paths})
}

// offers reports whether a finished project has a result. The caller holds the lock.
func (p *Provider) offers(pr *project, name string) bool {
	b := p.behaviour
	missing := map[string]bool{ResultVoice: b.NoVoice, ResultBackground: b.NoBackground,
		ResultSubBackground: b.NoSubBackground, ResultSpeakers: b.NoSpeakers}
	if missing[name] {
		return false
	}
	return pr.files[name] != "" || b.Bytes[name] != nil || b.Links[name] != ""
}

// link returns a new link at each call. The caller holds the lock.
func (p *Provider) link(pr *project, name string) string {
	if custom := p.behaviour.Links[name]; custom != "" {
		return custom
	}
	pr.links++
	return fmt.Sprintf("/perso-storage/%d/%s?v=%d&of=%s", pr.id, cmp.Or(pr.files[name], name+".bin"), pr.links, name)
}

func (p *Provider) downloadLink(w http.ResponseWriter, r *http.Request, pr *project) {
	name, field := "", ""
	switch r.URL.Query().Get("target") {
	case "originalVoiceSpeakers":
		name, field = ResultSpeakers, "voiceAudioDownloadLink"
	case "originalSubBackground":
		name, field = ResultSubBackground, "originalSubBackgroundDownloadLink"
	default:
		refuse(w, http.StatusBadRequest, "DOWNLOAD_400", "unknown target")
		return
	}
	if !pr.done || !p.offers(pr, name) {
		refuse(w, http.StatusNotFound, "DOWNLOAD_404", "nothing to download")
		return
	}
	result(w, map[string]any{"audioFile": map[string]string{field: p.link(pr, name)}})
}

// serveResult sends the bytes behind a link, with Range as object storage does.
func (p *Provider) serveResult(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	pr, name := p.find(r), r.URL.Query().Get("of")
	if pr == nil || !pr.done || !p.offers(pr, name) || p.isStale(pr, name, r.URL.RequestURI()) {
		p.mu.Unlock()
		w.Header().Set("X-Cache", "Error from cache")
		http.Error(w, "<Error><Code>NoSuchKey</Code></Error>", http.StatusNotFound)
		return
	}
	custom, at := p.behaviour.Bytes[name], pr.completedAt
	path := filepath.Join(pr.dir, pr.files[name])
	p.mu.Unlock()

	if custom != nil {
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", at, bytes.NewReader(custom))
		return
	}
	file, err := os.Open(path)
	if err != nil {
		http.Error(w, "<Error><Code>NoSuchKey</Code></Error>", http.StatusNotFound)
		return
	}
	defer func() { _ = file.Close() }()
	switch filepath.Ext(path) {
	case ".wav":
		w.Header().Set("Content-Type", "audio/wav")
	case ".tar":
		w.Header().Set("Content-Type", "application/x-tar")
	}
	http.ServeContent(w, r, "", at, file)
}

// isStale acts like a CDN that cached a miss: the first links of a result that are fetched return 404 from then on. The
// caller holds the lock.
func (p *Provider) isStale(pr *project, name, link string) bool {
	seen := pr.stale[name]
	if slices.Contains(seen, link) {
		return true
	}
	if len(seen) >= p.behaviour.StaleLinks {
		return false
	}
	pr.stale[name] = append(seen, link)
	return true
}
