// Package separator stands in for the separation provider: the API host, the storage host for results and the
// upload storage, three servers as in reality. It really separates the uploaded audio (package stems), takes a
// while to do so, and can be configured to fail in every step.
//
// Its state is in memory and survives faults and outages, like the original's.
package separator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"cutroom/internal/sandbox/fake"
)

// The steps of the protocol by which calls are counted and faults are selected.
const (
	StepUploadToken  = "upload-token"     // GET sas-token
	StepUpload       = "upload"           // PUT of the bytes
	StepRegister     = "register"         // PUT /file/api/upload/audio
	StepSubmit       = "audio-separation" // POST …/audio-separation
	StepProgress     = "progress"         // GET …/progress
	StepProject      = "project"          // GET …/projects/{id}/spaces/{space}
	StepDownloadLink = "download-link"    // GET …/download?target=
	StepDownload     = "download"         // GET of result bytes
)

// Behaviour is how the provider behaves apart from failing. It may be changed at any time. Fields marked "at
// submit" apply to projects submitted afterwards, the others to all projects at once.
type Behaviour struct {
	// ProcessingMs is the minimum time of a project. At submit.
	ProcessingMs int `json:"processingMs"`
	// HoldAtPercent > 0 stops all projects at that progress until it is 0 again.
	HoldAtPercent int `json:"holdAtPercent,omitempty"`
	// FailAtPercent > 0 makes projects fail when they reach that progress. At submit.
	FailAtPercent int `json:"failAtPercent,omitempty"`
	// FailByReason reports a failure by progressReason instead of hasFailed.
	FailByReason bool `json:"failByReason,omitempty"`
	// FlagsLagCalls is the number of project calls after completion for which the download flags are missing.
	FlagsLagCalls int `json:"flagsLagCalls,omitempty"`

	// Speakers forces the number of speaker tracks, 0..20; nil uses the number found. At submit.
	Speakers *int `json:"speakers,omitempty"`
	// NoVoice, NoBackground, NoSubBackground and NoSpeakers omit a result: its flag is false and its path is missing.
	NoVoice         bool `json:"noVoice,omitempty"`
	NoBackground    bool `json:"noBackground,omitempty"`
	NoSubBackground bool `json:"noSubBackground,omitempty"`
	NoSpeakers      bool `json:"noSpeakers,omitempty"`
	// StemFormat is wav (default), mp3, m4a or flac. At submit.
	StemFormat string `json:"stemFormat,omitempty"`

	// Links replaces the link of a result: keys are the Result constants.
	Links map[string]string `json:"links,omitempty"`
	// StaleLinks is how many different links of each result return 404 permanently, like a CDN that cached the
	// miss. Only a link requested later works.
	StaleLinks int `json:"staleLinks,omitempty"`
	// Bytes replaces the bytes of a result (base64 in JSON), e.g. a hostile archive under ResultSpeakers.
	Bytes map[string][]byte `json:"bytes,omitempty"`
}

// The results of a project.
const (
	ResultVoice         = "voice"
	ResultBackground    = "background"
	ResultSubBackground = "subBackground"
	ResultSpeakers      = "speakers" // a .tar of the speaker tracks
)

// Options configures a Provider.
type Options struct {
	APIKey string // required
	Space  int64  // required, > 0: the only space the key may use
	Dir    string // required: uploads and results are kept here
	Fast   bool   // split by frequency (see stems.Options.Fast)
	// Processing is the minimum time of a project; 0 = 2 s.
	Processing time.Duration
}

// Provider is the stand-in. It is safe for concurrent use.
type Provider struct {
	// API, Storage and Upload are the three hosts; they share Faults.
	API     *fake.Host
	Storage *fake.Host
	Upload  *fake.Host
	Faults  *fake.Faults

	opts Options

	mu        sync.Mutex
	behaviour Behaviour
	nextID    int64
	blobs     map[string]*blob   // by blob id
	media     map[int64]string   // PCM on disk, by mediaSeq
	projects  map[int64]*project // by project id
	keyLeaks  int

	work   context.Context // ends at Close
	stop   context.CancelFunc
	worker sync.WaitGroup
	slot   chan struct{} // one separation computes at a time
}

