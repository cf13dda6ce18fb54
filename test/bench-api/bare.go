package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/account"
)

// secretKey names the variable that gives the bare handler its secret.
const secretKey = "BENCH_SECRET"

// serveBare serves, in a process of its own, a handler that checks the bearer
// token as the service does, answers a small JSON object, and does nothing else.
// It prints its address.
func serveBare() {
	tokens := account.NewTokens(os.Getenv(secretKey), time.Hour)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("http://" + l.Addr().String())
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if _, err := tokens.Check(token); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]int{"balance": 3}) // the client has gone
	}))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// bareServer is the bare handler's process.
type bareServer struct {
	url, token string
	cmd        *exec.Cmd
}

// measureBare runs the bare handler for one measurement.
func measureBare(ctx context.Context, o options, secret string) (load, error) {
	b, err := startBare(ctx, secret)
	if err != nil {
		return load{}, err
	}
	defer b.stop()
	return measure(o, b.cmd.Process.Pid, b.url+"/", b.token)
}

func startBare(ctx context.Context, secret string) (*bareServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &bareServer{cmd: exec.CommandContext(ctx, self, "-bare")}
	b.cmd.Env = append(os.Environ(), secretKey+"="+secret)
	b.cmd.Stderr = os.Stderr
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.stop()
		return nil, fmt.Errorf("start the bare handler: %w", err)
	}
	b.url = strings.TrimSpace(line)
	b.token, _, err = account.NewTokens(secret, time.Hour).Issue(account.Principal{UserID: uuid.NewString(), Role: account.RoleUser})
	return b, err
}

func (b *bareServer) stop() {
	_ = b.cmd.Process.Kill() // it may have ended by itself
	_ = b.cmd.Wait()
}
