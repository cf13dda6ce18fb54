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
	"strconv"
	"strings"
)

// Upload sends the file at path to the provider under the name fileName and registers it. It may be repeated:
// each call makes a new upload, free of charge. It calls ready before each request, and stops with ready's
// error.
func (c *Client) Upload(ctx context.Context, path, fileName string, ready func(ctx context.Context) error) (Medium, error) {
	send := func(x exchange, read reader) error {
		if err := ready(ctx); err != nil {
			return err
		}
		return c.retry(ctx, func() error { return c.once(ctx, x, read) })
	}
	var token uploadToken
	x := c.api("upload-token", http.MethodGet, "/file/api/upload/sas-token?fileName="+url.QueryEscape(fileName))
	if err := send(x, decode(&token)); err != nil {
		return Medium{}, err
	}
	blob, err := url.Parse(token.BlobSasURL)
	if err != nil {
		return Medium{}, &Error{Op: "upload", Err: fmt.Errorf("%w: upload address is not a URL", errForbidden)}
	}
	// The address comes from the provider's authenticated answer, so its host need not be
	// in AllowedHosts. The dialer checks that it is public.
	if err := c.checkURL(blob); err != nil {
		return Medium{}, &Error{Op: "upload", Err: err}
	}
	if x, err = put(path, blob); err != nil {
		return Medium{}, err
	}
	// Only the status matters: the body of a blob store's answer is not read.
	if err := send(x, func(int, int64, io.Reader) error { return nil }); err != nil {
		return Medium{}, err
	}
	var media registered
	x = c.api("register", http.MethodPut, "/file/api/upload/audio").withJSON(map[string]any{
		"spaceSeq": c.cfg.SpaceID,
		"fileUrl":  withoutQuery(blob),
		"fileName": fileName,
	})
	if err := send(x, decode(&media)); err != nil {
		return Medium{}, err
	}
	return Medium{Seq: int64(media.Seq), DurationMs: int64(min(max(media.DurationMs.value, 0), math.MaxInt64/2))}, nil
}

// Medium is an uploaded file in the provider's records.
type Medium struct {
	Seq        int64
	DurationMs int64 // as the provider measured it; 0 if unknown
}

// put returns the call that streams the file to the signed blob address, which must not receive the key.
func put(path string, blob *url.URL) (exchange, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return exchange{}, fmt.Errorf("upload: %w", err)
	}
	return exchange{
		endpoint:  "upload",
		method:    http.MethodPut,
		url:       blob,
		header:    map[string]string{"x-ms-blob-type": "BlockBlob"},
		body:      func() (io.ReadCloser, error) { return os.Open(path) },
		bodyBytes: stat.Size(),
	}, nil
}

// withoutQuery returns the blob's permanent address, without the signature.
func withoutQuery(u *url.URL) string {
	bare := *u
	bare.RawQuery, bare.ForceQuery, bare.Fragment, bare.RawFragment = "", false, "", ""
	return bare.String()
}

// Submit starts the separation of an uploaded file and returns the provider's project id. Each project costs
// money, so Submit retries only if no connection was established, because then the request was not sent. The
// protocol has no way to find a project by its title. If the outcome is unknown, the error is Ambiguous, and a
// created project is lost.
func (c *Client) Submit(ctx context.Context, mediaSeq int64, title string) (projectID int64, err error) {
	var made submitted
	path := fmt.Sprintf("/video-translator/api/v1/projects/spaces/%d/audio-separation", c.cfg.SpaceID)
	x := c.api("audio-separation", http.MethodPost, path).withJSON(map[string]any{
		"mediaSeq":       mediaSeq,
		"isVideoProject": false,
		"title":          title,
	})
	err = c.retry(ctx, func() error {
		err := c.once(ctx, x, decode(&made))
		var e *Error
		if errors.As(err, &e) {
			e.Ambiguous = e.sent && !e.refused() && !e.Busy
			e.again = e.again && !e.sent
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return int64(made.ProjectIDs[0]), nil
}

// Progress is the state of a project.
type Progress struct {
	Percent int  // 0..100; 0 if the answer states no number
	Done    bool // the stems are ready
	Failed  bool // the provider gave up; never true together with Done
}

// Progress requests the state of a project. Like all polls of a paid project it does not retry: the caller
// polls again later.
func (c *Client) Progress(ctx context.Context, projectID int64) (Progress, error) {
	var p progress
	if err := c.ask(ctx, c.progress(projectID), &p); err != nil {
		return Progress{}, err
	}
	out := Progress{Failed: p.failed(), Done: p.done() && !p.failed()}
	out.Percent = int(min(max(p.Progress.value, 0), 100))
	return out, nil
}

func (c *Client) progress(projectID int64) exchange {
	return c.api("progress", http.MethodGet,
		fmt.Sprintf("/video-translator/api/v1/projects/%d/space/%d/progress", projectID, c.cfg.SpaceID))
}

// project requests which stems a project has, and their paths.
func (c *Client) project(ctx context.Context, projectID int64) (project, error) {
	var p project
	x := c.api("project", http.MethodGet, c.projectPath(projectID))
	err := c.ask(ctx, x, &p)
	return p, err
}

// targetLink requests the link of a stem that has no path in the project info. It returns "" if the provider
// has no such stem.
func (c *Client) targetLink(ctx context.Context, projectID int64, target string) (string, error) {
	t := targetAnswer{target: target}
	x := c.api("download", http.MethodGet, c.projectPath(projectID)+"/download?target="+url.QueryEscape(target))
	err := c.ask(ctx, x, &t)
	if isStatus(err, http.StatusNotFound) {
		return "", nil
	}
	return t.link(), err
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
		header: map[string]string{"Accept": "application/json"}}
}

func (x exchange) withJSON(fields map[string]any) exchange {
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err) // integers, booleans and strings always marshal
	}
	x.header["Content-Type"] = "application/json"
	x.bodyBytes = int64(len(raw))
	x.body = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	return x
}

