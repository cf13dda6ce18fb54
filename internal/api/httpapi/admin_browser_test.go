// The admin app in a real browser: sign-in, every report, markup in names, narrow screens and failures.

package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/google/uuid"

	"cutroom/internal/domain/account"
	"cutroom/internal/testkit/browsertest"
	"cutroom/internal/upstream/separator"
)

// markup is text of a stranger that would run as a script, or ask for a missing file, if a page took it for HTML.
const markup = `'><img src=x onerror=alert(1)>`

// populate fills the service with three months of work of 119 users.
func (s *adminServer) populate() (ann string) {
	now := time.Now().UTC()
	ago := func(days int, d time.Duration) int64 { return now.AddDate(0, 0, -days).Add(-d).UnixMilli() }
	for i := range 119 { // and the admin
		id, name, provider := uuid.NewString(), fmt.Sprintf("Person %03d", i), "provider_a"
		if i%3 == 1 {
			provider = "provider_b"
		}
		if i == 0 {
			ann, name = id, "Ann Example"
		}
		s.exec(`INSERT INTO users (id, provider, provider_sub, email, name, created_at, last_active_at, role)
			VALUES ($1, $2, $1, $3, $4, $5, $6, $7)`, id, provider, fmt.Sprintf("person%03d@mail.example", i), name,
			ago(i*i%89, time.Hour), ago(i%20, time.Duration(i)*time.Minute), map[bool]string{true: "admin", false: "user"}[i == 2])
		s.exec(`INSERT INTO credit_balances (user_id, balance) VALUES ($1, $2)`, id, i*7%160)
		for j := range i % 5 {
			state := []string{"COMPLETED", "COMPLETED", "FAILED", "COMPLETED"}[j]
			s.job("rnd-"+uuid.NewString(), id, state, ago((i*j+i)%88, 0), (i*97+j*7919)%900_000)
		}
		for j := range i % 3 {
			s.job("sep-"+uuid.NewString(), id, []string{"READY", "DISPOSED"}[j], ago((i*3+j)%60, 0), (i+1)*(j+1)*61_000)
		}
		if i%4 == 0 {
			s.exec(`INSERT INTO purchases (platform, transaction_hash, product_id, credits, buyer_id, created_at)
				VALUES ($1, $2, 'p', $3, $4, $5)`, []string{"platform_a", "platform_b"}[i/4%2], id, []int{10, 50, 150}[i/4%3], id, ago(i%50, 0))
		}
	}
	s.exec(`UPDATE purchases SET order_id = 'GPA.0000-0', reversed_at = created_at WHERE buyer_id = $1`, ann)
	s.exec(`INSERT INTO credit_ledger (ref_id, user_id, kind, amount, created_at)
		VALUES ('reversal-platform_a-GPA.0000-0', $1, 'reversal', -10, 1)`, ann)
	s.exec(`INSERT INTO receipt_refusals (user_id, platform, order_id, product_id, reason, attempts, created_at)
		VALUES ($1, 'platform_a', 'GPA.7777-7', 'credits.10', 'receipt_verify_unavailable', 3, $2),
		($1, 'platform_b', $3, $3, 'other_account', 1, $2)`, ann, ago(0, time.Hour), markup)
	s.exec(`UPDATE users SET name = $1, email = $1 WHERE email = 'person007@mail.example'`, markup)
	s.exec(`UPDATE jobs SET error = 'The video of segment 2 cannot be decoded' WHERE state = 'FAILED'`)
	s.exec(`UPDATE jobs SET error = $1 WHERE state = 'FAILED' AND user_id = (SELECT id FROM users WHERE email = 'person008@mail.example')`, markup)
	for i, state := range []string{"PENDING", "PROCESSING"} {
		s.job("rnd-active-"+strings.ToLower(state), ann, state, ago(0, 3*time.Minute), 95000)
		s.exec(`UPDATE jobs SET progress = $1 WHERE state = $2`, i*63, state)
	}
	for i := range 61 {
		id, state := fmt.Sprintf("evt-%02d-", i)+uuid.NewString(), []string{"DELIVERED", "PENDING", "FAILED"}[i%3]
		s.exec(`INSERT INTO events (id, type, job_id, user_id, created_at, fanned_out_at) VALUES ($1, 'render.completed', $2, $3, $4, $4)`,
			id, "rnd-"+uuid.NewString(), ann, ago(0, time.Duration(i)*time.Minute))
		s.exec(`INSERT INTO event_deliveries (id, event_id, channel, state, attempts, queued_at, due_at, last_error) VALUES ($1, $1, 'webhook', $2, $3, 0, $4, $5)`,
			id, state, []int{1, 3, 10}[i%3], ago(-1, 0), map[bool]any{true: nil, false: "status 502"}[state == "DELIVERED"])
	}
	for day := range 90 {
		for k, endpoint := range []string{"upload-token", "upload", "register", "audio-separation", "progress", "project", "download"} {
			for j := range 1 + (day+k)%4 {
				s.call(separator.Call{Endpoint: endpoint, Success: (day*7+k*3+j)%23 != 0,
					Latency: time.Duration(80+(day*131+k*977+j*53)%(400*(k+1))) * time.Millisecond}, time.UnixMilli(ago(day, 0)))
			}
		}
	}
	return ann
}

