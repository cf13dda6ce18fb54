// Runs the pages about the sandbox: every command in them, every control call of the stand-ins, and every kind of
// fault.

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/logtest"
)

// runSandbox runs `sandbox up` until the test ends and returns its data folder, what it printed and the address of the
// API.
func runSandbox(t *testing.T, args ...string) (data, printed, base string) {
	t.Helper()
	cutroom, err := apitest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	data = filepath.Join(t.TempDir(), "sandbox-data")
	var stdout, stderr logtest.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- dispatch(ctx, append([]string{"up", "--fast", "--port", "0", "--data", data, "--cutroom", cutroom}, args...), &stdout, &stderr)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the sandbox ended with %v", err)
		}
		if t.Failed() {
			log := stderr.String()
			t.Logf("its log:\n%s", log[max(0, len(log)-4000):])
		}
	})
	deadline := time.Now().Add(4 * time.Minute)
	for !strings.Contains(stdout.String(), "Ctrl-C stops everything") {
		select {
		case err := <-ended:
			ended <- nil
			t.Fatalf("the sandbox ended with %v\n%s", err, stderr.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the sandbox does not start")
		}
	}
	return data, stdout.String(), regexp.MustCompile(`cutroom runs at (\S+)`).FindStringSubmatch(stdout.String())[1]
}

// Every control call does what the index says of it, with the index's own example; so does every kind of fault.
func tryIndex(t *testing.T, address string) {
	t.Helper()
	call := func(method, path string, body any) []byte {
		t.Helper()
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), method, address+path, bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		answer, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("%s %s%s with %s: %d %s, %v", method, address, path, raw, res.StatusCode, answer, err)
		}
		return answer
	}
	var index struct {
		Calls []struct {
			Method, Path, What string
			Example            map[string]any
			Fields             map[string]string
		}
		Kinds []struct {
			Kind, What string
			Example    any
		}
		Steps []struct{ Step string }
	}
	if err := json.Unmarshal(call("GET", "/__control/", nil), &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Kinds) < 11 || len(index.Calls) < 5 || len(index.Steps) < 3 {
		t.Errorf("%s lists %d kinds, %d calls, %d steps", address, len(index.Kinds), len(index.Calls), len(index.Steps))
	}
	for _, k := range index.Kinds {
		call("POST", "/__control/faults", k.Example)
	}
	for _, s := range index.Steps {
		call("POST", "/__control/faults", map[string]any{"step": s.Step, "kind": "close", "path": "/nowhere"})
	}
	for _, c := range index.Calls {
		if c.What == "" || (c.Method == "POST" || c.Method == "PUT") && len(c.Example) == 0 {
			t.Errorf("%s: %s %s without a word or an example", address, c.Method, c.Path)
		}
		for name := range c.Example {
			if c.Fields[name] == "" {
				t.Errorf("%s: %s has no field %s", address, c.Path, name)
			}
		}
		if c.Method != "DELETE" {
			call(c.Method, c.Path, c.Example)
		}
	}
	call("DELETE", "/__control/faults", nil)
	call("DELETE", "/__control/calls", nil)
}

// runPage runs the commands of a page in a folder, one block after the other in one shell, and compares what they print
// with what stands after #>. It returns what they print to standard error.
func runPage(t *testing.T, page, dir string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	// A block ends with a mark, so that it is known which one said what.
	script := "set -eu\n"
	var want []string
	for _, block := range regexp.MustCompile("(?s)\n```sh\n(.*?)\n```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.SplitSeq(block[1], "\n") {
			if said, expected := strings.CutPrefix(line, "#> "); expected {
				want = append(want, said)
			} else {
				script += line + "\n"
			}
		}
		script += "echo '@@@'\n"
		want = append(want, "@@@")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v\n%s\n%s", page, err, out, complaints.String())
	}
	var got []string
	block, expects := "", false
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		got = append(got, strings.TrimRight(lines.Text(), " "))
	}
	for _, w := range want {
		if w != "@@@" {
			expects = true
			block += regexp.QuoteMeta(w) + "\n"
			continue
		}
		i := slices.Index(got, "@@@")
		if i < 0 {
			t.Errorf("%s: the commands ended before a block that prints\n%s", page, block)
			break
		}
		said := strings.Join(got[:i], "\n") + "\n"
		if pattern := strings.ReplaceAll(block, `\.\.\.`, ".*"); expects && !regexp.MustCompile("^"+pattern+"$").MatchString(said) {
			t.Errorf("%s says that this is printed:\n%s\nand it is\n%s", page, strings.ReplaceAll(block, `\`, ""), said)
		}
		got, block, expects = got[i+1:], "", false
	}
	return complaints.String()
}

// behave changes how the separation stand-in works.
func behave(t *testing.T, api, change string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "PUT", api+"/__control/behaviour", strings.NewReader(change))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", change, res, err)
	}
	res.Body.Close()
}

// The pages do what they say, one after another on one sandbox that a phone can reach, and every address that a page
// meets names the host of --public-host.
func TestPagesRunAndNameThePublicHost(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole system")
	}
	t.Parallel() // it mostly waits
	host, err := ownAddress()
	if err != nil {
		host = "127.0.0.2" // a machine without a network
	}
	data, printed, base := runSandbox(t, "--public-host", host)
	var servers map[string]string
	described, err := os.ReadFile(filepath.Join(data, "world.json"))
	if err == nil {
		err = json.Unmarshal(described, &struct{ Servers *map[string]string }{&servers})
	}
	if err != nil || len(servers) != 11 {
		t.Fatalf("world.json: %v, %v", servers, err)
	}
	for _, address := range append(slices.Collect(maps.Values(servers)), base) {
		tryIndex(t, address)
	}
	dir := filepath.Dir(data)
	behave(t, servers["separation_api"], `{"noSpeakers":true}`) // their stems take time
	runPage(t, "../../docs/sandbox.md", dir)
	// The sample that waits for a separation shows its progress long before the end.
	behave(t, servers["separation_api"], `{"noSpeakers":false,"processingMs":8000}`)
	shown := regexp.MustCompile(`(?m)^{"status":.*}$`).FindAllString(runPage(t, "../../docs/app/film.md", dir), -1)
	if len(shown) < 3 || strings.Contains(shown[0], "READY") || !strings.Contains(shown[len(shown)-1], "READY") {
		t.Errorf("the sample that waits shows %q", shown)
	}
	runPage(t, "../../docs/app/money.md", dir)
	for _, name := range []string{"film.mp4", "poster.jpg", "voice.flac"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 1000 {
			t.Errorf("docs/app/film.md leaves no %s: %v", name, err)
		}
	}
	seen := printed + fmt.Sprint(servers)
	for _, name := range []string{"upload.json", "parts.json", "separation.json", "download.txt", "sandbox-data/env.sh"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(raw), "http") {
			t.Errorf("no address in %s: %v", name, err)
		}
		seen += "\n" + string(raw)
	}
	for _, address := range regexp.MustCompile(`https?://[^\s"'<\]]+`).FindAllString(seen, -1) {
		if u, err := url.Parse(address); err != nil || u.Hostname() != host {
			t.Errorf("%s is not an address of %s", address, host)
		}
	}
	if !strings.Contains(printed, "▀") || !strings.Contains(printed, "on every interface") {
		t.Errorf("no code, or no word of caution, in\n%s", printed)
	}
}
