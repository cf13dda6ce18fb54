// Package system runs the whole service on one machine: a sandbox world, `cutroom serve` as a child process, and a
// front that can be made to fail, with a user and an admin signed in. It uses only the service's public interface: a
// command line, an environment and HTTP.
package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/api"
	"cutroom/internal/sandbox/identity"
	"cutroom/internal/sandbox/process"
)

const (
	startDeadline = 60 * time.Second
	stopDeadline  = 45 * time.Second
)

// Options configures Start.
type Options struct {
	World sandbox.Options
	// Cutroom is the service's binary; "" uses the one in the running executable's folder.
	Cutroom string
	// Serve is a program that runs the service in place of Cutroom. It is called as `serve --ahead <duration>`, the
	// offset of the service's clock.
	Serve string
	// Port is the API's port; 0 uses a free one.
	Port int
	// Log receives the service's log; nil discards it.
	Log io.Writer
	// Settable lists the keys of the service's environment that any client of the sandbox may set, to numbers.
	Settable []string
	// Env adds to or replaces the environment that the world gives the service.
	Env map[string]string
}

// Session is a signed-in user.
type Session struct {
	api.User
	AccessToken string
}

// System is the running service with its world.
type System struct {
	World   *sandbox.World
	BaseURL string // of the service, without a trailing slash
	User    Session
	Admin   Session

	cutroom, serve string
	dir            string // the service's working directory
	env            map[string]string
	log            io.Writer
	client         *http.Client
	front          *front

	changing sync.Mutex // held while the service restarts
	settings map[string]setting
	settable []string

	mu    sync.Mutex
	child *process.Child // nil while the service should not run
	ended chan struct{}
	end   func() // closes ended
}

// Start starts world and service, waits for the health check, and signs in a user and an admin. Stop ends them. If ctx
// ends before Start returns, everything is stopped again; afterwards ctx has no effect.
func Start(ctx context.Context, opts Options) (_ *System, err error) {
	if opts.Cutroom == "" {
		if opts.Cutroom, err = FindCutroom(); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(opts.Cutroom); err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	own, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	s := &System{settable: opts.Settable, cutroom: opts.Cutroom, serve: opts.Serve,
		dir: filepath.Join(opts.World.DataDir, "work"), log: opts.Log,
		client: &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}, ended: make(chan struct{}),
		front: newFront("127.0.0.1:" + own)}
	s.end = sync.OnceFunc(func() { close(s.ended) })
	s.mountControl()
	s.front.Publish(opts.World.PublicHost)
	if err := s.front.Listen(net.JoinHostPort("127.0.0.1", strconv.Itoa(opts.Port))); err != nil {
		return nil, err
	}
	s.BaseURL = s.front.URL()
	defer func() {
		if err != nil {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopDeadline)
			defer cancel()
			err = errors.Join(err, s.Stop(stopping))
		}
	}()
	if s.World, err = sandbox.Start(opts.World); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make working directory: %w", err)
	}
	s.env = s.World.Env()
	maps.Copy(s.env, opts.Env)
	maps.Copy(s.env, map[string]string{"PORT": own, "BIND_ADDR": "127.0.0.1", "PUBLIC_BASE_URL": s.BaseURL, "LOG_FORMAT": "text"})
	ahead, err := s.readClock()
	if err != nil {
		return nil, err
	}
	if err := s.startService(ctx, ahead, nil); err != nil {
		return nil, err
	}
	s.front.open(ahead)
	return s, s.signInBoth(ctx)
}

// Mount serves a page on the API's host, below path, and redirects the root to it.
func (s *System) Mount(path string, page http.Handler) {
	s.front.Handle("page", "GET /{$}", http.RedirectHandler(path, http.StatusFound).ServeHTTP)
	s.front.Handle("page", path, page.ServeHTTP)
}

