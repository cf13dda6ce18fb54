// Package apitest runs the real service for black-box tests.
//
// Start builds the binary once per test process and runs `cutroom serve` as a child process with its own database,
// storage folder and vendor stand-ins. Tests send it HTTP requests. The package checks every exchange against
// openapi.yaml, and searches responses and logs for leaks.
//
// The environment of `go test` chooses the shape of the service, so one suite runs in every shape:
//
//	CUTROOM_TEST_DB=sqlite|postgres   default sqlite
//	CUTROOM_TEST_BUCKET=1             with an object store
//	CUTROOM_TEST_REPLICAS=2           that many processes behind a round-robin front (postgres only)
//	CUTROOM_TEST_SHAPE_ONLY=1         skip the tests whose result is the same in every shape
//	CUTROOM_TEST_S3=http://ACCESS:SECRET@HOST:PORT/BUCKET?region=REGION   a real S3 server instead of the stand-in
//	CUTROOM_BIN=path                  a binary to test instead of building one, with the sandbox's beside it
//
// It depends on the contract of the service, not on its code.
package apitest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/base/db"
	standin "cutroom/internal/sandbox/bucket"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/process"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/logtest"
	"cutroom/internal/testkit/relaytest"
)

// Deadlines for starting and stopping the service. They are generous because the machine may be busy.
const (
	startDeadline = 2 * time.Minute
	stopDeadline  = 2 * time.Minute
)

// Server is the service under test: one process, or several behind a front. Its methods may be called from parallel
// subtests, except those that start and stop processes.
type Server struct {
	URL     string // without a trailing slash
	World   *World // the vendors
	Dir     string // working directory of the service
	Storage string // STORAGE_PATH, shared by all replicas

	ahead    time.Duration // see ClockAhead
	env      map[string]string
	replicas []*replica
	client   *http.Client
	secrets  []string
}

// replica is one process of the service over its restarts.
type replica struct {
	url  string
	env  map[string]string
	log  *logtest.Buffer
	proc *process.Child // nil before the first start
}

type options struct {
	env      map[string]string
	replicas int
	roles    []string // of each replica; nil means all roles
	bucket   bool
	standIn  bool // the bucket is World.Bucket
	unready  bool
	ahead    time.Duration
	relays   map[string]**relaytest.Relay
}

// Option changes what Start runs.
type Option func(*options)

// Env sets a configuration key; an empty value leaves it blank.
func Env(key, value string) Option { return func(o *options) { o.env[key] = value } }

// Bucket turns the object store on or off, whatever CUTROOM_TEST_BUCKET says.
func Bucket(on bool) Option { return func(o *options) { o.bucket = on } }

// StandInBucket gives the service World.Bucket, into which a test may inject faults, whatever CUTROOM_TEST_S3 says.
func StandInBucket() Option { return func(o *options) { o.bucket, o.standIn = true, true } }

// Unready keeps the service from claiming jobs, so that all of them wait: World.Bucket refuses the objects that the
// replicas write to find out whether it accepts files.
func Unready() Option { return func(o *options) { o.bucket, o.standIn, o.unready = true, true, true } }

// ClockAhead runs the service with a clock that is ahead by d, or behind if d is negative. Only the sandbox's binary
// can do that. Times that libraries and ffmpeg read themselves, such as in presigned addresses, stay right.
func ClockAhead(d time.Duration) Option { return func(o *options) { o.ahead = d } }

// Relay sets *r to a relay between the service and the server whose address the key holds.
func Relay(r **relaytest.Relay, key string) Option { return func(o *options) { o.relays[key] = r } }

// Replicas runs n processes behind a round-robin front. Two or more need PostgreSQL.
func Replicas(n int) Option { return func(o *options) { o.replicas = n } }

// Roles runs a replica for each list of roles. They share only the bucket and the database, which must be PostgreSQL.
// The first list must contain api.
func Roles(lists ...string) Option {
	return func(o *options) { o.roles, o.replicas, o.bucket = lists, len(lists), true }
}

