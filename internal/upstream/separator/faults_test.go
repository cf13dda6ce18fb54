// Every fault of the provider at every step: the error, the number of tries, and the time.

package separator

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/base/httpcall"
)

// want is the outcome of a call under a permanent fault.
type want struct {
	calls     int
	status    int
	sentence  string // "" if the call succeeds anyway
	transient bool
}

const (
	badKey     = "Authentication failed with the provider"
	noQuota    = "Insufficient provider quota"
	tooOften   = "Provider rate limit exceeded, please try again later"
	badRequest = "Invalid request to the provider"
	down       = "Provider service unavailable"
)

func TestBusyIsARefusalBeforeAnythingIsPaid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		step, header string
		status       int
		busy         bool
		wait         time.Duration
	}{
		{"upload-token", "7", 429, true, 7 * time.Second},
		{"upload", "", 429, true, 0},
		{"register", "7", 503, true, 7 * time.Second},
		{"audio-separation", "99999999", 503, true, maxRetryAfter},
		{"audio-separation", "Mon, 02 Jan 2006 15:04:05 GMT", 429, true, 0},
		{"upload-token", "soon", 503, true, 0},
		{"upload-token", "", 503, false, 0},
		{"register", "7", 500, false, 7 * time.Second},
		{"progress", "7", 429, false, 0},
		{"progress", "7", 503, false, 0},
	} {
		p := newProvider(t)
		p.faults[tt.step] = answers(tt.status, "Retry-After", tt.header)
		if tt.header == "" {
			p.faults[tt.step] = answers(tt.status)
		}
		err := p.run(t.Context(), p.client(), tt.step)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Busy != tt.busy || e.RetryAfter != tt.wait {
			t.Errorf("%s answers %d, Retry-After %q: %+v", tt.step, tt.status, tt.header, e)
		}
	}
}

// TestFaults combines every fault of the provider with every step. The column api is for upload-token and register. It
// also holds for progress, project and the link look-up, except that they are called once, and again later after a 408
// or 429. submit is audio-separation. upload is the blob PUT, whose answer's body is not read. file is following a
// download link.
func TestFaults(t *testing.T) {
	refused := func(status int, sentence string) want { return want{1, status, sentence, false} }
	broken := func(status int) want { return want{3, status, down, true} }
	once := func(status int) want { return want{1, status, down, true} } // whether it was paid is unknown
	nonsense := want{3, 200, down, true}
	unusable := want{1, 0, down, false} // the body of a file is only checked after it has arrived
	ignored := want{calls: 1}
	busyNow := want{1, 503, down, true} // called again when the provider says so

	for _, row := range []struct {
		fault                     string
		do                        misbehaviour
		api, submit, upload, file want
	}{
		{"401", answers(401), refused(401, badKey), refused(401, badKey), refused(401, badKey), refused(401, badKey)},
		{"402", answers(402), refused(402, noQuota), refused(402, noQuota), refused(402, noQuota), refused(402, noQuota)},
		{"403", answers(403), refused(403, badRequest), refused(403, badRequest), refused(403, badRequest), refused(403, badRequest)},
		{"404", answers(404), refused(404, badRequest), refused(404, badRequest), refused(404, badRequest), want{7, 404, badRequest, false}},
		{"429", answers(429, "Retry-After", "3600"), refused(429, tooOften), refused(429, tooOften), refused(429, tooOften), refused(429, tooOften)},
		{"408", answers(408), refused(408, badRequest), refused(408, badRequest), refused(408, badRequest), refused(408, badRequest)},
		{"500", answers(500), broken(500), once(500), broken(500), broken(500)},
		{"503", answers(503), broken(503), once(503), broken(503), broken(503)},
		{"busy", answers(503, "Retry-After", "3600"), busyNow, busyNow, busyNow, broken(503)},
		{"304", answers(304), want{1, 304, down, true}, once(304), want{1, 304, down, true}, want{1, 304, down, true}},
		{"garbage", says("<html>oops"), nonsense, once(200), ignored, unusable},
		{"wrong types", says(`{"result":[1],"seq":{},"blobSasUrl":7}`), nonsense, once(200), ignored, unusable},
		{"missing fields", says(`{"result":{}}`), nonsense, once(200), ignored, unusable},
		{"empty", says(""), nonsense, once(200), ignored, want{7, 200, down, false}},
		{"closed at once", closesAtOnce, broken(0), once(0), broken(0), broken(0)},
		{"closed after the body", closesAfterBody, broken(0), once(0), broken(0), broken(0)},
		{"closed in the answer", closesInAnswer, broken(200), once(200), ignored, broken(200)},
		{"wrong length", promises("1000"), broken(200), once(200), ignored, broken(200)},
		{"stall", stalls, broken(0), once(0), broken(0), broken(0)},
		{"stall in the answer", stallsInAnswer, broken(200), once(200), ignored, broken(200)},
		{"endless", endless, nonsense, once(200), ignored, want{1, 200, down, false}},
		{"endless length", promises("1000000000000"), broken(200), once(200), ignored, want{1, 200, down, false}},
	} {
		poll := row.api
		poll.calls, poll.transient = 1, poll.transient || row.fault == "408" || row.fault == "429"
		for step, w := range map[string]want{
			"upload-token": row.api, "register": row.api, "progress": poll, "project": poll, "download": poll,
			"audio-separation": row.submit, "upload": row.upload, "file": row.file,
		} {
			if step == "download" && row.fault == "404" {
				w = want{calls: 1} // no speakers then, but the voice exists
			}
			if step == "project" && (row.fault == "missing fields" || row.fault == "wrong types") {
				w = want{7, 0, down, false} // no flags yet, for as long as we poll
			}
			t.Run(row.fault+"/"+step, func(t *testing.T) {
				t.Parallel()
				check := func(t *testing.T, p *provider) { checkFault(t, p, step, row.do, w) }
				if strings.HasPrefix(row.fault, "stall") {
					inBubble(t, check)
				} else {
					check(t, newProvider(t))
				}
			})
		}
	}
}

