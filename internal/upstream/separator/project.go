// The calls of the provider's protocol: upload, register, submit (the one that costs money), progress, project and
// links.

package separator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// Upload sends the file at path to the provider under the name fileName and registers it. It may be repeated: each call
// makes a new upload, free of charge. It calls ready before each request, and stops with ready's error.
func (c *Client) Upload(ctx context.Context, path, fileName string, ready func(ctx context.Context) error) (Medium, error) {
	send := func(x exchange, read reader) error {
		if err := ready(ctx); err != nil {
			return err
		}
		return c.retry(ctx, func() error { return c.once(ctx, x, read) })
	}
	blobURL, err := c.uploadAddress(fileName, send)
	if err != nil {
		return Medium{}, err
	}
	blob, err := url.Parse(blobURL)
	if err != nil {
		return Medium{}, &Error{Op: "upload", Err: fmt.Errorf("%w: upload address is not a URL", errForbidden)}
	}
	// The address comes from the provider's authenticated answer, so its host need not be in AllowedHosts. The dialer
	// checks that it is public.
	if err := c.checkURL(blob); err != nil {
		return Medium{}, &Error{Op: "upload", Err: err}
	}
	stat, err := os.Stat(path)
	if err != nil {
		return Medium{}, fmt.Errorf("upload: %w", err)
	}
	x := exchange{endpoint: "upload", method: http.MethodPut, url: blob, header: http.Header{"X-Ms-Blob-Type": {"BlockBlob"}},
		body: func() (io.ReadCloser, error) { return os.Open(path) }, bodyBytes: stat.Size()}
	if err := send(x, statusOnly); err != nil {
		return Medium{}, err
	}
	unsigned := *blob // its permanent address
	unsigned.RawQuery, unsigned.ForceQuery, unsigned.Fragment, unsigned.RawFragment = "", false, "", ""
	var media struct {
		Seq        json.Number `json:"seq"`
		DurationMs json.Number `json:"durationMs"`
	}
	x = c.api("register", http.MethodPut, "/file/api/upload/audio").withJSON(map[string]any{
		"spaceSeq": c.cfg.SpaceID,
		"fileUrl":  unsigned.String(),
		"fileName": fileName,
	})
	err = send(x, decode(&media, func() bool { return id(media.Seq) > 0 }))
	durationMs, _ := media.DurationMs.Float64() // 0 if it is not given
	return Medium{Seq: id(media.Seq), DurationMs: int64(min(max(durationMs, 0), math.MaxInt64/2))}, err
}

// uploadAddress requests an address that takes one upload. It is signed in its query.
func (c *Client) uploadAddress(fileName string, send func(exchange, reader) error) (string, error) {
	var token struct {
		BlobSasURL string `json:"blobSasUrl"`
	}
	x := c.api("upload-token", http.MethodGet, "/file/api/upload/sas-token?fileName="+url.QueryEscape(fileName))
	err := send(x, decode(&token, func() bool { return token.BlobSasURL != "" }))
	return token.BlobSasURL, err
}

// Medium is an uploaded file in the provider's records.
type Medium struct {
	Seq        int64
	DurationMs int64 // as the provider measured it; 0 if unknown
}