// visit opens the app and signs in.
func (s *adminServer) visit(t *testing.T) *browsertest.Page {
	t.Helper()
	p := browsertest.Open(t)
	p.Go(s.URL + "/" + slug + "/")
	p.Fill("#token", s.admin)
	p.Press(kb.Enter)
	p.Until(`document.querySelector('h1')?.innerText === 'Overview'`)
	return p
}

func TestAdminAppSignIn(t *testing.T) {
	t.Parallel()
	s := startAdmin(t)
	p := browsertest.Open(t)
	p.Go(s.URL + "/" + slug)
	p.Fill("#token", "nonsense")
	p.Press(kb.Enter)
	p.See("The access token is invalid")
	p.Fill("#token", s.token(adminID, account.RoleUser))
	p.Press(kb.Enter)
	p.See("This account is not an admin")
	p.Fill("#token", "")
	p.Click("button[type=submit]")
	p.See("Paste an access token first")
	p.Problems() // the two refusals, as the browser reports them

	p.Fill("#token", "  Bearer "+s.admin+"\n")
	p.Press(kb.Enter)
	p.Until(`document.querySelector('h1')?.innerText === 'Overview'`)
	if kept := p.Eval(`JSON.stringify([localStorage.length, document.cookie, location.href.includes('ey')])`); kept != `[0,"",false]` {
		t.Errorf("the token is kept beyond the tab, or in the address: %s", kept)
	}
	p.Reload()
	p.Until(`document.querySelector('h1')?.innerText === 'Overview'`)
	p.Click(".session button")
	p.See("Paste an access token of an account")
	if left := p.Eval(`sessionStorage.length`); left != "0" {
		t.Errorf("%s entries are left after signing out", left)
	}
	p.Quiet("the end")

	// The token is revoked while the app is open.
	p.Eval(`sessionStorage.setItem('cutroom-admin-token', 'x.y.z')`)
	p.Reload()
	p.See("The access token is invalid or has expired")
}

func TestAdminAppSignInWithTheProvider(t *testing.T) {
	t.Parallel()
	s := startAdmin(t)
	p := browsertest.Open(t)
	p.Go(s.URL + "/" + slug)
	p.See("Sign in with provider A")
	p.Click("button[type=button].primary")
	p.Until(`document.querySelector('h1')?.innerText === 'Overview'`)
	if kept := p.Eval(`JSON.stringify([location.hash, Object.keys(sessionStorage)])`); kept != `["#/",["cutroom-admin-token"]]` {
		t.Errorf("left of the sign-in: %s", kept)
	}
	p.Quiet("the end")
	// An answer without a request signs nobody in.
	p.Eval(`sessionStorage.clear()`)
	p.Go(s.URL + "/" + slug + "/?again#id_token=e30.e30.x&state=theirs")
	p.See("Signing in with the provider did not succeed")
}

