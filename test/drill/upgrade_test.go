// Package drill rehearses failures of whole machines. Its tests measure real time, so no other test run includes them.
// See the drill- targets of the Makefile.
package drill

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

// watchdog is how long systemd takes to replace a hung replica: WatchdogSec, TimeoutAbortSec, RestartSec and a start.
const watchdog = 20 * time.Second

// failTimeout is how long nginx skips a replica after a failure (fail_timeout in replicas.conf).
const failTimeout = 20 * time.Second

// Two replicas behind the nginx of deploy/ are restarted, killed and suspended under polls and submissions. Only
// requests that a killed replica was working on may fail, and those with the front's JSON 503. A suspended replica
// accepts connections but sends no responses: nginx must stop using it after one time-out, and use it again when it is
// back.
func TestUpgrade(t *testing.T) {
	if os.Getenv("CUTROOM_DRILL") == "" {
		t.Skip("runs in make drill-upgrade")
	}
	const all = "api,render,separation,sweep"
	s := apitest.Start(t, apitest.Roles(all, all), apitest.Env("RENDER_MAX_CONCURRENT", "1"),
		apitest.Env("SEPARATION_MAX_PROVIDER_IN_FLIGHT", "5"))
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.ProcessingMs, b.NoSpeakers = 500, true })
	d := &upgradeDrill{T: t, s: s, front: startFront(t, s), song: mediatest.Tones(t, 300, 1200),
		clip: mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 90, Duration: 2 * time.Second})}
	stop := d.load()
	defer stop()
	time.Sleep(3 * time.Second)

	d.during("restart with the package", d.restartByHand, never)
	d.during("rolling-restart.sh", d.rollingRestart, never)
	for i := range 2 {
		d.during(fmt.Sprintf("kill replica %d", i), func() time.Time {
			d.s.KillReplica(t, i)
			killed := time.Now()
			d.s.Replica(i).Restart(t)
			return killed
		}, notLater)
	}
	d.during("kill both", func() (back time.Time) {
		d.s.Kill9(t)
		for i := range 2 {
			d.s.Replica(i).Restart(t)
			if i == 0 {
				back = time.Now()
			}
		}
		return back
	}, notLater)
	// Until then nginx skips both replicas that were killed, and uses its backup servers, which it never skips.
	time.Sleep(failTimeout)
	var suspended time.Time
	var before int
	d.during("suspend", func() time.Time {
		d.signal(0, syscall.SIGSTOP)
		suspended = time.Now()
		time.Sleep(watchdog)
		d.signal(0, syscall.SIGCONT)
		before = d.served(0)
		return suspended
	}, func(suspended time.Time, r request) error {
		// The replica finds that its deadline for the request is over.
		if r.ended.Sub(suspended) < watchdog || !strings.HasPrefix(r.name, "POST") {
			return errors.New("the suspended replica cannot have held it")
		}
		return notLater(suspended.Add(5*time.Second), r) // until nginx skips the replica
	})
	if d.served(0) == before {
		t.Error("the suspended replica is not used again")
	}
	stop()
	for _, r := range d.requests { // nginx stops using the replica after one time-out
		took := r.ended.Sub(r.began)
		if !strings.HasPrefix(r.name, "GET") || strings.HasSuffix(r.name, "/status") {
			continue
		}
		if took > 5*time.Second || took > time.Second && r.ended.Sub(suspended) > 6*time.Second {
			t.Errorf("%s took %v, until %v after the suspension", r.name, took, r.ended.Sub(suspended).Round(time.Millisecond))
		}
	}
	d.judge()
}

// never is for faults during which no request may fail.
func never(time.Time, request) error { return errors.New("no request may fail") }

// notLater accepts the failures of requests that began before a time.
func notLater(limit time.Time, r request) error {
	if r.began.After(limit) {
		return errors.New("only requests that began before may fail")
	}
	return nil
}

type upgradeDrill struct {
	*testing.T
	s          *apitest.Server
	front      *front
	clip, song string

	mu       sync.Mutex
	requests []request
	accepted map[string]*apitest.User // by job
}

// request is a request of a client and its outcome.
type request struct {
	name         string
	began, ended time.Time
	status       int
	body         string // of a failure
	err          error  // a broken connection, or a failure in a form other than the front's own
}

func (r request) failed() bool { return r.err != nil || r.status >= 500 }

