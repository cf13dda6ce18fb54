package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"cutroom/internal/sandbox/api"
	"cutroom/internal/sandbox/process"
)

// peerVersion is the release of PocketBase that is measured beside the service: a
// backend for apps that many know, in the same language and on the same SQLite.
const peerVersion = "v0.39.0"

// installPeer builds PocketBase unless that was done, and returns its path.
func installPeer(ctx context.Context) (string, error) {
	folder, err := filepath.Abs(".tools/bin")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "pocketbase-"+peerVersion)
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	install := exec.CommandContext(ctx, "go", "install", "github.com/pocketbase/pocketbase/examples/base@"+peerVersion)
	install.Env = append(os.Environ(), "GOBIN="+folder, "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install PocketBase: %w: %s", err, out)
	}
	return binary, os.Rename(filepath.Join(folder, "base"), binary)
}

// measurePeer asks PocketBase for what a balance is there: one record that only
// its owner may read.
func measurePeer(ctx context.Context, o options, binary, dir string) (l load, err error) {
	const person, password = "bench@example.test", "bench-password"
	data := "--dir=" + filepath.Join(dir, "peer")
	if out, err := exec.CommandContext(ctx, binary, "superuser", "upsert", person, password, data).CombinedOutput(); err != nil {
		return l, fmt.Errorf("%w: %s", err, out)
	}
	port, err := process.FreePort()
	if err != nil {
		return l, err
	}
	child, err := process.Start(binary, dir, os.Environ(), nil, "serve", data, "--http=127.0.0.1:"+port)
	if err != nil {
		return l, err
	}
	defer func() {
		ending, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, _ = child.Stop(ending, syscall.SIGTERM) // what is measured is known by now
	}()
	p := &peer{url: "http://127.0.0.1:" + port + "/api/collections/"}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		res, err := http.Get("http://127.0.0.1:" + port + "/api/health")
		if err == nil {
			res.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			return l, err
		}
	}
	p.token = p.post("_superusers/auth-with-password", m{"identity": person, "password": password}).Token
	p.post("", m{"name": "balances", "type": "base", "viewRule": "owner = @request.auth.id",
		"fields": []m{{"name": "owner", "type": "text"}, {"name": "balance", "type": "number"}}})
	user := p.post("users/records", m{"email": person, "password": password, "passwordConfirm": password}).ID
	record := p.post("balances/records", m{"owner": user, "balance": 3}).ID
	token := p.post("users/auth-with-password", m{"identity": person, "password": password}).Token
	if p.err != nil {
		return l, p.err
	}
	return measure(o, child.PID(), p.url+"balances/records/"+record, token)
}

type m = map[string]any

// peer is a running PocketBase, which is set up by its own API.
type peer struct {
	url, token string
	err        error // of the calls so far
}

func (p *peer) post(path string, body m) (answer struct{ ID, Token string }) {
	b, err := json.Marshal(body)
	if err != nil {
		p.err = errors.Join(p.err, err)
		return answer
	}
	address := p.url + path
	if path == "" {
		address = p.url[:len(p.url)-1]
	}
	req, err := http.NewRequest(http.MethodPost, address, bytes.NewReader(b))
	if err != nil {
		p.err = errors.Join(p.err, err)
		return answer
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", p.token)
	_, err = (&api.Client{HTTP: http.DefaultClient}).Exchange(req, "POST "+path, &answer)
	p.err = errors.Join(p.err, err)
	return answer
}
