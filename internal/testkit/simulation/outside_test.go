// Everything outside the service, simulated: the provider, the engine, the app store and the receiver of web hooks.

package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	visible "cutroom/internal/base/fault"
	"cutroom/internal/base/httpcall"
	"cutroom/internal/film/engine"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/upstream/receipt"
)

// provider is the separation provider, which speaks its wire format with the real client.
type provider struct {
	mu       sync.Mutex
	serial   int
	projects []project
}

type project struct {
	title string
	done  time.Time
	fails bool
}

// paid counts the projects of a job.
func (p *provider) paid(jobID string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.projects {
		if one.title == jobID {
			n++
		}
	}
	return n
}

// line connects one replica to the provider.
type line struct{ r *replica }

func (l line) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	f, err := l.r.world.sched.pass(req.Context(), l.r, paid, "provider "+req.Method+" "+req.URL.Path)
	if err != nil {
		return nil, err
	}
	if f.kind == unreachable || f.kind == failBefore {
		return nil, errLost
	}
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	header := http.Header{}
	if f.kind == busy || f.kind == overloaded {
		header.Set("Retry-After", "3")
	}
	if status := statuses[f.kind]; status != 0 {
		return respond(status, header, nil), nil
	}
	answer := l.r.world.provider.answer(req, body, f.kind == giveUp)
	switch f.kind {
	case loseAnswer:
		return nil, errLost
	case crashAfter:
		l.r.crash()
		return nil, errCrashed
	case garbled:
		answer = []byte("<html>")
	}
	return respond(http.StatusOK, header, answer), nil
}

var statuses = map[kind]int{refused: 400, broke: 402, busy: 429, overloaded: 503, broken: 500}

func respond(status int, header http.Header, body []byte) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
}

// separationTakes is how long the provider works on a project.
const separationTakes = 2 * time.Second

func (p *provider) answer(req *http.Request, body []byte, fails bool) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serial++
	switch at := req.URL.Path; {
	case strings.HasSuffix(at, "/sas-token"):
		return fmt.Appendf(nil, `{"blobSasUrl":"https://storage.test/blob/%d?sig=x"}`, p.serial)
	case strings.HasPrefix(at, "/blob/"):
		return nil
	case strings.HasSuffix(at, "/upload/audio"):
		return fmt.Appendf(nil, `{"seq":%d,"durationMs":60000}`, p.serial)
	case strings.HasSuffix(at, "/audio-separation"):
		var asked struct{ Title string }
		if json.Unmarshal(body, &asked) != nil {
			return nil
		}
		p.projects = append(p.projects, project{title: asked.Title, done: time.Now().Add(separationTakes), fails: fails})
		return fmt.Appendf(nil, `{"startGenerateProjectIdList":[%d]}`, len(p.projects))
	case strings.HasSuffix(at, "/progress"):
		one := &p.projects[p.id(at)-1]
		one.fails = one.fails || fails
		switch {
		case one.fails:
			return []byte(`{"progress":50,"progressReason":"Failed"}`)
		case time.Now().Before(one.done):
			return []byte(`{"progress":50,"progressReason":"Separating"}`)
		}
		return []byte(`{"progress":100,"progressReason":"Completed"}`)
	case strings.HasPrefix(at, "/perso-storage/"):
		return []byte("fLaC of " + at)
	}
	id := p.id(req.URL.Path)
	return fmt.Appendf(nil, `{"downloadInfo":{"hasOriginalVoiceOnly":true,"hasOriginalBackground":true},
		"downloadPathInfo":{"originalVoicePath":"/perso-storage/%d/voice.flac","originalBackgroundPath":"/perso-storage/%[1]d/rest.flac"}}`, id)
}

// id is the project in a path such as …/projects/7/space/1/progress.
func (p *provider) id(at string) int {
	_, rest, _ := strings.Cut(at, "/projects/")
	id, _, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(id)
	if err != nil || n < 1 || n > len(p.projects) {
		panic("no project in " + at)
	}
	return n
}