// load starts the clients. Each user polls the balance and the list of films, waits for a job, renews the token, and
// submits jobs.
func (d *upgradeDrill) load() (stop func()) {
	d.accepted = map[string]*apitest.User{}
	done := make(chan struct{})
	var clients sync.WaitGroup
	every := func(pause time.Duration, do func(serial int)) {
		clients.Go(func() {
			for serial := 0; ; serial++ {
				do(serial)
				select {
				case <-done:
					return
				case <-time.After(pause):
				}
			}
		})
	}
	for range 6 {
		u := d.s.SignIn(d.T, apitest.Credits(200))
		u.Server = d.s.At(d.front.url)
		film := d.submit(u, "/api/v2/render", "first")
		every(100*time.Millisecond, func(int) { d.send(u, apitest.Request{Path: "/api/v2/credits"}) })
		every(200*time.Millisecond, func(int) { d.send(u, apitest.Request{Path: "/api/v2/render?limit=1"}) })
		every(100*time.Millisecond, func(int) {
			d.send(u, apitest.Request{Path: "/api/v2/render/" + film + "/status", Header: http.Header{"Prefer": {"wait=2"}}})
		})
		every(8*time.Second, func(n int) {
			d.send(u, apitest.Request{Method: "POST", Path: "/api/v2/auth/refresh", Header: key("refresh", n)})
		})
		every(8*time.Second, func(n int) { d.submit(u, "/api/v2/separate", fmt.Sprint(n)) })
		every(8*time.Second, func(n int) { d.submit(u, "/api/v2/render", fmt.Sprint(n)) })
	}
	return sync.OnceFunc(func() { close(done); clients.Wait() })
}

func key(of string, n int) http.Header {
	return http.Header{"Idempotency-Key": {fmt.Sprintf("%s-%d", of, n)}}
}

// submit submits a job once, and returns its id if it was accepted.
func (d *upgradeDrill) submit(u *apitest.User, path, serial string) string {
	form := apitest.SeparationForm(d.song)
	if path == "/api/v2/render" {
		film := apitest.M{"segments": []apitest.M{apitest.Segment("video_0", 0, 2*time.Second)}}
		form = apitest.RenderForm(d.T, film, apitest.File("video_0", d.clip))
	}
	res := d.send(u, apitest.Request{Method: "POST", Path: path, Form: form, Header: http.Header{"Idempotency-Key": {path + serial}}})
	if res == nil || res.Status >= 300 {
		return ""
	}
	var job struct{ JobID string }
	res.JSON(&job)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.accepted[job.JobID] = u
	return job.JobID
}

// send sends a request and records its outcome.
func (d *upgradeDrill) send(u *apitest.User, req apitest.Request) *apitest.Response {
	out := request{name: cmp.Or(req.Method, "GET") + " " + req.Path, began: time.Now()}
	req.Token = u.Token
	// A reload of nginx closes idle connections, and so might one on which a request is being sent. Clients repeat
	// such a request under its key.
	if req.Header = req.Header.Clone(); req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Connection", "close")
	res, err := u.TryDo(d.T, req)
	out.err = err
	if err == nil {
		out.status = res.Status
		if res.Status >= 500 && (res.Status != 503 || res.Header.Get("Retry-After") == "") {
			out.err = fmt.Errorf("not the front's 503: %s", res.Body)
		}
		if res.Status >= 500 {
			out.body = string(res.Body)
		}
		if res.Status >= 400 && res.Status < 500 {
			d.Errorf("%s: %d %s", out.name, res.Status, res.Body)
		}
	}
	out.ended = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, out)
	return res
}

// during runs a fault under load. The test fails for each failed request that excused does not accept. It passes the
// time that fault returned to excused.
func (d *upgradeDrill) during(name string, fault func() time.Time, excused func(at time.Time, r request) error) {
	d.mu.Lock()
	d.requests = nil
	d.mu.Unlock()
	at := fault()
	time.Sleep(8 * time.Second) // the load goes on
	d.mu.Lock()
	defer d.mu.Unlock()
	failed, longest := 0, time.Duration(0)
	for _, r := range d.requests {
		if !strings.HasSuffix(r.name, "/status") { // which waits
			longest = max(longest, r.ended.Sub(r.began))
		}
		if !r.failed() {
			continue
		}
		failed++
		why := excused(at, r)
		if r.err != nil {
			why = r.err
		}
		if why != nil {
			d.Errorf("%s: %s failed with %d %s, from %v to %v of the fault: %v", name, r.name, r.status, r.body,
				r.began.Sub(at).Round(time.Millisecond), r.ended.Sub(at).Round(time.Millisecond), why)
		}
	}
	d.Logf("%s: %d of %d requests failed, the longest took %v", name, failed, len(d.requests), longest.Round(time.Millisecond))
}

