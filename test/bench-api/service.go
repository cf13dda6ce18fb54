package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/api"
	"cutroom/internal/sandbox/identity"
	"cutroom/internal/sandbox/process"
)

// createDatabase makes a database of its own for the service and returns its
// address as the service reads it.
func createDatabase(ctx context.Context, cluster string) (map[string]string, error) {
	u, err := url.Parse(cluster)
	if err != nil || u.User == nil {
		return nil, errors.New("the cluster's address holds no user")
	}
	conn, err := pgx.Connect(ctx, cluster)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	name := "bench_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	user := u.User.Username()
	u.User, u.Path = nil, "/"+name
	return map[string]string{"DATABASE_URL": u.String(), "DB_USER": user, "DB_PASSWORD": password}, nil
}

// service is a running `cutroom serve`.
type service struct {
	url   string
	child *process.Child
	count int // sign-ins, each from an address of its own
}

func startService(ctx context.Context, binary, dir string, world *sandbox.World, env map[string]string) (*service, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	all := world.Env()
	for key, value := range map[string]string{"PORT": port, "STORAGE_PATH": filepath.Join(dir, "storage"),
		"ENABLE_API_DOCS": "", "ENABLE_TESTDATA_MOCK": "", "ADMIN_SLUG": ""} {
		all[key] = value
	}
	for key, value := range env {
		all[key] = value
	}
	// The log is written, as in production, and thrown away.
	s := &service{url: "http://127.0.0.1:" + port}
	if s.child, err = process.Start(binary, dir, process.Environ(all, regexp.MustCompile("^PATH$")), nil, "serve"); err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := s.child.Healthy(starting, http.DefaultClient, s.url); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// stop ends the service and waits until it has.
func (s *service) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, _ = s.child.Stop(ctx, syscall.SIGTERM) // what is measured is known by now
}

func (s *service) signIn(world *sandbox.World, email string) (token string, err error) {
	idToken, err := world.ProviderA.Mint(identity.Claims{Email: email})
	if err != nil {
		return "", err
	}
	s.count++ // sign-ins are limited by address
	var answer struct{ AccessToken string }
	_, err = s.api().Call(context.Background(), api.Request{Method: http.MethodPost, Path: "/api/v2/auth/provider_a",
		JSON:   map[string]string{"idToken": idToken},
		Header: http.Header{"X-Forwarded-For": {fmt.Sprintf("198.51.%d.%d", s.count/250, s.count%250+1)}}}, &answer)
	return answer.AccessToken, err
}

func (s *service) api() *api.Client { return &api.Client{Base: s.url, HTTP: http.DefaultClient} }

// wav is a second of silence that every part of the service accepts.
var wav = []byte("RIFF\x64\x1f\x00\x00WAVEfmt " +
	"\x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\x40\x1f\x00\x00" +
	strings.Repeat("\x80", 8000))

func (s *service) submit(path, user, file, text, content string) (jobID string, err error) {
	var answer struct{ JobID string }
	_, err = s.api().Call(context.Background(), api.Request{Method: http.MethodPost, Path: path, Token: user,
		Form: []api.Part{{Name: file, Bytes: wav, Filename: "a.wav"}, {Name: text, Text: content}}}, &answer)
	return answer.JobID, err
}

// submitRender submits a render of sound alone and waits for its end, so that
// it takes nothing from what is measured.
func (s *service) submitRender(user string) (string, error) {
	id, err := s.submit("/api/v2/render", user, "video", "config", `{"videoDurationMs":1000,"outputKind":"audio"}`)
	if err != nil {
		return "", err
	}
	return id, s.wait("/api/v2/render/"+id+"/status", user, "COMPLETED")
}

func (s *service) submitSeparation(user string) (string, error) {
	id, err := s.submit("/api/v2/separate", user, "file", "spec", `{}`)
	if err != nil {
		return "", err
	}
	return id, s.wait("/api/v2/separate/"+id, user, "READY")
}

func (s *service) wait(path, user, state string) error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var answer struct{ Status, Error string }
		if _, err := s.api().Call(context.Background(), api.Request{Path: path, Token: user}, &answer); err != nil {
			return err
		}
		if answer.Status == state {
			return nil
		}
		if answer.Status == "FAILED" {
			return fmt.Errorf("%s failed: %s", path, answer.Error)
		}
	}
	return fmt.Errorf("%s does not become %s", path, state)
}