// Postgres reports whether the tests use PostgreSQL.
func Postgres() bool { return os.Getenv("CUTROOM_TEST_DB") == "postgres" }

// Replication returns the number of processes that a service has in this run, at least 1.
func Replication() int {
	n, _ := strconv.Atoi(os.Getenv("CUTROOM_TEST_REPLICAS"))
	return max(1, n)
}

// Start runs the service until the test ends. It ends the test if the service does not start, and fails it if the
// service does not stop cleanly or its log contains a secret or a panic.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := start(t, opts)
	t.Cleanup(func() {
		s.shutdown(t)
		if t.Failed() {
			t.Logf("log of the service:\n%s", tail(s.Logs()))
		}
	})
	return s
}

func start(t testing.TB, opts []Option) *Server {
	o := options{env: map[string]string{}, relays: map[string]**relaytest.Relay{}, replicas: Replication(),
		bucket: os.Getenv("CUTROOM_TEST_BUCKET") == "1"}
	for _, opt := range opts {
		opt(&o)
	}
	if o.replicas > 1 && !Postgres() {
		t.Fatalf("%d replicas need CUTROOM_TEST_DB=postgres", o.replicas)
	}
	dir := t.TempDir()
	s := &Server{Dir: dir, Storage: filepath.Join(dir, "storage"), client: newClient(), ahead: o.ahead}
	t.Cleanup(s.client.CloseIdleConnections)
	var bucket map[string]string // a real one
	if o.bucket && !o.standIn {
		bucket = must(RealBucket(t))(t)
	}
	s.World = startWorld(t, o.bucket && bucket == nil)
	if o.unready {
		s.World.FailBucket(t, fake.Rule{Step: standin.StepPut, Path: "/ready/", Kind: fake.KindStatus, Status: 503})
	}
	s.env = s.World.Env()
	// The tests use the production defaults, not the sandbox's.
	s.env["ADMIN_SLUG"], s.env["ENABLE_API_DOCS"], s.env["ENABLE_TESTDATA_MOCK"] = "", "", ""
	s.env["STORAGE_PATH"], s.env["PROVIDER_POLL_INTERVAL_MS"] = s.Storage, "1000"
	maps.Copy(s.env, bucket)
	s.database(t)
	maps.Copy(s.env, o.env)
	s.relay(t, o.relays)
	for _, key := range []string{"AUTH_JWT_SECRET", "SEPARATION_SIGNING_SECRET", "SEPARATION_PROVIDER_API_KEY",
		"DB_PASSWORD", "OBJECT_STORE_SECRET_ACCESS_KEY", "IAP_PLATFORM_B_PRIVATE_KEY",
		"WEBHOOK_SECRET", "PUSH_PLATFORM_B_KEY"} {
		if v := s.env[key]; len(v) >= 8 {
			s.secrets = append(s.secrets, v)
		}
	}
	s.makeReplicas(t, o)
	t.Cleanup(s.killAll) // for those that run if another one does not start
	s.Restart(t)
	return s
}

// newClient returns a client that follows no redirects. It keeps few connections, so processes stop quickly.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// database configures a new database of the kind under test.
func (s *Server) database(t testing.TB) {
	if Postgres() {
		s.env["DATABASE_URL"], s.env["DB_USER"], s.env["DB_PASSWORD"] = dbtest.URL(t)
		return
	}
	path := filepath.Join(s.Dir, "cutroom.db")
	dbtest.SQLiteFile(t, path)
	s.env["DATABASE_URL"] = "sqlite://" + path
	s.env["DB_USER"], s.env["DB_PASSWORD"] = "cutroom", "apitest-db-password"
}

// relay puts relays before servers of the environment.
func (s *Server) relay(t testing.TB, relays map[string]**relaytest.Relay) {
	for key, r := range relays {
		u := must(url.Parse(s.env[key]))(t)
		if u.Host == "" { // not set, or the embedded database
			continue
		}
		*r = relaytest.New(t, u.Host)
		u.Host = (*r).Addr
		s.env[key] = u.String()
	}
}

