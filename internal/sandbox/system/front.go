// The proxy in front of the sandbox's service: it makes chosen requests fail, and holds all requests while the service
// restarts with another clock or other numbers.

package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/process"
)

// methods are the steps of the API's front, in lower case.
var methods = []string{"get", "head", "post", "put", "delete", "options"}

// front is a proxy between apps and the service. It forwards requests, makes selected ones fail, and holds requests
// while the service restarts with another clock or other settings.
type front struct {
	*fake.Host
	proxy     httputil.ReverseProxy
	transport http.Transport

	mu      sync.Mutex
	running chan struct{} // closed while the service runs
	ahead   time.Duration
}

// newFront returns the front of a service that will listen at target.
func newFront(target string) *front {
	f := &front{Host: fake.NewHost(nil), running: make(chan struct{}),
		transport: http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, ExpectContinueTimeout: time.Second}}
	f.proxy = httputil.ReverseProxy{
		Transport: &f.transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: target})
			p.Out.URL.RawQuery = p.In.URL.RawQuery // the proxy drops what it cannot parse
			p.Out.Host = p.In.Host
			p.SetXForwarded() // rate limits use the client's address
		},
		ModifyResponse: func(res *http.Response) error {
			// Show apps the time of the service's clock.
			res.Header.Set("Date", time.Now().Add(f.clock()).UTC().Format(http.TimeFormat))
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	f.HandleSteps(methods, func(r *http.Request) string {
		if method := strings.ToLower(r.Method); slices.Contains(methods, method) {
			return method
		}
		return fake.StepUnknown
	}, "/", f.pass)
	return f
}

func (f *front) clock() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ahead
}

func (f *front) pass(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	running := f.running
	f.mu.Unlock()
	select {
	case <-running:
		f.proxy.ServeHTTP(w, r)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// open forwards requests to a service whose clock is ahead; close holds them.
func (f *front) open(ahead time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = ahead
	close(f.running)
}

func (f *front) close() {
	f.mu.Lock()
	f.running = make(chan struct{})
	f.mu.Unlock()
	f.transport.CloseIdleConnections()
}

// service lists what can be changed in the running service.
type service struct {
	// Ahead is how far the service's clock is ahead, such as 36h. It may only grow.
	Ahead string `json:"ahead"`
	// Settings are numeric keys of the service's environment.
	Settings map[string]setting `json:"settings"`
}

// setting is a number, written as a JSON number or as text.
type setting string

// UnmarshalJSON implements json.Unmarshaler.
func (s *setting) UnmarshalJSON(text []byte) error {
	*s = setting(strings.Trim(string(text), `"`))
	if !number.MatchString(string(*s)) {
		return fmt.Errorf("a setting must be a whole number, not %s", text)
	}
	return nil
}

var number = regexp.MustCompile(`^[0-9]{1,12}$`)

func (s *System) mountControl() {
	s.front.HandleControl("GET", "servers", "the addresses of the stand-ins", nil,
		func(*http.Request) (any, error) { return s.World.Servers(), nil })
	s.front.HandleControl("GET", "service", "how far the service's clock is ahead, and which settings were changed", nil,
		func(*http.Request) (any, error) {
			s.changing.Lock()
			defer s.changing.Unlock()
			return service{s.front.clock().String(), s.settings}, nil
		})
	fake.Control(s.front.Host, "PUT", "service",
		"start the service anew with its clock ahead, and with these settings, whose values are numbers; "+
			"requests wait meanwhile. A clock goes forward only, settings that are not named have their defaults again",
		service{Ahead: "0s", Settings: map[string]setting{"SEPARATION_URL_TTL_SEC": "60"}}, func(ctx context.Context, want service) (any, error) {
			// The change continues if the client disconnects.
			err := s.change(context.WithoutCancel(ctx), want)
			return service{s.front.clock().String(), want.Settings}, err
		})
}

// change restarts the service. If it does not start, the old settings stay.
func (s *System) change(ctx context.Context, want service) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	now := s.front.clock()
	ahead := now
	if want.Ahead != "" {
		var err error
		if ahead, err = time.ParseDuration(want.Ahead); err != nil {
			return err
		}
	}
	if ahead < now {
		return fmt.Errorf("the clock goes forward only, and is %v ahead: rows of the future would outlive everything. "+
			"Remove the data folder to begin again", now)
	}
	if ahead != now && s.serve == "" {
		return errors.New("the clock of this service cannot be moved")
	}
	for key := range want.Settings {
		if !slices.Contains(s.settable, key) {
			return fmt.Errorf("%s cannot be set here: it is no key of the service that holds a number", key)
		}
	}
	before := s.settings
	s.front.close()
	if err := s.stopService(ctx); err != nil {
		return err
	}
	err := s.startService(ctx, ahead, want.Settings)
	if err != nil {
		ahead = now
		if again := s.startService(ctx, now, before); again != nil {
			return errors.Join(err, again)
		}
		err = fmt.Errorf("%w; it runs again as it was", err)
	}
	s.front.open(ahead)
	return err
}

// clockFile is the file that records how far the clock is ahead, because the rows in a data folder have times of that
// clock.
func (s *System) clockFile() string { return filepath.Join(filepath.Dir(s.dir), "clock") }

func (s *System) readClock() (time.Duration, error) {
	raw, err := os.ReadFile(s.clockFile())
	if s.serve == "" || errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return time.ParseDuration(string(raw))
}

// environment returns the service's environment with changed settings.
func (s *System) environment(settings map[string]setting) []string {
	env := maps.Clone(s.env)
	for key, value := range settings {
		env[key] = string(value)
	}
	return process.Environ(env, inherited)
}