func checkFault(t *testing.T, p *provider, step string, do misbehaviour, w want) {
	p.faults[step] = do
	c := p.client(func(cfg *Config) { cfg.MaxDownloadBytes = 1 << 20 })
	err := p.run(t.Context(), c, step)
	p.noSecrets(err)
	if p.hits[step] != w.calls {
		t.Errorf("%d requests, want %d", p.hits[step], w.calls)
	}
	if w.calls == 3 && !slices.Equal(p.slept[len(p.slept)-2:], []time.Duration{time.Second, 2 * time.Second}) {
		t.Errorf("slept %v", p.slept)
	}
	endpoint := step
	if step == "file" {
		endpoint = "download"
	}
	if step != "file" && step != "download" && step != "project" {
		if all, good := p.recorded(endpoint); all != w.calls || (good == 0) != (w.sentence != "") {
			t.Errorf("recorded %d calls, %d good", all, good)
		}
	}
	if w.sentence == "" {
		if err != nil {
			t.Errorf("err = %v", err)
		}
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("err = %v, want *Error", err)
	}
	if errors.Is(err, errNoVoice) && step == "project" {
		endpoint = "download"
	}
	if got := (want{w.calls, e.Status, e.Public().Sentence, e.Transient}); got != w || e.Op != endpoint {
		t.Errorf("got %+v of %s, want %+v\nerror: %v", got, e.Op, w, err)
	}
}

// run makes the call of a step. For the step "file" the project has a voice and a background, but no speakers to fall
// back on.
func (p *provider) run(ctx context.Context, c *Client, step string) (err error) {
	switch step {
	case "upload-token", "upload", "register":
		_, err = c.Upload(ctx, p.source(wav("source")), "a.wav", always)
	case "audio-separation":
		_, err = c.Submit(ctx, 41, "sep-1")
	case "progress":
		_, err = c.Progress(ctx, 99)
	case "file":
		p.project = projectWith(paths, hasVoice, hasBackground)
		_, err = c.Download(ctx, 99, p.t.TempDir())
	default:
		_, err = c.Download(ctx, 99, p.t.TempDir())
	}
	return err
}

// Bytes that keep moving are not a stall, but must all arrive within the request time-out.
func TestSlowBytes(t *testing.T) {
	for limit, want := range map[time.Duration]error{time.Minute: nil, 2 * time.Second: errTimeout} {
		inBubble(t, func(t *testing.T, p *provider) {
			p.faults["progress"] = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				for _, b := range []byte(`{"result":{"progress":100,"progressReason":"Completed"}}`) {
					w.Write([]byte{b})
					w.(http.Flusher).Flush()
					time.Sleep(100 * time.Millisecond) // the slowness under test
				}
				return true
			}
			c := p.client(func(cfg *Config) { cfg.SocketTimeout, cfg.RequestTimeout = time.Second, limit })
			got, err := c.Progress(t.Context(), 99)
			if !errors.Is(err, want) || got.Done != (want == nil) || p.hits["progress"] != 1 {
				t.Errorf("within %v: %+v, %v after %d requests", limit, got, err, p.hits["progress"])
			}
		})
	}
}

// If the provider stops reading a request body, that is a stall too.
func TestUploadStall(t *testing.T) {
	inBubble(t, func(t *testing.T, p *provider) {
		p.faults["upload"] = func(http.ResponseWriter, *http.Request, int) bool {
			time.Sleep(time.Hour) // by the bubble's clock
			return true
		}
		_, err := p.client().Upload(t.Context(), p.source(make([]byte, 1<<20)), "a.wav", always)
		if !errors.Is(err, httpcall.ErrIdle) || p.hits["upload"] != 3 {
			t.Errorf("err = %v after %d requests", err, p.hits["upload"])
		}
	})
}

func TestFailuresOfTheDiskAreOurs(t *testing.T) {
	p := newProvider(t)
	_, upload := p.client().Upload(t.Context(), "/no/such/file", "a.wav", always)
	_, download := p.client().Download(t.Context(), 99, "/no/such/dir")
	for _, err := range []error{upload, download} {
		if _, theirs := errors.AsType[*Error](err); !errors.Is(err, os.ErrNotExist) || theirs || p.hits["file"] > 1 {
			t.Errorf("err = %v after %d requests", err, p.hits["file"])
		}
	}
}

func TestCallerCancels(t *testing.T) {
	errStopping := errors.New("stopping")
	for _, step := range []string{"upload-token", "upload", "audio-separation", "progress", "project", "file", "a pause"} {
		t.Run(step, func(t *testing.T) {
			p := newProvider(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			change := func(*Config) {}
			if step == "a pause" {
				step = "register"
				p.faults[step] = answers(500)
				change = func(cfg *Config) {
					cfg.Sleep = func(ctx context.Context, _ time.Duration) error {
						cancel(errStopping)
						return httpcall.Sleep(ctx, time.Hour)
					}
				}
			} else {
				p.faults[step] = func(w http.ResponseWriter, r *http.Request, n int) bool {
					cancel(errStopping)
					return stalls(w, r, n)
				}
			}
			err := p.run(ctx, p.client(change), step)
			if !errors.Is(err, errStopping) || p.hits[step] != 1 {
				t.Fatalf("err = %v after %d requests", err, p.hits[step])
			}
		})
	}
}
