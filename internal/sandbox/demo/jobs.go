// The demonstration's calls to the service: upload, submit, poll, download.

package demo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/sandbox/api"
)

// pollInterval is how often a job's state is polled.
const pollInterval = 250 * time.Millisecond

// jobStatus has the status fields that both kinds of jobs share.
type jobStatus struct {
	JobID, Status    string
	Progress         int
	ProgressReason   string
	Error            string
	Stems            []stem
	QueuePosition    int
	EstimatedWaitSec int
}

// stem is a separated track.
type stem struct {
	StemID, Label, URL string
	DurationMs         int64
	path               string // where it was downloaded to
}

// say describes a job's state for the progress line.
func (s jobStatus) say() string {
	switch {
	case s.QueuePosition > 0:
		return fmt.Sprintf("place %d in the queue, about %d s", s.QueuePosition, s.EstimatedWaitSec)
	case s.ProgressReason == "queued":
		return "waiting for a slot"
	}
	return strings.ToLower(cmp.Or(s.ProgressReason, s.Status))
}

// wait polls a job's state until it has succeeded. Falling progress is an error of the service.
func (c *client) wait(ctx context.Context, path, done string, on *step) (jobStatus, error) {
	for last := 0; ; {
		var s jobStatus
		if err := c.Get(ctx, path, &s); err != nil {
			return s, err
		}
		if s.Progress < last {
			return s, fmt.Errorf("%s: progress fell from %d to %d", s.JobID, last, s.Progress)
		}
		last = s.Progress
		on.update(float64(s.Progress)/100, s.say())
		switch s.Status {
		case done:
			return s, nil
		case "FAILED", "DISPOSED":
			return s, fmt.Errorf("job %s is %s: %s", s.JobID, s.Status, s.Error)
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return s, fmt.Errorf("wait for %s: %w", s.JobID, ctx.Err())
		}
	}
}

// separate submits an audio file and returns the job's id.
func (c *client) separate(ctx context.Context, path string, on *step) (string, error) {
	return c.submit(ctx, "/api/v2/separate", on,
		api.Part{Name: "file", Path: path, Filename: filepath.Base(path), Type: "audio/mp4"},
		api.Part{Name: "spec", Text: `{"sourceLanguageCode":"auto"}`})
}

// submit submits a job as a form and returns its id.
func (c *client) submit(ctx context.Context, path string, on *step, form ...api.Part) (string, error) {
	var answer struct{ JobID string }
	_, err := c.Call(ctx, api.Request{Method: http.MethodPost, Path: path, Form: form, Sent: on.uploading}, &answer)
	return answer.JobID, err
}

// render submits a film by the multipart path, with the parts in the mobile app's order: media first.
func (c *client) render(ctx context.Context, config map[string]any, names sources, clips []clip, music string, on *step) (string, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("render: %w", err)
	}
	var form []api.Part
	for i, name := range names.clips {
		form = append(form, api.Part{Name: name, Path: clips[i].path, Filename: name + filepath.Ext(clips[i].path), Type: "video/mp4"})
	}
	return c.submit(ctx, "/api/v2/render", on, append(form,
		api.Part{Name: names.music, Path: music, Filename: names.music + ".audio", Type: "audio/*"},
		api.Part{Name: "config", Text: string(text)})...)
}

// renderAssets submits a film whose media are in the object store.
func (c *client) renderAssets(ctx context.Context, config map[string]any) (string, error) {
	var answer struct{ JobID string }
	err := c.Post(ctx, "/api/v2/render/v3", config, &answer)
	return answer.JobID, err
}

// errNoObjectStore means that the service runs without an object store.
var errNoObjectStore = errors.New("the service has no object store")

// upload puts a file into the object store by a presigned URL and returns its key. It does not send a file that is
// already stored.
func (c *client) upload(ctx context.Context, path string, report func(float64)) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	contentType := "video/mp4"
	ext := strings.ToLower(strings.TrimPrefix(filepath.Ext(path), "."))
	if strings.Contains("m4a mp3 wav aac", ext) {
		contentType = "audio/" + ext
	}
	var answer struct {
		AssetKey      string
		AlreadyExists bool
		UploadURL     *string
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	err = c.Post(ctx, "/api/v2/assets/upload-url", map[string]any{
		"sha256Hex": sum, "sizeBytes": len(content), "ext": ext, "contentType": contentType}, &answer)
	var refusal *api.Error
	if errors.As(err, &refusal) && refusal.Code == "r2_disabled" {
		return "", errNoObjectStore
	}
	if err != nil || answer.AlreadyExists {
		return answer.AssetKey, err
	}
	if answer.UploadURL == nil {
		return "", errors.New("POST /api/v2/assets/upload-url: no address in the answer")
	}
	// The type and the length are signed: the object store refuses any other value.
	_, err = (&api.Client{HTTP: c.HTTP}).Call(ctx, api.Request{Method: http.MethodPut, Path: *answer.UploadURL, File: path,
		Header: http.Header{"Content-Type": {contentType}}, Sent: report}, nil)
	return answer.AssetKey, err
}