// restartByHand restarts one replica after the other, as systemctl restart does.
func (d *upgradeDrill) restartByHand() time.Time {
	began := time.Now()
	for i := range 2 {
		d.s.Replica(i).Stop(d.T)
		d.s.Replica(i).Restart(d.T)
	}
	return began
}

// rollingRestart runs rolling-restart.sh with a docker command that restarts the replicas of the test and reloads its
// nginx.
func (d *upgradeDrill) rollingRestart() time.Time {
	began := time.Now()
	dir := d.TempDir()
	docker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		args, err := io.ReadAll(r.Body)
		if err == nil {
			err = d.docker(strings.TrimPrefix(string(args), "compose "), dir)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	defer docker.Close()
	for name, text := range map[string]string{
		"rolling-restart.sh":  d.shellFile("../../deploy/rolling-restart.sh"),
		"nginx/replicas.conf": d.front.read("replicas.conf"),
		"bin/docker":          "#!/bin/sh\nexec curl -sS --fail-with-body --data-binary \"$*\" " + docker.URL + "\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			d.Fatal(err)
		}
	}
	cmd := exec.CommandContext(d.Context(), filepath.Join(dir, "rolling-restart.sh"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		d.Fatalf("rolling-restart.sh: %v\n%s", err, out)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "nginx/replicas.conf")); err != nil || string(got) != d.front.read("replicas.conf") {
		d.Errorf("rolling-restart.sh leaves replicas.conf changed: %v\n%s", err, got)
	}
	return began
}

func (d *upgradeDrill) shellFile(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		d.Fatal(err)
	}
	return string(text)
}

// docker does what a docker compose command of rolling-restart.sh means for the test.
func (d *upgradeDrill) docker(args, dir string) error {
	if service, found := strings.CutPrefix(args, "up -d --no-deps --wait "); found {
		var i int
		if _, err := fmt.Sscanf(service, "cutroom-%d", &i); err != nil {
			return err
		}
		d.s.Replica(i - 1).Stop(d.T)
		d.s.Replica(i - 1).Restart(d.T)
		return nil
	}
	switch args {
	case "build cutroom-1", "run --rm -T migrate":
		return nil
	case "exec -T front nginx -t -q":
		text, err := os.ReadFile(filepath.Join(dir, "nginx/replicas.conf"))
		if err != nil {
			return err
		}
		d.front.useReplicas(string(text))
		return d.front.nginx("-t", "-q").Run()
	case "exec -T front nginx -s reload":
		return d.front.cmd.Process.Signal(syscall.SIGHUP)
	}
	return fmt.Errorf("unknown command: docker compose %s", args)
}

// served counts the requests that a replica has answered.
func (d *upgradeDrill) served(replica int) int {
	return strings.Count(d.s.Replica(replica).Logs(), `"msg":"request"`)
}

func (d *upgradeDrill) signal(replica int, sig syscall.Signal) {
	if err := syscall.Kill(d.s.PID(replica), sig); err != nil {
		d.Fatal(err)
	}
}

// judge waits for all accepted jobs. A kill fails only a separation that was being sent to the provider.
func (d *upgradeDrill) judge() {
	films, separations, failed := 0, 0, 0
	for id, u := range d.accepted {
		var job struct{ Status, ErrorCode string }
		apitest.Eventually(d.T, 5*time.Minute, func() bool {
			path := "/api/v2/render/" + id + "/status"
			if strings.HasPrefix(id, "sep-") {
				path = "/api/v2/separate/" + id
			}
			u.Get(d.T, path).Expect(200).JSON(&job)
			return job.Status == "COMPLETED" || job.Status == "READY" || job.Status == "FAILED"
		}, func() string { return id + " is " + job.Status })
		switch {
		case job.Status == "COMPLETED":
			films++
		case job.Status == "READY":
			separations++
		case strings.HasPrefix(id, "sep-") && job.ErrorCode == "interrupted":
			failed++
		default:
			d.Errorf("%s failed: %s", id, job.ErrorCode)
		}
	}
	d.Logf("%d films, %d separations, %d separations failed during their submission to the provider", films, separations, failed)
}