// id is a positive number that may arrive as a JSON number or as digits in a string. Zero
// means absent.
type id int64

// UnmarshalJSON accepts 42, "42" and null.
func (n *id) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	v, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	if err != nil || v <= 0 {
		return errors.New("not an id")
	}
	*n = id(v)
	return nil
}

type uploadToken struct {
	BlobSasURL string `json:"blobSasUrl"`
}

func (a *uploadToken) missing() string { return textIf(a.BlobSasURL == "", "blobSasUrl") }

type registered struct {
	Seq        id     `json:"seq"`
	DurationMs number `json:"durationMs"`
}

func (a *registered) missing() string { return textIf(a.Seq == 0, "seq") }

type submitted struct {
	ProjectIDs []id `json:"startGenerateProjectIdList"`
}

func (a *submitted) missing() string {
	return textIf(len(a.ProjectIDs) == 0 || a.ProjectIDs[0] == 0, "startGenerateProjectIdList")
}

// number may arrive as a JSON number, as digits in a string, or as null, which means not known yet.
type number struct {
	given bool
	value float64
}

// UnmarshalJSON accepts 42.5, "42.5" and null.
func (n *number) UnmarshalJSON(raw []byte) error {
	n.given = true
	if string(raw) == "null" || string(raw) == `""` {
		return nil
	}
	v, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || math.IsNaN(v) {
		return errors.New("not a number")
	}
	n.value = v
	return nil
}

type progress struct {
	Progress  number `json:"progress"`
	Reason    string `json:"progressReason"`
	HasFailed bool   `json:"hasFailed"`
}

func (a *progress) failed() bool { return a.HasFailed || strings.EqualFold(a.Reason, "Failed") }
func (a *progress) done() bool   { return strings.EqualFold(a.Reason, "Completed") }

// An answer with a reason but no number, or with null, means that the provider is between two processing steps.
func (a *progress) missing() string {
	return textIf(!a.Progress.given && a.Reason == "" && !a.HasFailed, "progress")
}

// project lists a project's stems. While the provider prepares it, either part may be absent or null, which
// means that there is no flag or path yet.
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

func (a *project) missing() string { return "" }

// A path only counts if its flag is set. Before that, the file may be missing or
// incomplete.

func (a *project) voicePath() string      { return textIf(a.Has.Voice, a.Path.Voice) }
func (a *project) backgroundPath() string { return textIf(a.Has.Background, a.Path.Background) }
func (a *project) subBackgroundPath() string {
	return textIf(a.Has.SubBackground, a.Path.SubBackground)
}

// holding is the set of stems that a project has so far. It excludes links, which are signed anew in each
// answer.
type holding struct{ voice, background, speakers, subBackground, subBackgroundPath bool }

func (a *project) availableStems() holding {
	return holding{voice: a.voicePath() != "", background: a.backgroundPath() != "", speakers: a.Has.Speakers,
		subBackground: a.Has.SubBackground, subBackgroundPath: a.subBackgroundPath() != ""}
}

func (h holding) anyVoice() bool      { return h.voice || h.speakers }
func (h holding) anyBackground() bool { return h.background || h.subBackground }
func (h holding) everything() bool    { return h.voice && h.background && h.speakers }

const (
	targetSpeakers      = "originalVoiceSpeakers"
	targetSubBackground = "originalSubBackground"
)

type targetAnswer struct {
	target    string
	AudioFile struct {
		Speakers      string `json:"voiceAudioDownloadLink"`
		SubBackground string `json:"originalSubBackgroundDownloadLink"`
	} `json:"audioFile"`
}

func (a *targetAnswer) link() string {
	if a.target == targetSpeakers {
		return a.AudioFile.Speakers
	}
	return a.AudioFile.SubBackground
}

func (a *targetAnswer) missing() string { return textIf(a.link() == "", "the link of "+a.target) }

func textIf(ok bool, text string) string {
	if ok {
		return text
	}
	return ""
}

// noProject is the id of a project that does not exist.
const noProject = 1

// Check tests the key and the space with calls that cost nothing: it requests an upload address that it does
// not use, and the progress of a project that does not exist.
func (c *Client) Check(ctx context.Context) error {
	var token uploadToken
	err := c.once(ctx, c.api("upload-token", http.MethodGet, "/file/api/upload/sas-token?fileName=check"), decode(&token))
	if err == nil {
		err = c.once(ctx, c.progress(noProject), func(int, int64, io.Reader) error { return nil })
	}
	var e *Error
	switch {
	case err == nil || !errors.As(err, &e):
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
