// The harness of this package: the whole service without a listener, between stand-ins. It checks every answer against
// openapi.yaml, and fails on an internal error in the log.

package httpapi_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/app"
	"cutroom/internal/base/db"
	"cutroom/internal/config"
	"cutroom/internal/domain/account"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/identity"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/browsertest"
	"cutroom/internal/testkit/dbtest"
)

func TestMain(m *testing.M) {
	confine.Main() // separations probe uploads
	status := apitest.Main(m)
	browsertest.Close()
	os.Exit(status)
}

// harness is the whole service as composed for production, without listener and workers, between stand-ins of its
// vendors. Any internal error that it logs fails the test.
type harness struct {
	t       testing.TB
	handler http.Handler
	db      *db.DB // a second connection to the same database
	world   *sandbox.World
	tokens  *account.Tokens
	cfg     config.Config

	submitting person // see submitter
	submits    int
}

// harnessOptions changes how a harness is composed.
type harnessOptions struct {
	postgres bool
	bucket   bool
	env      map[string]string
	log      slog.Handler // default: an alarm
}

func newHarness(t testing.TB, o harnessOptions) *harness {
	t.Helper()
	dir := t.TempDir()
	world, err := sandbox.Start(sandbox.Options{DataDir: filepath.Join(dir, "world"), Fast: true, Bucket: o.bucket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Close() })
	env := world.Env()
	for key, value := range map[string]string{"PORT": "8080", "PUBLIC_BASE_URL": "https://api.example",
		"MAX_UPLOAD_FILE_SIZE_MB": "2", "MAX_SEPARATION_AUDIO_MB": "1", "ENABLE_TESTDATA_MOCK": "", "ADMIN_SLUG": ""} {
		env[key] = value
	}
	if o.postgres {
		env["DATABASE_URL"], env["DB_USER"], env["DB_PASSWORD"] = dbtest.URL(t)
	} else {
		dbtest.SQLiteFile(t, strings.TrimPrefix(env["DATABASE_URL"], "sqlite://"))
	}
	for key, value := range o.env {
		env[key] = value
	}
	r := &harness{t: t, world: world}
	if r.cfg, err = config.Load(func(key string) (string, bool) { v, ok := env[key]; return v, ok }); err != nil {
		t.Fatal(err)
	}
	if o.log == nil {
		o.log = alarm{t: t}.handler()
	}
	a, err := app.New(t.Context(), r.cfg, "test", slog.New(o.log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	r.handler = a.Handler()
	r.tokens = account.NewTokens(r.cfg.Auth.JWTSecret.Reveal(), time.Hour)
	if r.db, err = app.OpenDatabase(t.Context(), r.cfg, nil, slog.New(slog.DiscardHandler), (*db.DB).CheckSchema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	return r
}

// shared are the harnesses that tests share, by whether they use PostgreSQL.
var shared sync.Map // bool -> func() *harness

// sharedHarness returns a harness with a bucket. Each test works with users of its own.
func sharedHarness(t testing.TB, postgres bool) *harness {
	t.Helper()
	first, _ := shared.LoadOrStore(postgres, sync.OnceValue(func() *harness {
		return newHarness(apitest.Forever(t), harnessOptions{postgres: postgres, bucket: true})
	}))
	r := *first.(func() *harness)()
	r.t = t
	return &r
}

// eachDatabase runs a test with the shared harness on each database.
func eachDatabase(t *testing.T, test func(t *testing.T, r *harness)) {
	t.Run("sqlite", func(t *testing.T) { test(t, sharedHarness(t, false)) })
	t.Run("postgres", func(t *testing.T) { test(t, sharedHarness(t, true)) })
}

// onSQLite returns the harness of tests whose requests are refused before any query, or query nothing special.
func onSQLite(t testing.TB) *harness { return sharedHarness(t, false) }

// request is one request to the API. user sets its Authorization header.
type request struct {
	method, target string
	user           string // an access token
	body           string
	header         map[string]string
	remote         string // peer address, default a fresh one
}

// do sends a request directly to the handler, and checks that the answer is one that openapi.yaml describes.
func (r *harness) do(q request) *httptest.ResponseRecorder {
	req := httptest.NewRequest(q.method, "http://api.example/", strings.NewReader(q.body))
	if err := retarget(req, q.target); err != nil {
		r.t.Fatalf("%s: %v", q.target, err)
	}
	if q.body == "" {
		req.Body = http.NoBody
		req.ContentLength = 0
	}
	if q.user != "" {
		req.Header.Set("Authorization", "Bearer "+q.user)
	}
	for key, value := range q.header {
		req.Header.Set(key, value)
	}
	req.RemoteAddr = cmp.Or(q.remote, freshAddress())
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	if err := apitest.CheckAnswer(req, w.Code, w.Header(), w.Body.Bytes()); err != nil {
		r.t.Errorf("%s %.120s: %v", q.method, q.target, err)
	}
	return w
}

// retarget sets a request's path as net/http would parse it.
func retarget(req *http.Request, target string) error {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return err
	}
	req.URL, req.RequestURI = u, target
	return nil
}

// person is a signed-in user.
type person struct{ id, token string }

var people, addresses atomic.Uint32

// freshAddress returns a peer that no rate limit knows. Sign-ins are limited by address, for IPv6 by its /64.
func freshAddress() string {
	n := addresses.Add(1)
	return fmt.Sprintf("[2001:db8:%x:%x::1]:9", n>>16, n&0xffff)
}

// signIn creates a user by signing in.
func (r *harness) signIn() person {
	r.t.Helper()
	idToken, err := r.world.ProviderA.Mint(identity.Claims{Email: fmt.Sprintf("person-%d@example.test", people.Add(1))})
	if err != nil {
		r.t.Fatal(err)
	}
	w := r.do(request{method: "POST", target: "/api/v2/auth/provider_a", body: fmt.Sprintf(`{"idToken":%q}`, idToken)})
	var body struct {
		AccessToken string
		User        struct{ Sub string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusOK {
		r.t.Fatalf("sign-in: %d %s", w.Code, w.Body)
	}
	return person{body.User.Sub, body.AccessToken}
}

// submitter returns the token of a user who may submit: each may ten times a minute.
func (r *harness) submitter() string {
	r.t.Helper()
	if r.submits%9 == 0 {
		r.submitting = r.signIn()
	}
	r.submits++
	return r.submitting.token
}

// token mints an access token for any user id.
func (r *harness) token(userID, role string) string {
	r.t.Helper()
	token, _, err := r.tokens.Issue(account.Principal{UserID: userID, Role: role})
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// admin mints an access token for a new admin. The test must be able to read the harness's database.
func (r *harness) admin() string {
	r.t.Helper()
	user := r.signIn()
	if _, err := account.SetRole(r.t.Context(), r.db, user.id, account.RoleAdmin, "test"); err != nil {
		r.t.Fatal(err)
	}
	return r.token(user.id, account.RoleAdmin)
}

// ghost is a valid token of a deleted account.
func (r *harness) ghost() string { return r.token(uuid.NewString(), account.RoleUser) }

// part is one part of a form. head replaces the whole Content-Disposition.
type part struct{ name, head, text, file string }

// form makes a request with a multipart body.
func form(target, user string, parts ...part) request {
	var b strings.Builder
	for _, p := range parts {
		head := cmp.Or(p.head, fmt.Sprintf(`form-data; name=%q`, p.name))
		if p.head == "" && p.file != "" {
			head += `; filename="x.bin"`
		}
		b.WriteString("--boundary\r\nContent-Disposition: " + head + "\r\n\r\n" + p.text + p.file + "\r\n")
	}
	return request{method: "POST", target: target, user: user, body: b.String() + "--boundary--\r\n",
		header: map[string]string{"Content-Type": "multipart/form-data; boundary=boundary"}}
}

// alarm is the output of a log that fails the test if the API reports an internal error, unless the test expects one.
type alarm struct {
	t        testing.TB
	expected *atomic.Bool // nil: never
}

func (a alarm) Write(line []byte) (int, error) {
	if a.expected == nil || !a.expected.Load() {
		a.t.Errorf("failure of ours: %s", line)
	}
	return len(line), nil
}

func (a alarm) handler() slog.Handler {
	return slog.NewTextHandler(a, &slog.HandlerOptions{Level: slog.LevelError})
}