// Submit starts the separation of an uploaded file and returns the provider's project id. Each project costs money, so
// Submit retries only if no connection was established, because then the request was not sent. The protocol has no way
// to find a project by its title: if the outcome is unknown, a created project is lost.
func (c *Client) Submit(ctx context.Context, mediaSeq int64, title string) (projectID int64, err error) {
	var project struct {
		IDs []json.Number `json:"startGenerateProjectIdList"`
	}
	path := fmt.Sprintf("/video-translator/api/v1/projects/spaces/%d/audio-separation", c.cfg.SpaceID)
	x := c.api("audio-separation", http.MethodPost, path).withJSON(map[string]any{
		"mediaSeq":       mediaSeq,
		"isVideoProject": false,
		"title":          title,
	})
	err = c.retry(ctx, func() error {
		err := c.once(ctx, x, decode(&project, func() bool { return len(project.IDs) > 0 && id(project.IDs[0]) > 0 }))
		if e, ok := errors.AsType[*Error](err); ok {
			e.again = e.again && !e.sent
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return id(project.IDs[0]), nil
}

// id returns the number if it is positive, or 0 if the provider sent any other number or none. A [json.Number] may
// arrive as a string.
func id(n json.Number) int64 {
	v, err := n.Int64()
	if err != nil {
		return 0
	}
	return max(v, 0)
}

// Progress is the state of a project.
type Progress struct {
	Percent int  // 0..100; 0 if the answer states no number
	Done    bool // the stems are ready
	Failed  bool // the provider gave up; never true together with Done
}

// Progress requests the state of a project. Like all polls of a paid project it does not retry: the caller polls again
// later.
func (c *Client) Progress(ctx context.Context, projectID int64) (Progress, error) {
	// Between two processing steps the provider gives a reason but no number, or null.
	var p struct {
		Progress  json.Number `json:"progress"`
		Reason    string      `json:"progressReason"`
		HasFailed bool        `json:"hasFailed"`
	}
	valid := func() bool { return p.Progress != "" || p.Reason != "" || p.HasFailed }
	err := c.ask(ctx, c.progress(projectID), decode(&p, valid))
	if err != nil {
		return Progress{}, err
	}
	failed := p.HasFailed || strings.EqualFold(p.Reason, "Failed")
	percent, _ := p.Progress.Float64() // 0 if it is not given
	return Progress{Percent: int(min(max(percent, 0), 100)), Failed: failed,
		Done: !failed && strings.EqualFold(p.Reason, "Completed")}, nil
}

func (c *Client) progress(projectID int64) exchange {
	return c.api("progress", http.MethodGet,
		fmt.Sprintf("/video-translator/api/v1/projects/%d/space/%d/progress", projectID, c.cfg.SpaceID))
}

// project says which stems a project has, and their paths. While the provider prepares it, either part may be
// absent or null, which means that there is no flag or path yet.
type project struct {
	Has struct {
		Voice         bool `json:"hasOriginalVoiceOnly"`
		Background    bool `json:"hasOriginalBackground"`
		SubBackground bool `json:"hasOriginalSubBackground"`
		Speakers      bool `json:"hasOriginalSpeakerAudioCollection"`
	} `json:"downloadInfo"`
	Path struct {
		Voice         string `json:"originalVoicePath"`
		Background    string `json:"originalBackgroundPath"`
		SubBackground string `json:"originalSubBackgroundPath"`
	} `json:"downloadPathInfo"`
}

// project requests the stems of a project.
func (c *Client) project(ctx context.Context, projectID int64) (p project, err error) {
	err = c.ask(ctx, c.api("project", http.MethodGet, c.projectPath(projectID)), decode(&p, func() bool { return true }))
	// A path only counts if its flag is set. Before that, the file may be missing or incomplete.
	if !p.Has.Voice {
		p.Path.Voice = ""
	}
	if !p.Has.Background {
		p.Path.Background = ""
	}
	if !p.Has.SubBackground {
		p.Path.SubBackground = ""
	}
	return p, err
}

// target names stems without a path in the project, and the field of the answer that has their link.
type target struct{ name, field string }

var (
	targetSpeakers      = target{"originalVoiceSpeakers", "voiceAudioDownloadLink"}
	targetSubBackground = target{"originalSubBackground", "originalSubBackgroundDownloadLink"}
)

// targetLink requests the link of a target. It returns "" if the provider has no such stem.
func (c *Client) targetLink(ctx context.Context, projectID int64, t target) (link string, err error) {
	var answer struct {
		AudioFile map[string]any `json:"audioFile"`
	}
	x := c.api("download", http.MethodGet, c.projectPath(projectID)+"/download?target="+url.QueryEscape(t.name))
	err = c.ask(ctx, x, decode(&answer, func() bool {
		link, _ = answer.AudioFile[t.field].(string)
		return link != ""
	}))
	if isStatus(err, http.StatusNotFound) {
		return "", nil
	}
	return link, err
}

func (c *Client) projectPath(projectID int64) string {
	return fmt.Sprintf("/video-translator/api/v1/projects/%d/spaces/%d", projectID, c.cfg.SpaceID)
}

// api returns a call to the provider's API, with the key.
func (c *Client) api(endpoint, method, pathAndQuery string) exchange {
	u := *c.base
	path, query, _ := strings.Cut(pathAndQuery, "?")
	u.Path, u.RawPath, u.RawQuery = c.base.Path+path, "", query
	return exchange{endpoint: endpoint, method: method, url: &u, withKey: true,
		header: http.Header{"Accept": {"application/json"}}}
}

func (x exchange) withJSON(fields map[string]any) exchange {
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err) // integers, booleans and strings always marshal
	}
	x.header.Set("Content-Type", "application/json")
	x.bodyBytes = int64(len(raw))
	x.body = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	return x
}

// noProject is the id of a project that does not exist.
const noProject = 1

// Check tests the key and the space with calls that cost nothing: it requests an upload address that it does not use,
// and the progress of a project that does not exist.
func (c *Client) Check(ctx context.Context) error {
	send := func(x exchange, read reader) error { return c.once(ctx, x, read) }
	_, err := c.uploadAddress("check", send)
	if err == nil {
		err = send(c.progress(noProject), statusOnly)
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return err
	case e.Status == http.StatusUnauthorized:
		return errors.New("the key is refused")
	case e.Status == http.StatusForbidden:
		return errors.New("the key has no access to the space")
	case e.Op == "progress" && e.refused():
		return nil // the space is valid; only the project is unknown
	}
	return err
}