// makeReplicas chooses the addresses. If there are several replicas, it starts a round-robin front.
func (s *Server) makeReplicas(t testing.TB, o options) {
	var targets []*url.URL
	for i := range o.replicas {
		port := must(process.FreePort())(t)
		u := &url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
		env := maps.Clone(s.env)
		env["PORT"] = port
		serves := true
		if o.roles != nil {
			ops := "127.0.0.1:" + must(process.FreePort())(t)
			env["ROLES"], env["STORAGE_PATH"], env["OPS_ADDR"] = o.roles[i], s.Storage+strconv.Itoa(i), ops
			if serves = strings.Contains(o.roles[i], "api"); !serves {
				u.Host = ops
			}
		}
		if serves {
			targets = append(targets, u)
		}
		s.replicas = append(s.replicas, &replica{url: u.String(), env: env, log: &logtest.Buffer{}})
	}
	s.URL = targets[0].String()
	if len(targets) > 1 {
		front := httptest.NewServer(roundRobin(targets))
		t.Cleanup(front.Close)
		s.URL = front.URL
	}
	for _, r := range s.replicas {
		if _, set := r.env["PUBLIC_BASE_URL"]; !set {
			r.env["PUBLIC_BASE_URL"] = s.URL
		}
	}
}

// roundRobin passes each request to the next target. It leaves X-Forwarded-For as the client sent it, so the hop count
// is the same in every shape. If a target closes its connection, the front closes the client's.
func roundRobin(targets []*url.URL) http.Handler {
	var turn atomic.Uint64
	return &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(targets[int(turn.Add(1))%len(targets)])
		p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
		p.Out.Host = p.In.Host
	}, ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }}
}

// start starts the process and waits until it answers.
func (r *replica) start(t testing.TB, s *Server) {
	t.Helper()
	binary, args := must(Binary())(t), []string{"serve"}
	if s.ahead != 0 {
		binary, args = filepath.Join(filepath.Dir(binary), "sandbox"), append(args, "-ahead", s.ahead.String())
	}
	r.proc = must(process.Start(binary, s.Dir, process.Environ(r.env, needed), r.log, args...))(t)
	ctx, cancel := context.WithTimeout(context.Background(), startDeadline)
	defer cancel()
	if err := r.proc.Healthy(ctx, s.client, r.url); err != nil {
		t.Fatalf("%v:\n%s", err, tail(r.log.String()))
	}
}

func (r *replica) running() bool { return r.proc != nil && r.proc.Running() }

// Kill9 sends SIGKILL to all processes of the service, including ffmpeg.
func (s *Server) Kill9(t testing.TB) {
	t.Helper()
	s.killAll()
	s.client.CloseIdleConnections()
}

func (s *Server) killAll() {
	for _, r := range s.replicas {
		if r.running() {
			r.proc.Kill()
		}
	}
}

// KillReplica is Kill9 for one of several processes.
func (s *Server) KillReplica(t testing.TB, i int) { s.Replica(i).Kill9(t) }

// Stop ends all processes with SIGTERM and fails the test unless each exits with status 0 in time.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.StopBy(t, syscall.SIGTERM)
}

// StopBy is Stop with another signal.
func (s *Server) StopBy(t testing.TB, sig syscall.Signal) {
	t.Helper()
	s.client.CloseIdleConnections()
	var wg sync.WaitGroup
	for i, r := range s.replicas {
		if !r.running() {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), stopDeadline)
			defer cancel()
			if status, err := r.proc.Stop(ctx, sig); err != nil {
				t.Errorf("replica %d: %v", i, err)
			} else if status != 0 {
				t.Errorf("replica %d: exit status %d after %v, want 0", i, status, sig)
			}
		})
	}
	wg.Wait()
}

// Restart starts the stopped processes again with the same configuration and storage, and waits until they respond.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	for _, r := range s.replicas {
		if !r.running() {
			r.start(t, s)
		}
	}
}

// Config returns the value of a configuration key.
func (s *Server) Config(key string) string { return s.replicas[0].env[key] }