// startService starts the service and waits for its health check.
func (s *System) startService(ctx context.Context, ahead time.Duration, settings map[string]setting) error {
	program, args := s.cutroom, []string{"serve"}
	if s.serve != "" {
		program, args = s.serve, []string{"serve", "--ahead", ahead.String()}
		if err := os.WriteFile(s.clockFile(), []byte(ahead.String()), 0o600); err != nil {
			return fmt.Errorf("keep the clock: %w", err)
		}
	}
	// Only Stop ends it, not a context.
	child, err := process.Start(program, s.dir, s.environment(settings), s.log, args...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.child = child
	s.mu.Unlock()
	starting, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	if err := child.Healthy(starting, s.client, "http://127.0.0.1:"+s.env["PORT"]); err != nil {
		stopped := s.stopService(ctx)
		return errors.Join(fmt.Errorf("%w (its log says why)", err), stopped)
	}
	s.settings = settings
	go func() {
		<-child.Ended()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.child == child {
			s.child = nil
			s.end()
		}
	}()
	return nil
}

// stopService asks the service to drain and exit, waits until ctx ends, and then kills it.
func (s *System) stopService(ctx context.Context) error {
	s.client.CloseIdleConnections()
	s.mu.Lock()
	child := s.child
	s.child = nil
	s.mu.Unlock()
	if child == nil || !child.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopDeadline)
	defer cancel()
	status, err := child.Stop(ctx, syscall.SIGTERM)
	if err == nil && status != 0 {
		err = fmt.Errorf("cutroom did not end cleanly: status %d", status)
	}
	return err
}

// FindCutroom looks for the service's binary in the running executable's folder.
func FindCutroom() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find cutroom: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), "cutroom")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no cutroom binary at %s: build both programs with \"go build -o bin/ ./cmd/...\"", path)
	}
	return path, nil
}

// inherited matches everything that the service inherits from the caller's environment, including the variables
// that affect rendering.
var inherited = regexp.MustCompile(`^(PATH|HOME|TMPDIR|LANG|TZ|LOG_LEVEL|GOCOVERDIR|(MEDIA|RENDER|OTEL)_[A-Z_]+)$`)

// Ended returns a channel that is closed when the service has ended by itself.
func (s *System) Ended() <-chan struct{} { return s.ended }

// SignIn signs in a user through provider_a; the first sign-in creates the account.
func (s *System) SignIn(ctx context.Context, email, name string) (Session, error) {
	token, err := s.World.ProviderA.Mint(identity.Claims{Email: email, Name: name})
	if err != nil {
		return Session{}, err
	}
	c := api.New(s.BaseURL)
	c.HTTP = s.client
	user, err := c.SignIn(ctx, token)
	if err != nil {
		return Session{}, fmt.Errorf("sign in %s: %w", email, err)
	}
	return Session{user, c.Token}, nil
}

func (s *System) signInBoth(ctx context.Context) (err error) {
	if s.User, err = s.SignIn(ctx, "user@sandbox.example", "Uma User"); err != nil {
		return err
	}
	if s.Admin, err = s.SignIn(ctx, "admin@sandbox.example", "Ada Admin"); err != nil {
		return err
	}
	if s.Admin.Role == "admin" {
		return nil // from an earlier run
	}
	var log bytes.Buffer
	grant, err := process.Start(s.cutroom, s.dir, s.environment(nil), &log, "admin", "grant", s.Admin.Email)
	if err != nil {
		return fmt.Errorf("grant the admin role: %w", err)
	}
	if status := grant.Status(); status != 0 {
		return fmt.Errorf("grant the admin role: status %d: %s", status, bytes.TrimSpace(log.Bytes()))
	}
	// The role is in the access token, so sign in again.
	s.Admin, err = s.SignIn(ctx, s.Admin.Email, "Ada Admin")
	return err
}

// Stop asks the service to drain and exit, waits until ctx ends, then kills it, and closes the world. Stopping
// again does nothing.
func (s *System) Stop(ctx context.Context) error {
	s.changing.Lock() // wait for a restart in progress
	defer s.changing.Unlock()
	err := errors.Join(s.stopService(ctx), s.front.Close())
	if s.World != nil {
		err = errors.Join(err, s.World.Close())
	}
	return err
}
