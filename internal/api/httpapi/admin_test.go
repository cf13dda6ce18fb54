// The admin endpoints: who may read them, ranges of days, pages and bodies, and the files and headers of the admin app.

package httpapi_test

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/api/httpapi"
	"cutroom/internal/base/db"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/admin"
	"cutroom/internal/domain/credit"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/upstream/identity"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/quota"
)

// adminServer is the API with its own database, the reports and the web app, and without anything they do not need.
type adminServer struct {
	*httptest.Server
	t      *testing.T
	db     *db.DB
	tokens *account.Tokens
	admin  string // an access token

	failing atomic.Bool // the test expects internal errors
}

const slug = "Back_office-1"

func startAdmin(t *testing.T) *adminServer {
	t.Helper()
	d := dbtest.SQLite(t)
	s := &adminServer{t: t, db: d, tokens: account.NewTokens(strings.Repeat("k", 32), time.Hour)}
	quiet := slog.New(slog.DiscardHandler)
	ledger := credit.New(credit.Options{DB: d, Log: quiet})
	provider := httptest.NewServer(http.HandlerFunc(authorize))
	t.Cleanup(provider.Close)
	s.Server = httptest.NewServer(httpapi.New(httpapi.Options{
		DB: d,
		Accounts: account.New(account.Options{DB: d, Tokens: s.tokens, Log: quiet, Credits: ledger,
			Providers: map[string]account.IdentityVerifier{account.ProviderA: staffProvider{}}}),
		Admin:     admin.New(d),
		Quota:     quota.New(quota.Usage{WaitingJobs: 5}, "2", "3"),
		AdminSlug: slug, AdminClientID: "web.example", AdminAuthorizeURL: provider.URL + "/authorize",
		Observe: func(string, string, int, float64) {},
		Log:     slog.New(alarm{t, &s.failing}.handler()),
	}))
	t.Cleanup(s.Close)
	s.exec(`INSERT INTO users (id, provider, provider_sub, role, created_at, last_active_at)
		VALUES ($1, 'provider_a', 'admin', 'admin', 1, 1)`, adminID)
	s.admin = s.token(adminID, account.RoleAdmin)
	return s
}

// staffProvider is provider_a; everybody who signs in is the one admin.
type staffProvider struct{}

func (staffProvider) Verify(context.Context, string) (identity.Claims, error) {
	return identity.Claims{Subject: "admin", Email: "admin@mail.example"}, nil
}

