// Package system runs the whole service on one machine: a sandbox world and
// `cutroom serve` as a child process in front of it, with a user and an admin
// signed in. It knows the service by its public interface alone: a command
// line, an environment and HTTP.
package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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

// Options chooses what Start starts.
type Options struct {
	World sandbox.Options
	// Cutroom is the service's binary; "" looks beside the running executable.
	Cutroom string
	// Port is where the service listens; 0 takes a free one.
	Port int
	// Log receives what the service logs; nil discards it.
	Log io.Writer
	// Env adds to or replaces the world's environment of the service.
	Env map[string]string
}

// Session is somebody signed in.
type Session struct {
	Email       string
	UserID      string
	Role        string
	AccessToken string
}

// System is the running service with its world.
type System struct {
	World   *sandbox.World
	BaseURL string // of the service, without a trailing slash
	User    Session
	Admin   Session

	cutroom string
	dir     string // the service's working directory
	env     []string
	child   *process.Child
	client  *http.Client
}

// Start starts world and service, waits for its health check, and signs in a
// user and an admin. Stop ends it. When ctx ends before Start returns,
// everything is stopped again; afterwards ctx bounds the world, so keep it
// alive until Stop.
func Start(ctx context.Context, opts Options) (_ *System, err error) {
	if opts.Cutroom == "" {
		if opts.Cutroom, err = FindCutroom(); err != nil {
			return nil, err
		}
	}
	port, err := choosePort(ctx, opts.Port)
	if err != nil {
		return nil, err
	}
	world, err := sandbox.Start(ctx, opts.World)
	if err != nil {
		return nil, err
	}
	s := &System{World: world, BaseURL: "http://127.0.0.1:" + strconv.Itoa(port), cutroom: opts.Cutroom,
		dir: filepath.Join(opts.World.DataDir, "work"), client: &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}}
	defer func() {
		if err != nil {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopDeadline)
			defer cancel()
			err = errors.Join(err, s.Stop(stopping))
		}
	}()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make working directory: %w", err)
	}
	s.env = environment(world, port, opts.Env)
	// Its life is ended by Stop, not by a context.
	if s.child, err = process.Start(s.cutroom, s.dir, s.env, opts.Log, "serve"); err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	if err := s.child.Healthy(starting, s.client, s.BaseURL); err != nil {
		return nil, fmt.Errorf("%w (its log says why)", err)
	}
	return s, s.signInBoth(ctx)
}

// FindCutroom looks for the service's binary beside the running executable.
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

// choosePort checks that a wanted port is free, or finds one.
func choosePort(ctx context.Context, port int) (int, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, fmt.Errorf("port %d is not free, choose another with --port: %w", port, err)
	}
	port = ln.Addr().(*net.TCPAddr).Port
	if err := ln.Close(); err != nil {
		return 0, fmt.Errorf("release port %d: %w", port, err)
	}
	return port, nil
}

// inherited is all the service gets of the caller's own environment, with whatever
// says how it renders: a real DATABASE_URL or bucket of the developer must not get
// in by accident.
var inherited = regexp.MustCompile(`^(PATH|HOME|TMPDIR|LANG|TZ|LOG_LEVEL|FFMPEG_PATH|FFPROBE_PATH|GOCOVERDIR|(MEDIA|RENDER)_[A-Z_]+)$`)

func environment(world *sandbox.World, port int, extra map[string]string) []string {
	env := world.Env()
	env["PORT"] = strconv.Itoa(port)
	env["LOG_FORMAT"] = "text"
	for key, value := range extra {
		env[key] = value
	}
	var list []string
	for _, setting := range os.Environ() {
		if key, _, _ := strings.Cut(setting, "="); inherited.MatchString(key) && env[key] == "" {
			list = append(list, setting)
		}
	}
	for key, value := range env {
		list = append(list, key+"="+value)
	}
	return list
}

// Ended is closed when the service has ended, asked or not.
func (s *System) Ended() <-chan struct{} { return s.child.Ended() }

// SignIn signs somebody in through provider_a; the account is made on the
// first time.
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
	return Session{Email: user.Email, UserID: user.Sub, Role: user.Role, AccessToken: c.Token}, nil
}

func (s *System) signInBoth(ctx context.Context) (err error) {
	if s.User, err = s.SignIn(ctx, "user@sandbox.example", "Uma User"); err != nil {
		return err
	}
	if s.Admin, err = s.SignIn(ctx, "admin@sandbox.example", "Ada Admin"); err != nil {
		return err
	}
	if s.Admin.Role == "admin" {
		return nil // since an earlier run
	}
	var log bytes.Buffer
	grant, err := process.Start(s.cutroom, s.dir, s.env, &log, "admin", "grant", s.Admin.Email)
	if err != nil {
		return fmt.Errorf("grant the admin role: %w", err)
	}
	if status := grant.Status(); status != 0 {
		return fmt.Errorf("grant the admin role: status %d: %s", status, bytes.TrimSpace(log.Bytes()))
	}
	// The role is in the token, so it takes a new one.
	s.Admin, err = s.SignIn(ctx, s.Admin.Email, "Ada Admin")
	return err
}

// Stop asks the service to drain and end, waits for it while ctx lasts, kills
// it afterwards, and closes the world. Stopping again does nothing.
func (s *System) Stop(ctx context.Context) error {
	s.client.CloseIdleConnections()
	var err error
	if s.child != nil && s.child.Running() {
		status := 0
		if status, err = s.child.Stop(ctx, syscall.SIGTERM); err == nil && status != 0 {
			err = fmt.Errorf("cutroom did not end cleanly: status %d", status)
		}
	}
	return errors.Join(err, s.World.Close())
}