// New returns a provider.
func New(opts Options) (*Provider, error) {
	for _, sub := range []string{"uploads", "projects"} {
		if err := os.MkdirAll(filepath.Join(opts.Dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("separation stand-in: %w", err)
		}
	}
	faults := fake.NewFaults()
	p := &Provider{
		API: fake.NewHost(faults), Storage: fake.NewHost(faults), Upload: fake.NewHost(faults),
		Faults: faults, opts: opts,
		behaviour: Behaviour{ProcessingMs: int(cmp.Or(opts.Processing, 2*time.Second).Milliseconds())},
		nextID:    100000 + time.Now().Unix()%100000*1000, // ids differ from run to run
		blobs:     map[string]*blob{}, media: map[int64]string{}, projects: map[int64]*project{},
		slot: make(chan struct{}, 1),
	}
	p.work, p.stop = context.WithCancel(context.Background())
	p.routes()
	return p, nil
}

// Listen starts API, storage and upload host on free ports.
func (p *Provider) Listen() error {
	return errors.Join(p.API.Listen(""), p.Storage.Listen(""), p.Upload.Listen(""))
}

// Close stops the hosts and the running separations. Uploads and results stay in the folder.
func (p *Provider) Close() error {
	err := errors.Join(p.API.Close(), p.Storage.Close(), p.Upload.Close())
	p.stop()
	p.worker.Wait()
	return err
}

// Configure calls change with the behaviour, under a lock.
func (p *Provider) Configure(change func(*Behaviour)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.behaviour)
}

// Behaviour returns the current behaviour.
func (p *Provider) Behaviour() Behaviour {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.behaviour
}

// Titles returns the titles of all separations ever started, oldest first. A title that occurs once proves that its job
// was paid for once.
func (p *Provider) Titles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var titles []string
	for _, id := range slices.Sorted(maps.Keys(p.projects)) {
		titles = append(titles, p.projects[id].title)
	}
	return titles
}

// KeyLeaks counts requests that carried the API key to a host that must not receive it.
func (p *Provider) KeyLeaks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keyLeaks
}

func (p *Provider) newID() int64 {
	p.nextID++
	return p.nextID
}

func (p *Provider) routes() {
	const base = "/video-translator/api/v1/projects/"
	p.API.Handle(StepUploadToken, "GET /file/api/upload/sas-token", p.withKey(p.sasToken))
	p.API.Handle(StepRegister, "PUT /file/api/upload/audio", p.withKey(p.register))
	p.API.Handle(StepSubmit, "POST "+base+"spaces/{space}/audio-separation", p.withKey(p.inSpace(p.submit)))
	p.API.Handle(StepProgress, "GET "+base+"{project}/space/{space}/progress", p.withKey(p.ofProject(p.progress)))
	p.API.Handle(StepProject, "GET "+base+"{project}/spaces/{space}", p.withKey(p.ofProject(p.projectInfo)))
	p.API.Handle(StepDownloadLink, "GET "+base+"{project}/spaces/{space}/download", p.withKey(p.ofProject(p.downloadLink)))
	p.Upload.Handle(StepUpload, "PUT /upload-container/{blob}/{name}", p.withoutKey(p.putBlob))
	p.Storage.Handle(StepDownload, "GET /perso-storage/{project}/{file}", p.withoutKey(p.serveResult))

	p.API.HandleControl("GET", "behaviour", "how the provider behaves without failing outright", nil,
		func(*http.Request) (any, error) { return p.Behaviour(), nil })
	p.API.HandleControl("PUT", "behaviour", "change the fields that are named", Behaviour{ProcessingMs: 6000},
		func(r *http.Request) (any, error) {
			b := p.Behaviour()
			b.Links, b.Bytes = maps.Clone(b.Links), maps.Clone(b.Bytes) // decoding adds to existing maps
			if err := fake.ReadControl(r, &b); err != nil {
				return nil, err
			}
			p.Configure(func(now *Behaviour) { *now = b })
			return b, nil
		})
}

const keyHeader = "XP-API-KEY"

// withKey accepts only calls with the correct API key.
func (p *Provider) withKey(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(keyHeader) != p.opts.APIKey {
			refuse(w, http.StatusUnauthorized, "AUTH_001", "Invalid API key")
			return
		}
		next(w, r)
	}
}

// withoutKey refuses calls with the API key on hosts that must not receive it.
func (p *Provider) withoutKey(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(keyHeader) != "" || r.Header.Get("Authorization") != "" {
			p.mu.Lock()
			p.keyLeaks++
			p.mu.Unlock()
			refuse(w, http.StatusForbidden, "STORAGE_403", "Credentials must not be sent to storage")
			return
		}
		next(w, r)
	}
}

// inSpace refuses calls for a space to which the key does not belong.
func (p *Provider) inSpace(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("space") != fmt.Sprint(p.opts.Space) {
			refuse(w, http.StatusForbidden, "SPACE_403", "No access to this space")
			return
		}
		next(w, r)
	}
}

// ofProject looks up the project of a call and calls next under the lock.
func (p *Provider) ofProject(next func(http.ResponseWriter, *http.Request, *project)) http.HandlerFunc {
	return p.inSpace(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		pr := p.find(r)
		if pr == nil {
			refuse(w, http.StatusNotFound, "PROJECT_404", "Project not found")
			return
		}
		next(w, r, pr)
	})
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	fake.WriteJSON(w, status, map[string]any{"code": code, "status": http.StatusText(status), "message": message})
}

func result(w http.ResponseWriter, v any) {
	fake.WriteJSON(w, http.StatusOK, map[string]any{"result": v})
}