// HasBucket reports whether the service has an object store.
func (s *Server) HasBucket() bool { return s.Config("OBJECT_STORE_BUCKET") != "" }

// SetEnv changes a configuration key of all replicas. It takes effect at their next start.
func (s *Server) SetEnv(key, value string) {
	for _, r := range s.replicas {
		r.env[key] = value
	}
}

// Command runs another command of the binary, such as `admin grant`, with the service's configuration, and returns its
// exit status and output.
func (s *Server) Command(t testing.TB, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	status, out, err := Run(ctx, s.Dir, s.replicas[0].env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return status, out
}

// Database opens the service's database until the test ends.
func (s *Server) Database(t testing.TB) *db.DB {
	t.Helper()
	d := must(db.Open(t.Context(), db.Options{URL: s.Config("DATABASE_URL"), User: s.Config("DB_USER"),
		Password: s.Config("DB_PASSWORD"), MaxPool: 4}))(t)
	t.Cleanup(func() { d.Close() })
	return d
}

// Exited returns the exit status of a process that has ended, or -1 if a signal ended it.
func (s *Server) Exited(replica int) (status int, ok bool) {
	if s.replicas[replica].running() {
		return 0, false
	}
	return s.replicas[replica].proc.Status(), true
}

// PID returns the process id of a running replica.
func (s *Server) PID(replica int) int { return s.replicas[replica].proc.PID() }

// Ops sends a GET to the operators' port of the first replica. Status 0 means no response.
func (s *Server) Ops(path string) (status int, body string) {
	res, err := s.client.Get("http://" + s.Config("OPS_ADDR") + path)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}

// Logs returns everything that the replicas have printed so far.
func (s *Server) Logs() string {
	var b strings.Builder
	for i, r := range s.replicas {
		if len(s.replicas) > 1 {
			fmt.Fprintf(&b, "--- replica %d\n", i)
		}
		b.WriteString(r.log.String())
	}
	return b.String()
}

// shutdown stops the service and checks its log.
func (s *Server) shutdown(t testing.TB) {
	s.Stop(t)
	log := s.Logs()
	for _, secret := range s.secrets {
		if strings.Contains(log, secret) {
			t.Errorf("the log contains the secret %.6s...", secret)
		}
	}
	for _, bad := range []string{"panic:", "DATA RACE"} {
		if strings.Contains(log, bad) {
			t.Errorf("the log contains %q", bad)
		}
	}
}

// checkLeaks fails the test if a response contains an upstream's text, a path of the server, SQL, a stack trace or a
// secret.
func (s *Server) checkLeaks(t testing.TB, name string, res *Response) {
	t.Helper()
	if !strings.Contains(res.Header.Get("Content-Type"), "json") {
		return
	}
	body := string(res.Body)
	forbidden := append([]string{leakMarker, s.Dir, "SQLSTATE", "goroutine ", ".go:", "ffmpeg"}, s.secrets...)
	for _, f := range forbidden {
		if strings.Contains(body, f) {
			t.Errorf("%s: the answer contains %.12q: %s", name, f, res.text())
		}
	}
}

// addresses counts the clients of a test process.
var addresses atomic.Uint32

// IP returns an unused address for X-Forwarded-For. Sign-ins are limited per address.
func (s *Server) IP() string {
	n := addresses.Add(1)
	return fmt.Sprintf("198.18.%d.%d", n>>8&0xff, n&0xff)
}

// Processes returns the number of processes.
func (s *Server) Processes() int { return len(s.replicas) }

// tail returns the end of a log.
func tail(log string) string {
	const limit = 8 << 10
	if len(log) > limit {
		return "...\n" + log[len(log)-limit:]
	}
	return log
}

// Replica returns one process of the service, bypassing the front.
func (s *Server) Replica(i int) *Server {
	r := s.At(s.replicas[i].url)
	r.replicas = s.replicas[i : i+1]
	return r
}

// At returns the service at another address, such as a front's. It shares everything else with s, and is valid as long
// as s.
func (s *Server) At(address string) *Server {
	at := *s
	at.URL = address
	return &at
}