// pages of the app: the part of the address after #, and a text that only appears once the report has loaded.
func pages(ann string) map[string]string {
	return map[string]string{
		"/": "Jobs a day", "/users": "120 users", "/users/" + ann: "rnd-active-processing", "/users/" + ann + "?jobs=0": "of 5", "/jobs": "63 %",
		"/calls": "audio-separation", "/revenue": "29 purchases", "/signups": "New users a day", "/events": "61 events", "/events?failed=true": "status 502", "/durations": "15 to 60 min",
	}
}

// These tests share one service with three months of work. The last one changes it.
func TestAdminApp(t *testing.T) {
	t.Parallel()
	s := startAdmin(t)
	ann := s.populate()
	t.Run("shows every report", func(t *testing.T) { showsEveryReport(t, s.visit(t), ann) })
	t.Run("finds a user and their jobs", func(t *testing.T) { findsAUser(t, s.visit(t)) })
	t.Run("shows markup as text", func(t *testing.T) { showsMarkupAsText(t, s.visit(t)) })
	t.Run("shows a purchase that the store did not answer", func(t *testing.T) { showsAnUnansweredPurchase(t, s.visit(t), ann) })
	t.Run("shows failures on a phone", func(t *testing.T) { showsFailuresOnAPhone(t, s.visit(t)) })
	t.Run("chooses days", func(t *testing.T) { choosesDays(t, s.visit(t)) })
	t.Run("refreshes active jobs", func(t *testing.T) { refreshesActiveJobs(t, s) })
}

func showsEveryReport(t *testing.T, p *browsertest.Page, ann string) {
	for width, dark := range map[int64]bool{1280: false, 360: true} {
		p.Dark(dark)
		p.Size(width, 800)
		for path, text := range pages(ann) {
			p.Eval(fmt.Sprintf(`location.hash = %q`, path))
			p.See(text)
			p.Until(`!document.querySelector('[aria-busy=true]')`)
			p.Look(fmt.Sprintf("admin-%s-%d-%t", strings.ReplaceAll(strings.Trim(path[:min(len(path), 12)], "/"), "/", "-"), width, dark))
		}
	}
}

func findsAUser(t *testing.T, p *browsertest.Page) {
	p.Click(`nav a[href^="#/users"]`)
	p.See("1–50 of 120")
	p.Click(".pager a:last-child")
	p.See("51–100 of 120")
	p.Click(".pager a:last-child")
	p.See("101–120 of 120")
	p.Fill("#q", "ANN EX")
	p.See("1 user,")
	p.Click("tbody th a")
	p.See("Ann Example person000@mail.example")
	p.See("rnd-active-pending")
	p.See("GPA.0000-0")
	p.See("reversal")
	p.Eval(`history.back()`)
	p.Until(`document.querySelector('#q')?.value === 'ANN EX'`)
	p.Fill("#q", "GPA.0000-0")
	p.See("1 user,")
	p.Fill("#q", "nobody at all")
	p.See("contains “nobody at all”")
	p.Fill("#q", "")
	p.See("120 users")
	p.Quiet("the end")
}

func showsMarkupAsText(t *testing.T, p *browsertest.Page) {
	for _, path := range []string{"/users?q=onerror", "/jobs"} {
		p.Eval(fmt.Sprintf(`location.hash = %q`, path))
		p.See(markup)
		p.Until(`!document.querySelector('[aria-busy=true]')`)
		if n := p.Eval(`document.querySelectorAll('img').length`); n != "0" {
			t.Errorf("%s shows %s images", path, n)
		}
	}
	p.Quiet("the end")
}