// authorize is the provider's page. It redirects valid requests straight back.
func authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != "web.example" || q.Get("response_type") != "id_token" || q.Get("nonce") == "" {
		http.Error(w, "no such client", http.StatusBadRequest)
		return
	}
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"nonce":"` + q.Get("nonce") + `"}`))
	answer := url.Values{"id_token": {"e30." + claims + ".x"}, "state": {q.Get("state")}}
	http.Redirect(w, r, q.Get("redirect_uri")+"#"+answer.Encode(), http.StatusFound)
}

// adminID is the admin who reads the reports.
const adminID = "0190b6f2-7e0a-7cc1-8f5e-00000000ad11"

func (s *adminServer) token(userID, role string) string {
	s.t.Helper()
	token, _, err := s.tokens.Issue(account.Principal{UserID: userID, Role: role})
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// get answers without following redirects or undoing compression.
func (s *adminServer) get(path string, header ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer, string(body)
}

// report gets an admin endpoint as an admin.
func (s *adminServer) report(path string) (int, string) {
	s.t.Helper()
	answer, body := s.get("/api/v2/admin"+path, "Authorization", "Bearer "+s.admin)
	return answer.StatusCode, body
}

var adminPaths = []string{
	"/overview", "/stats/daily", "/users", "/jobs/failed", "/stats/external-calls", "/stats/duration-histogram", "/jobs/active",
	"/stats/signups", "/revenue", "/revenue/daily", "/jobs/status-breakdown", "/users/" + uuid.NewString() + "/ledger",
	"/users/" + uuid.NewString() + "/purchases", "/users/" + uuid.NewString() + "/refusals", "/users/" + uuid.NewString() + "/jobs",
	"/users/" + uuid.NewString() + "/usage",
}

func TestAdminNeedsTheAdminRole(t *testing.T) {
	s := startAdmin(t)
	demoted := uuid.NewString()
	s.exec(`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ($1, 'provider_a', 's', 1, 1)`, demoted)
	for _, path := range adminPaths {
		for who, token := range map[string]string{"no admin's token": s.token(adminID, account.RoleUser),
			"a former admin's": s.token(demoted, account.RoleAdmin), "a deleted admin's": s.token(uuid.NewString(), account.RoleAdmin)} {
			answer, body := s.get("/api/v2/admin"+path, "Authorization", "Bearer "+token)
			if answer.StatusCode != http.StatusForbidden || strings.TrimSpace(body) != adminRequired {
				t.Errorf("%s with %s: %d %s", path, who, answer.StatusCode, body)
			}
		}
	}
}

func TestAdminDateRange(t *testing.T) {
	s := startAdmin(t)
	today := time.Now().UTC()
	date := func(days int) string { return today.AddDate(0, 0, days).Format(time.DateOnly) }
	for _, c := range []struct{ query, want string }{
		{"", date(-29) + ".." + date(0)},
		{"?from=" + date(-2), date(-2) + ".." + date(0)},
		{"?to=2026-03-01", "2026-01-30..2026-02-28"},
		{"?from=2026-01-01&to=2026-01-02", "2026-01-01..2026-01-01"},
		{"?from=2024-02-28&to=2024-05-28", "2024-02-28..2024-05-27"}, // 90 days
		{"?from=2024-02-28&to=2024-05-29", "range_too_wide"},
		{"?from=" + date(-90), "range_too_wide"},
		{"?from=2026-01-02&to=2026-01-02", "from_must_be_before_to"},
		{"?from=" + date(1), "from_must_be_before_to"},
		{"?from=&to=2026-01-02", "invalid_from_date"},
		{"?from=2026-1-2", "invalid_from_date"},
		{"?from=2026-02-30", "invalid_from_date"},
		{"?from=2026-01-01&to=yesterday", "invalid_to_date"},
		{"?to=", "invalid_to_date"},
		{"?from=2026-01-01&from=2026-01-02", "invalid_from_date"},
	} {
		for _, path := range []string{"/stats/daily", "/stats/external-calls", "/stats/signups", "/revenue/daily"} {
			status, body := s.report(path + c.query)
			got := strings.TrimSpace(body)
			var rows []struct{ Date string }
			if status == http.StatusOK {
				if err := json.Unmarshal([]byte(body), &rows); err != nil || len(rows) == 0 {
					t.Fatalf("%s%s: %v in %s", path, c.query, err, body)
				}
				got = rows[0].Date + ".." + rows[len(rows)-1].Date
			} else if status == http.StatusBadRequest {
				got = strings.TrimSuffix(strings.TrimPrefix(got, `{"error":"`), `"}`)
			}
			if got != c.want && time.Now().UTC().Day() != today.Day() {
				TestAdminDateRange(t) // repeat with the new day
				return
			}
			if got != c.want {
				t.Errorf("%s%s: %d %s, want %s", path, c.query, status, got, c.want)
			}
		}
	}
}

func TestAdminPaging(t *testing.T) {
	s := startAdmin(t)
	user := uuid.NewString()
	s.exec(`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ($1, 'provider_a', 's', 1, 1)`, user)
	for query, want := range map[string]string{
		"?limit=1&offset=0": "", "?limit=200": "", "?offset=9223372036854775807": "", "": "",
		"?limit=0": "invalid_limit", "?limit=201": "invalid_limit", "?limit=-1": "invalid_limit", "?limit=": "invalid_limit",
		"?limit=1.5": "invalid_limit", "?limit=x&offset=x": "invalid_limit", "?limit=99999999999999999999": "invalid_limit",
		"?offset=-1": "invalid_offset", "?offset=": "invalid_offset", "?offset=99999999999999999999": "invalid_offset",
	} {
		for _, path := range []string{"/users", "/users/" + user + "/jobs", "/users/" + user + "/ledger", "/users/" + user + "/purchases", "/users/" + user + "/refusals"} {
			status, body := s.report(path + query)
			if want == "" && status != http.StatusOK || want != "" && (status != http.StatusBadRequest || !strings.Contains(body, `"error":"`+want+`"`)) {
				t.Errorf("%s%s: %d %s, want %q", path, query, status, body, want)
			}
		}
	}
	for id, want := range map[string]string{
		"me": "invalid_user_id", "{" + user + "}": "invalid_user_id", strings.ReplaceAll(user, "-", ""): "invalid_user_id",
		"urn:uuid:" + user: "invalid_user_id", uuid.NewString(): "User not found", strings.ToUpper(user): "",
	} {
		for _, list := range []string{"/jobs", "/usage"} {
			status, body := s.report("/users/" + id + list)
			if want == "" && status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s of %s: %d %s, want %q", list, id, status, body, want)
			}
		}
	}
}

func (s *adminServer) exec(query string, args ...any) {
	s.t.Helper()
	dbtest.Exec(s.t, s.db, query, args...)
}

func (s *adminServer) job(id, user, state string, createdMs int64, sourceMs int) {
	s.t.Helper()
	jobtest.Insert(s.t, s.db, id, user, state, createdMs, int64(sourceMs))
}

// call records a call of the separation provider.
func (s *adminServer) call(c separator.Call, at time.Time) {
	s.t.Helper()
	if err := admin.WriteCall(s.t.Context(), s.db, c, at); err != nil {
		s.t.Fatal(err)
	}
}

// Every body, with and without data, matches openapi.yaml.
func TestAdminBodiesFollowTheDocument(t *testing.T) {
	s := startAdmin(t)
	user := uuid.NewString()
	check := func(path string) string {
		t.Helper()
		answer, body := s.get("/api/v2/admin"+path, "Authorization", "Bearer "+s.admin)
		if err := apitest.CheckAnswer(answer.Request, answer.StatusCode, answer.Header, []byte(body)); err != nil {
			t.Errorf("%s: %v\n%s", path, err, body)
		}
		return strings.TrimSpace(body)
	}
	paths := append(adminPaths[:len(adminPaths)-5:len(adminPaths)-5], "/users/"+user+"/usage", "/users/"+user+"/jobs", "/users/"+user+"/ledger", "/users/"+user+"/purchases", "/users/"+user+"/refusals")
	for _, path := range paths {
		check(path)
	}

	s.exec(`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at)
		VALUES ($1, 'provider_b', 's', 1767225600007, 1767225600100)`, user)
	s.job("rnd-1", user, "PROCESSING", 1767225600000, 1500)
	s.exec(`UPDATE jobs SET progress = 40`)
	s.job("sep-1", user, "FAILED", 1767225600001, 2500)
	s.exec(`UPDATE jobs SET finished_at = 1767225601000, error = 'Provider service unavailable' WHERE id = 'sep-1'`)
	s.call(separator.Call{Endpoint: "progress", Latency: 42 * time.Millisecond}, time.UnixMilli(1767225600000))
	s.exec(`INSERT INTO purchases (platform, transaction_hash, product_id, credits, buyer_id, order_id, owed, created_at)
		VALUES ('platform_b', 'h', 'p', 50, $1, '2000', 4, 1767225600000)`, user)
	s.exec(`INSERT INTO receipt_refusals (user_id, platform, order_id, product_id, reason, attempts, created_at)
		VALUES ($1, 'platform_a', 'GPA.1', 'p', 'cancelled', 2, 1767225600000)`, user)
	s.exec(`INSERT INTO credit_ledger (ref_id, user_id, kind, amount, created_at) VALUES ('platform_b-2000', $1, 'purchase', 50, 1767225600000)`, user)
	for _, path := range paths {
		check(path)
	}
	day := "?from=2026-01-01&to=2026-01-02"
	for path, want := range map[string]string{
		"/overview": `{"totalUsers":2,"totalRenders":1,"totalSeparations":1,"totalJobs":2,"totalSourceDurationMs":4000,"activeUsersLast7Days":0}`,
		"/users/" + user + "/jobs": `{"jobs":[{"jobId":"sep-1","jobType":"separation","status":"FAILED","sourceDurationMs":2500,` +
			`"createdAt":"2026-01-01T00:00:00.001Z","finishedAt":"2026-01-01T00:00:01.000Z","error":"Provider service unavailable"},` +
			`{"jobId":"rnd-1","jobType":"render","status":"PROCESSING","sourceDurationMs":1500,"createdAt":"2026-01-01T00:00:00.000Z",` +
			`"finishedAt":null,"error":null}],"total":2}`,
		"/users/" + user + "/purchases": `{"purchases":[{"platform":"platform_b","orderId":"2000","productId":"p","credits":50,"owed":4,` +
			`"createdAt":"2026-01-01T00:00:00.000Z","reversedAt":null,"bySupport":false,"refunded":0,"test":false}],"total":1}`,
		"/users/" + user + "/usage": `{"storedBytes":3,"maxStoredBytes":null,"waitingJobs":2,"maxWaitingJobs":5}`,
		"/stats/daily" + day:        `[{"date":"2026-01-01","renderCount":1,"separationCount":1,"totalSourceDurationMs":4000}]`,
		"/stats/signups" + day:      `[{"date":"2026-01-01","providerACount":0,"providerBCount":1}]`,
		"/revenue/daily" + day:      `[{"date":"2026-01-01","platformACredits":0,"platformBCredits":50,"purchaseCount":1}]`,
		"/revenue": `{"payingUsers":1,"purchaseCount":1,"creditsSold":50,"purchaseCount30d":0,"creditsSold30d":0,` +
			`"platformAPurchaseCount":0,"platformBPurchaseCount":1,"platformACredits":0,"platformBCredits":50,"adminGrantedCredits":0}`,
	} {
		if got := check(path); got != want {
			t.Errorf("%s:\n got %s\nwant %s", path, got, want)
		}
	}
}

func TestAdminAppIsServedWithItsHeaders(t *testing.T) {
	s := startAdmin(t)
	answer, _ := s.get("/" + slug)
	if answer.StatusCode != http.StatusFound || answer.Header.Get("Location") != "/"+slug+"/" {
		t.Errorf("without the slash: %d to %q", answer.StatusCode, answer.Header.Get("Location"))
	}
	answer, index := s.get("/" + slug + "/")
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
		answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("page: %d %v", answer.StatusCode, answer.Header)
	}
	policy := answer.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("policy %q lacks %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q lets inline code run", policy)
	}

	links := regexp.MustCompile(`(?:src|href)="\./(assets/[^"]+)"`).FindAllStringSubmatch(index, -1)
	if len(links) < 2 {
		t.Fatalf("the page links %d files of its own:\n%s", len(links), index)
	}
	types := map[string]string{".js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
	for _, link := range links {
		path := "/" + slug + "/" + link[1]
		answer, plain := s.get(path)
		h := answer.Header
		if answer.StatusCode != http.StatusOK || h.Get("Content-Type") != types[path[len(path)-3:]] || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Cache-Control") != "public, max-age=31536000, immutable" || h.Get("Vary") == "" {
			t.Errorf("%s: %d %v", path, answer.StatusCode, h)
		}
		zipped, body := s.get(path, "Accept-Encoding", "br, gzip")
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got, err := io.ReadAll(z); err != nil || string(got) != plain || zipped.Header.Get("ETag") == h.Get("ETag") {
			t.Errorf("%s: the compressed file differs (%v), or its ETag %s does not", path, err, h.Get("ETag"))
		}
		if again, _ := s.get(path, "If-None-Match", h.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: %d", path, again.StatusCode)
		}
	}
}

func TestAdminAppAnswersOtherAddresses(t *testing.T) {
	s := startAdmin(t)
	for path, want := range map[string]int{
		"/" + slug + "/users/deeper":      http.StatusFound,
		"/" + slug + "/assets/missing.js": http.StatusNotFound,
		"/" + slug + "/../../go.mod":      http.StatusNotFound,
		"/" + slug + "/%2e%2e/page.go":    http.StatusNotFound,
		"/" + strings.ToLower(slug) + "/": http.StatusNotFound,
		"/" + slug + "x/":                 http.StatusNotFound,
		"/assets/index.js":                http.StatusNotFound,
		"//" + slug + "/":                 http.StatusNotFound,
		"/" + slug + "//":                 http.StatusNotFound,
		"/" + slug + "/../healthz":        http.StatusNotFound,
	} {
		answer, body := s.get(path)
		if answer.StatusCode != want || want == http.StatusFound != (answer.Header.Get("Location") == "/"+slug+"/") ||
			want == http.StatusNotFound && strings.TrimSpace(body) != notFound {
			t.Errorf("%s: %d %v %s", path, answer.StatusCode, answer.Header, body)
		}
	}
}
