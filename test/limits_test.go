// Rate limits by address and by user, proxies in front, and the share of connections of one address.

package test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
)

// isLimited fails the test unless the response is 429 rate_limited with a valid Retry-After.
func isLimited(t testing.TB, res *apitest.Response) {
	t.Helper()
	res.Error(429, "rate_limited")
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
		t.Errorf("Retry-After %q, want whole seconds up to 60", res.Header.Get("Retry-After"))
	}
}

// loginFrom sends a sign-in without a token through proxies.
func loginFrom(t testing.TB, s *apitest.Server, provider, forwarded string) *apitest.Response {
	t.Helper()
	return s.Do(t, apitest.Request{Method: "POST", Path: "/api/v2/auth/" + provider, Raw: `{}`,
		Header: http.Header{"X-Forwarded-For": {forwarded}}})
}

func TestLoginRateLimitIsPerAddress(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	from := func(forwarded string) *apitest.Response { t.Helper(); return loginFrom(t, s, "provider_a", forwarded) }
	for i := range 10 {
		// Both logins count, even refused ones. The last entry is the client's address.
		if i%2 == 0 {
			from("203.0.113.9, 192.0.2.1").Error(400, "missing_id_token")
			continue
		}
		loginFrom(t, s, "provider_b", "192.0.2.1").Error(400, "missing_id_token")
	}
	isLimited(t, from("192.0.2.1"))
	isLimited(t, from("10.1.1.1, 192.0.2.1"))
	from("192.0.2.1, 192.0.2.2").Error(400, "missing_id_token")
	for i := range 10 { // a client with one IPv6 address has its /64
		from(fmt.Sprintf("2001:db8:7:1:%x::1", i)).Error(400, "missing_id_token")
	}
	isLimited(t, from("2001:db8:7:1:ffff::2"))
	from("2001:db8:7:2::1").Error(400, "missing_id_token")
}

func TestTrustedProxyHops(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("RATE_LIMIT_TRUSTED_PROXY_HOPS", "1"))
	from := func(forwarded string) *apitest.Response { t.Helper(); return loginFrom(t, s, "provider_a", forwarded) }
	for i := range 10 {
		from(fmt.Sprintf("203.0.113.%d, 192.0.2.1, 198.51.100.%d", i, i)).Error(400, "missing_id_token")
	}
	isLimited(t, from("192.0.2.1, 198.51.100.77"))
	isLimited(t, from("192.0.2.1")) // with too few entries, the leftmost counts
	from("192.0.2.1, 192.0.2.2, 192.0.2.1").Error(400, "missing_id_token")
}

func TestForwardedForIsIgnoredFromStrangers(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("TRUSTED_PROXIES", "203.0.113.0/24"), apitest.Replicas(1))
	for range 10 {
		login(t, s, "provider_a", M{}).Error(400, "missing_id_token")
	}
	isLimited(t, login(t, s, "provider_a", M{})) // although each request had its own X-Forwarded-For
	t.Run("connections", func(t *testing.T) { oneAddressHasAShare(t, s) })
}

// rawHealth requests /healthz on a new connection from one of this machine's addresses. It returns the status, or 0
// without a response.
func rawHealth(t *testing.T, s *apitest.Server, from, rest string) int {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
	c, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n"+rest)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// oneAddressHasAShare opens connections until the service refuses one, and then checks that it serves other addresses.
func oneAddressHasAShare(t *testing.T, s *apitest.Server) {
	taken := 0
	for rawHealth(t, s, "127.0.0.1", "\r\n") == 200 && taken < 300 {
		taken++
	}
	if taken < 200 || taken > 256 {
		t.Errorf("one address got %d connections", taken)
	}
	if got := rawHealth(t, s, "127.0.0.2", "\r\n"); got != 200 {
		t.Errorf("/healthz from another address: %d", got)
	}
}

// An account may send a limited number of requests of each kind per minute, whatever their outcome. They count against
// no other account, and reads are not limited.
func TestRequestsAreLimitedPerUser(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	post := func(path, body string) apitest.Request { return apitest.Request{Method: "POST", Path: path, Raw: body} }
	for name, tt := range map[string]struct {
		limit    int
		requests []apitest.Request // sent in turn
	}{
		"submits of renders":    {10, []apitest.Request{post("/api/v2/render", `{"x":`), post("/api/v2/render/v3", `{"x":`), post("/api/v2/render/inputs", `{"x":`)}},
		"separations":           {20, []apitest.Request{post(separatePath, `{}`)}},
		"renewals of a session": {10, []apitest.Request{post("/api/v2/auth/refresh", "")}},
		"devices":               {60, []apitest.Request{{Method: "PUT", Path: "/api/v2/devices", Raw: `{"x":`}}},
		"deletions of assets":   {60, []apitest.Request{{Method: "DELETE", Path: "/api/v2/assets/x"}}},
		// A sign-out ends its own token, so an invalid one stands for it, which counts for the address.
		"sign-outs": {60, []apitest.Request{{Method: "POST", Path: "/api/v2/auth/sign-out", Token: "invalid"}}},
	} {
		t.Run(name, func(t *testing.T) {
			u, other := s.SignIn(t), s.SignIn(t)
			address := map[*apitest.User]string{u: u.IP(), other: other.IP()}
			send := func(u *apitest.User, i int) *apitest.Response {
				t.Helper()
				r := tt.requests[i%len(tt.requests)]
				r.Token = cmp.Or(r.Token, u.Token)
				r.Header = http.Header{"X-Forwarded-For": {address[u]}}
				return s.Do(t, r)
			}
			for i := range tt.limit {
				if res := send(u, i); res.Status == 429 {
					t.Fatalf("request %d is limited", i+1)
				}
			}
			for i := range 3 {
				isLimited(t, send(u, i))
			}
			if res := send(other, 0); res.Status == 429 {
				t.Error("one user's requests limit another's")
			}
			for range 30 {
				u.Send(t, apitest.Request{Path: "/api/v2/render/rnd-x/status"}).Expect(404)
				u.Get(t, "/api/v2/credits").Expect(200)
			}
		})
	}
}