func showsAnUnansweredPurchase(t *testing.T, p *browsertest.Page, ann string) {
	p.Eval(`location.hash = '/users'`)
	p.See("of 120")
	p.Fill("#q", "GPA.7777-7")
	p.See("1 user,")
	p.Click("tbody th a")
	p.See("receipt_verify_unavailable")
	p.See("The store did not answer, or refused this service.")
	command := "cutroom purchase verify platform_a GPA.7777-7 --user " + ann + " --receipt TOKEN"
	p.See(command)
	p.See(`cutroom user show ''\''><img src=x onerror=alert(1)>'`)
	// Headless Chromium has a clipboard on loopback, but nobody grants it.
	p.Eval(`Object.defineProperty(navigator, 'clipboard', { value: { writeText: async text => { window.copied = text; } } })`)
	p.Click(fmt.Sprintf(`[aria-label=%q]`, "Copy "+command))
	p.See("Copied")
	if copied := p.Eval(`window.copied`); copied != fmt.Sprintf("%q", command) && copied != command {
		t.Errorf("copied %s", copied)
	}
	p.Quiet("the end")
}

// A failed job's state and sentence are on the screen of a phone, without scrolling sideways.
func showsFailuresOnAPhone(t *testing.T, p *browsertest.Page) {
	p.Size(390, 844)
	outside := `JSON.stringify([...document.querySelectorAll('.scroll td, .scroll tbody th, .scroll tbody td *')]
		.filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth).map(e => e.innerText))`
	for _, path := range []string{"/users?q=person003", "/jobs"} {
		p.Eval(fmt.Sprintf(`location.hash = %q`, path))
		if strings.HasPrefix(path, "/users") {
			p.See("1 user,")
			p.Click("tbody th a")
		}
		p.See("The video of segment 2 cannot be decoded")
		p.Until(`!document.querySelector('[aria-busy=true]')`)
		if cut := p.Eval(outside); cut != "[]" {
			t.Errorf("%s: beyond the right edge: %s", path, cut)
		}
	}
	p.Quiet("the end")
}

func choosesDays(t *testing.T, p *browsertest.Page) {
	rows := `(document.querySelector('details').open || document.querySelector('summary').click(), document.querySelectorAll('details tbody tr').length)`
	p.Until(rows + ` === 30`)
	p.Click(".presets button:first-child")
	p.Until(rows + ` === 7`)
	p.Click(`nav a[href^="#/calls"]`) // the choice is kept
	p.See("Slowest day")
	p.Until(rows + ` === 7`)
	p.Reload()
	p.Until(rows + ` === 7`)
	set := `(() => { const set = (i, days) => { const e = document.querySelectorAll('input[type=date]')[i];
		e.value = new Date(Date.now() - days * 864e5).toISOString().slice(0, 10); e.dispatchEvent(new Event('input', { bubbles: true })); }; %s; })()`
	p.Eval(fmt.Sprintf(set, `set(0, 3); set(1, 2)`))
	p.Click(`.range button[type=submit]`)
	p.Until(rows + ` === 2`)
	p.Eval(fmt.Sprintf(set, `set(0, 1)`))
	p.See("The first day must not be after the last day")
	p.Quiet("the end")
	p.Eval(fmt.Sprintf(set, `set(0, 200)`))
	p.Click(`.range button[type=submit]`)
	p.See("at most 90 days can be shown")
	p.Click(".presets button:last-child")
	p.Until(rows + ` === 90`)
}

func refreshesActiveJobs(t *testing.T, s *adminServer) {
	p := s.visit(t)
	p.Eval(`location.hash = '/jobs'`)
	p.See("63 %")
	s.exec(`UPDATE jobs SET progress = 64 WHERE id = 'rnd-active-processing'`)
	p.See("64 %")
	s.exec(`UPDATE jobs SET state = 'COMPLETED' WHERE id LIKE 'rnd-active-%'`)
	p.See("Nothing is being worked on")
	p.Quiet("the end")
}

func TestAdminAppTellsOfAFailureAndRecovers(t *testing.T) {
	t.Parallel()
	s := startAdmin(t)
	p := s.visit(t)
	s.failing.Store(true)
	s.exec(`ALTER TABLE users RENAME TO away`)
	p.Eval(`location.hash = '/users'`)
	p.See("The server failed to answer (500). Its log has the reason under request")
	s.exec(`ALTER TABLE away RENAME TO users`)
	p.Click(".notice button")
	p.See("1 user, newest activity first")
}