// soundMeter returns measurements without reading the audio.
type soundMeter struct{}

const soundLength = time.Minute

func (soundMeter) Measure(context.Context, string, container.Kind, media.MeasureOptions) ([]media.Measured, error) {
	return []media.Measured{{Type: "audio", Codec: "aac", SampleRate: 44100, Channels: 2, Packets: 1, Span: soundLength, End: soundLength}}, nil
}

func (soundMeter) DecodedLength(context.Context, string, container.Kind, int, time.Duration, media.MeasureOptions) (time.Duration, error) {
	return soundLength, nil
}

func (soundMeter) Probe(context.Context, string) (media.Probe, error) {
	return media.Probe{}, errNotSimulated
}

func (soundMeter) ProbeWithin(context.Context, string, media.MeasureOptions) (media.Probe, error) {
	return media.Probe{}, errNotSimulated
}

// Encode writes the peaks of silence.
func (soundMeter) Encode(_ context.Context, p media.Pass) (int, error) {
	_, err := p.Stdout.Write(make([]byte, 4096))
	return 0, err
}

func (soundMeter) Count(context.Context, media.Sound, media.Pass, io.Writer) (time.Duration, error) {
	return 0, errNotSimulated
}

var errNotSimulated = errors.New("not simulated")

// renderEngine is the engine of one replica. Its films take simulated time but no CPU.
type renderEngine struct{ r *replica }

const filmLength = 1234 * time.Millisecond

func (e renderEngine) Render(ctx context.Context, job engine.Job) (engine.Output, error) {
	job.OnPlanned(filmLength)
	for percent := range 3 {
		job.OnProgress(30 * percent)
		if err := httpcall.Sleep(ctx, time.Second); err != nil {
			return engine.Output{}, err
		}
	}
	out := engine.Output{Path: filepath.Join(job.Dir, "output.mp4"), Duration: filmLength}
	f, err := e.r.world.sched.pass(ctx, e.r, paid, "engine")
	switch {
	case err != nil:
		return out, err
	case f.kind == refused, f.kind == giveUp:
		return out, visible.Failedf(visible.SourceUnreadable, "simulated: not a film")
	case f.kind == overloaded:
		return out, engine.ErrNoSpace
	case f.kind != none:
		return out, errors.New("simulated: the engine failed")
	}
	return out, os.WriteFile(out.Path, []byte("a film"), 0o600)
}

func (renderEngine) Assist(context.Context, engine.Job, engine.Part) (int, error) {
	return 0, errNotSimulated
}

func (renderEngine) Poster(_ context.Context, _, jpeg string) error {
	return os.WriteFile(jpeg, []byte("a poster"), 0o600)
}

// appStore verifies every receipt.
type appStore struct{ r *replica }

func (a appStore) Verify(ctx context.Context, p receipt.Purchase) (receipt.Sale, error) {
	if err := a.r.do(ctx, other, "verify", p.TransactionID, func() error { return nil }); err != nil {
		return receipt.Sale{}, fmt.Errorf("%w: %w", receipt.ErrUnavailable, err)
	}
	return receipt.Sale{Quantity: 1}, nil
}

func (appStore) Notification(context.Context, string, []byte) (receipt.Notice, error) {
	return receipt.Notice{}, receipt.ErrNotConfigured
}

func (appStore) Refunds(context.Context, []receipt.Transaction) (map[string]receipt.Share, error) {
	return nil, nil
}

// receiver gets web hooks.
type receiver struct {
	mu   sync.Mutex
	seen map[string]int // by the id of the event
}

// post connects one replica to the receiver.
type post struct{ r *replica }

func (p post) RoundTrip(req *http.Request) (*http.Response, error) {
	_ = req.Body.Close()
	id := req.Header.Get("Webhook-Id")
	err := p.r.do(req.Context(), other, "web hook", id, func() error {
		box := p.r.world.receiver
		box.mu.Lock()
		defer box.mu.Unlock()
		box.seen[id]++
		return nil
	})
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, http.Header{}, nil), nil
}
