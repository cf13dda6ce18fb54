// Sign-in, access tokens, roles, sign-out, and deletion with interruptions, with stand-ins for the providers.

package account_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"cutroom/internal/base/clock"
	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/credit"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/upstream/identity"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/user"
)

const secret = "0123456789abcdef0123456789abcdef"

// provider is an identity provider. A token is its own subject, and the test sets the claims by token.
type provider map[string]identity.Claims

func (p provider) Verify(_ context.Context, idToken string) (identity.Claims, error) {
	if c, ok := p[idToken]; ok {
		return c, nil
	}
	return identity.Claims{}, identity.ErrRejected
}

// harness is the account service with a file store whose deletions can fail.
type harness struct {
	*account.Service
	options account.Options
	db      *db.DB
	a, b    provider
	erased  []string
	mu      sync.Mutex
	refuse  map[string]error // by user id
}

func onBothDatabases(t *testing.T, test func(t *testing.T, r *harness)) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) { test(t, newHarness(t, d)) })
}

func newHarness(t *testing.T, d *db.DB) *harness {
	t.Helper()
	r := &harness{db: d, a: provider{}, b: provider{}, refuse: map[string]error{}}
	log := slog.New(slog.DiscardHandler)
	r.options = account.Options{DB: d, Tokens: account.NewTokens(secret, time.Hour), MaxTokenLife: 7 * 24 * time.Hour, Log: log,
		Providers: map[string]account.IdentityVerifier{account.ProviderA: r.a, account.ProviderB: r.b},
		Credits:   credit.New(credit.Options{DB: d, SignupBonus: 3, Log: log}),
		Erasers: []account.Eraser{func(_ context.Context, userID string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if err := r.refuse[userID]; err != nil {
				return err
			}
			r.erased = append(r.erased, userID)
			return nil
		}}}
	r.Service = r.replica()
	return r
}

// replica is another process of the same service.
func (r *harness) replica() *account.Service { return account.New(r.options) }

func (r *harness) signIn(t *testing.T, name string, c identity.Claims, fullName string) user.User {
	t.Helper()
	(map[string]provider{account.ProviderA: r.a, account.ProviderB: r.b})[name]["token"] = c
	s, err := r.SignIn(t.Context(), name, "token", fullName)
	if err != nil {
		t.Fatal(err)
	}
	return s.User
}

func (r *harness) scan(t *testing.T, query string, args ...any) int64 {
	t.Helper()
	return dbtest.Number(t, r.db, query, args...)
}

func TestNamesAreKeptAndAddressesRefreshed(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, r *harness) {
		for i, tt := range []struct{ provider, claim, full, want string }{
			{account.ProviderA, "Ada", "", "Ada"},
			{account.ProviderA, "", "", "mail"},
			{account.ProviderA, "Ada", "Mallory", "Ada"}, // provider_a's request has no fullName
			{account.ProviderB, "", "Grace  ", "Grace"},
			{account.ProviderB, "", "\x00\u0007 \x7f", "mail"},
			{account.ProviderB, "", strings.Repeat("é", 300), strings.Repeat("é", 200)},
			{account.ProviderB, "", "a\x00b\xffc", "abc"},
			{account.ProviderA, "Ada \u202egro.live\u2066", "", "Ada gro.live"}, // without characters that reverse text
		} {
			c := identity.Claims{Subject: fmt.Sprint("s", i), Email: "mail@example.test", Name: tt.claim}
			first := r.signIn(t, tt.provider, c, tt.full)
			if first.Name != tt.want {
				t.Errorf("%s %q %q: name %q, want %q", tt.provider, tt.claim, tt.full, first.Name, tt.want)
			}
			c.Name, c.Email, c.Picture = "Other", "new@example.test", "https://p.example/1"
			again := r.signIn(t, tt.provider, c, "Other")
			if again.ID != first.ID || again.Name != tt.want || again.Email != "new@example.test" || again.Picture != "https://p.example/1" {
				t.Errorf("second sign-in: %+v", again)
			}
			c.Email, c.Picture = "", ""
			if third := r.signIn(t, tt.provider, c, ""); third.Email != "new@example.test" || third.Picture != "" {
				t.Errorf("third sign-in: %+v", third)
			}
			other := map[string]string{account.ProviderA: account.ProviderB, account.ProviderB: account.ProviderA}[tt.provider]
			if stranger := r.signIn(t, other, identity.Claims{Subject: c.Subject}, ""); stranger.ID == first.ID {
				t.Errorf("%+v is one user at both providers", stranger)
			}
		}
	})
}

func TestASubjectThatCannotBeStoredIsRejected(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, r *harness) {
		for _, subject := range []string{"a\x00b", "\xff", " x", strings.Repeat("9", 256), strings.Repeat("9", 10000)} {
			r.a["token"] = identity.Claims{Subject: subject, Email: "m@example.test"}
			_, err := r.SignIn(t.Context(), account.ProviderA, "token", "")
			if f := fault.As(err); f == nil || f.Kind != fault.Unauthorized || f.Code != "invalid_id_token" {
				t.Errorf("subject %.20q: %v", subject, err)
			}
		}
		if n := r.scan(t, `SELECT COUNT(*) FROM users`); n != 0 {
			t.Errorf("%d users", n)
		}
	})
}

func TestAnInterruptedDeletionIsFinishedByTheSweep(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, r *harness) {
		stuck := r.signIn(t, account.ProviderA, identity.Claims{Subject: "1"}, "")
		other := r.signIn(t, account.ProviderA, identity.Claims{Subject: "2"}, "")
		jobtest.Insert(t, r.db, "sep-1", stuck.ID, "READY", 1, 1000)
		jobtest.Insert(t, r.db, "rnd-1", other.ID, "PENDING", 1, 1000)
		broken := errors.New("bucket is down")
		r.refuse[stuck.ID], r.refuse[other.ID] = broken, broken
		for _, u := range []user.User{stuck, other} {
			if err := r.Delete(t.Context(), u.ID, u.ID); !errors.Is(err, broken) {
				t.Fatalf("deletion without its files: %v", err)
			}
			if err := user.Check(t.Context(), r.db, u.ID); !errors.Is(err, user.ErrDeleted) {
				t.Errorf("an account in deletion: %v", err)
			}
		}
		// The sweep leaves a recent deletion to its own request.
		if err := r.FinishErasures(t.Context()); err != nil || len(r.erased) != 0 {
			t.Errorf("the sweep repeats a recent deletion: %v, %v", r.erased, err)
		}
		dbtest.Exec(t, r.db, `UPDATE users SET erasing_at = erasing_at - 61000`)
		delete(r.refuse, other.ID)
		if err := r.FinishErasures(t.Context()); !errors.Is(err, broken) {
			t.Errorf("the sweep does not report a deletion that it could not finish: %v", err)
		}
		if n := r.scan(t, `SELECT COUNT(*) FROM users WHERE id = $1`, other.ID); n != 0 {
			t.Error("an account that cannot be erased blocks another deletion")
		}
		delete(r.refuse, stuck.ID)
		for range 2 {
			if err := r.FinishErasures(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if users, entries := r.scan(t, `SELECT COUNT(*) FROM users`), r.scan(t, `SELECT COUNT(*) FROM credit_ledger`); users != 0 || entries != 0 {
			t.Errorf("%d users and %d ledger entries left", users, entries)
		}
		if jobs := r.scan(t, `SELECT COUNT(*) FROM jobs`); jobs != 0 {
			t.Errorf("%d jobs left", jobs)
		}
		if err := r.Delete(t.Context(), stuck.ID, stuck.ID); err != nil {
			t.Errorf("deleting again: %v", err)
		}
		r.audited(t, stuck.ID, stuck.ID+" account-erased")
	})
}

func TestSigningInDuringADeletionMakesANewAccount(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, r *harness) {
		c := identity.Claims{Subject: "s", Email: "m@example.test"}
		old := r.signIn(t, account.ProviderA, c, "")
		broken := errors.New("bucket is down")
		r.refuse[old.ID] = broken
		if err := r.Delete(t.Context(), old.ID, old.ID); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if _, err := r.SignIn(t.Context(), account.ProviderA, "token", ""); !errors.Is(err, broken) {
			t.Errorf("a sign-in during a deletion that failed: %v", err)
		}
		delete(r.refuse, old.ID)
		fresh := r.signIn(t, account.ProviderA, c, "")
		if fresh.ID == old.ID || fresh.Role != account.RoleUser {
			t.Errorf("signed in as %+v", fresh)
		}
		if users, sum := r.scan(t, `SELECT COUNT(*) FROM users`), r.scan(t, `SELECT SUM(balance) FROM credit_balances`); users != 1 || sum != 3 {
			t.Errorf("%d users with %d credits", users, sum)
		}
		var first sync.WaitGroup // concurrent sign-ins of a new person create one user
		r.a["token"] = identity.Claims{Subject: "new"}
		for range 8 {
			first.Go(func() {
				if _, err := r.SignIn(t.Context(), account.ProviderA, "token", ""); err != nil {
					t.Error(err)
				}
			})
		}
		first.Wait()
		if users, sum := r.scan(t, `SELECT COUNT(*) FROM users`), r.scan(t, `SELECT SUM(balance) FROM credit_balances`); users != 2 || sum != 6 {
			t.Errorf("%d users with %d credits, want one more with one bonus", users, sum)
		}
		var wg sync.WaitGroup // deletions and sign-ins run concurrently
		for i := range 30 {
			wg.Go(func() {
				var err error
				if i%3 == 0 {
					var s account.Session
					if s, err = r.SignIn(t.Context(), account.ProviderA, "token", ""); err == nil {
						err = r.Delete(t.Context(), s.User.ID, s.User.ID)
					}
				} else {
					_, err = r.SignIn(t.Context(), account.ProviderA, "token", "")
				}
				if f := fault.As(err); err != nil && (f == nil || f.Kind != fault.Unavailable) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if drift := r.scan(t, `SELECT (SELECT COALESCE(SUM(balance), 0) FROM credit_balances) - (SELECT COALESCE(SUM(amount), 0) FROM credit_ledger)`); drift != 0 {
			t.Errorf("balances and ledger differ by %d", drift)
		}
	})
}

func issue(t *testing.T, tokens *account.Tokens, who account.Principal) string {
	t.Helper()
	token, _, err := tokens.Issue(who)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTheFormerSecretVerifiesAndNeverSigns(t *testing.T) {
	former, other := strings.Repeat("f", 32), strings.Repeat("o", 32)
	who := account.Principal{UserID: uuid.NewString(), Role: account.RoleUser}
	signed := func(by *account.Tokens) string { return issue(t, by, who) }
	rotated := account.NewTokens(secret, time.Hour, former)
	for name, check := range map[string]struct {
		tokens *account.Tokens
		token  string
		valid  bool
	}{
		"of the former secret":                {rotated, signed(account.NewTokens(former, time.Hour)), true},
		"of the new secret":                   {rotated, signed(rotated), true},
		"of another secret":                   {rotated, signed(account.NewTokens(other, time.Hour)), false},
		"signed after the rotation":           {account.NewTokens(former, time.Hour), signed(rotated), false},
		"of a blank secret that was not kept": {account.NewTokens(secret, time.Hour, ""), signed(account.NewTokens("", time.Hour)), false},
	} {
		if p, err := check.tokens.Check(check.token); (err == nil) != check.valid || check.valid && (p.UserID != who.UserID || p.Role != who.Role) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestForgedAccessTokens(t *testing.T) {
	tokens := account.NewTokens(secret, time.Hour)
	id := uuid.NewString()
	good, expires, err := tokens.Issue(account.Principal{UserID: id, Role: account.RoleAdmin})
	if err != nil || time.Until(expires) > time.Hour || time.Until(expires) < 59*time.Minute {
		t.Fatal(expires, err)
	}
	if p, err := tokens.Check(good); err != nil || p.UserID != id || !p.Admin() {
		t.Fatalf("%+v, %v", p, err)
	}
	sign := func(method jwt.SigningMethod, key any, change func(c jwt.MapClaims)) string {
		c := jwt.MapClaims{"sub": id, "iss": "cutroom", "aud": "cutroom-mobile", "role": "user", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
		change(c)
		s, err := jwt.NewWithClaims(method, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	hs := func(change func(c jwt.MapClaims)) string { return sign(jwt.SigningMethodHS256, []byte(secret), change) }
	without := func(claim string) string { return hs(func(c jwt.MapClaims) { delete(c, claim) }) }
	with := func(claim string, value any) string { return hs(func(c jwt.MapClaims) { c[claim] = value }) }
	nothing := func(jwt.MapClaims) {}
	parts := strings.Split(good, ".")
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"` + id + `","iss":"cutroom","aud":"cutroom-mobile","role":"admin","exp":9999999999}`))
	for name, token := range map[string]string{
		"none": sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nothing), "HS384": sign(jwt.SigningMethodHS384, []byte(secret), nothing), "HS512": sign(jwt.SigningMethodHS512, []byte(secret), nothing),
		"other secret": sign(jwt.SigningMethodHS256, []byte(secret+"x"), nothing), "empty secret": sign(jwt.SigningMethodHS256, []byte{}, nothing), "other payload": parts[0] + "." + payload + "." + parts[2],
		"no signature": parts[0] + "." + parts[1] + ".", "no aud": without("aud"), "no exp": without("exp"), "no iss": without("iss"), "no sub": without("sub"),
		"other aud": with("aud", "cutroom-web"), "empty aud": with("aud", ""), "no aud in a list": with("aud", []string{}), "other iss": with("iss", "x"), "expired": with("exp", time.Now().Unix()-1), "expires now": with("exp", time.Now().Unix()),
		"exp as a word": with("exp", "never"), "exp of zero": with("exp", 0), "sub is no UUID": with("sub", "1"), "sub in braces": with("sub", "{"+id+"}"), "sub as URN": with("sub", "urn:uuid:"+id), "sub without dashes": with("sub", strings.ReplaceAll(id, "-", "")),
		"sub as a number": with("sub", 5), "role as a list": with("role", []string{"admin"}), "not before tomorrow": with("nbf", time.Now().Add(24*time.Hour).Unix()), "long": with("x", strings.Repeat("x", 5000)), "": "", "dots": "..",
	} {
		p, err := tokens.Check(token)
		if err == nil {
			t.Errorf("%s: accepted as %+v", name, p)
			continue
		}
		detail := ""
		if name == "expired" || name == "expires now" || name == "exp of zero" {
			detail = "expired"
		}
		if f := fault.As(err); f == nil || f.Kind != fault.Unauthorized || f.Code != "invalid_token" || f.Detail != detail {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The last character of a signature has two unused bits. They must be 0.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	accepted := 0
	for _, last := range alphabet {
		if _, err := tokens.Check(good[:len(good)-1] + string(last)); err == nil {
			accepted++
		}
	}
	if accepted != 1 {
		t.Errorf("%d forms of one signature are accepted, want 1", accepted)
	}
	for name, token := range map[string]string{"no role": without("role"), "unknown role": with("role", "root"), "role in capitals": with("role", "ADMIN"), "aud in a list": with("aud", []string{"x", "cutroom-mobile"})} {
		if p, err := tokens.Check(token); err != nil || p.Admin() || p.UserID != id {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestRoles(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, r *harness) {
		u := r.signIn(t, account.ProviderA, identity.Claims{Subject: "1", Email: "User@Example.test"}, "")
		r.signIn(t, account.ProviderA, identity.Claims{Subject: "2", Email: ""}, "")
		for _, who := range []string{"uSer@example.TEST", " " + u.ID + " ", strings.ToUpper(u.ID)} {
			if got, err := account.SetRole(t.Context(), r.db, who, account.RoleAdmin, "cli:7"); err != nil || got.ID != u.ID || got.Role != account.RoleAdmin {
				t.Errorf("grant to %q: %v, %v", who, got, err)
			}
		}
		if list, err := user.Admins(t.Context(), r.db); err != nil || len(list) != 1 {
			t.Errorf("admins %v, %v", list, err)
		}
		if again := r.signIn(t, account.ProviderA, identity.Claims{Subject: "1", Email: "User@Example.test"}, ""); again.Role != account.RoleAdmin {
			t.Errorf("the next sign-in: %+v", again)
		}
		for _, who := range []string{"", " ", "nobody@example.test", "%", uuid.NewString()} {
			if got, err := account.SetRole(t.Context(), r.db, who, account.RoleAdmin, "cli:7"); !errors.Is(err, account.ErrUnknown) {
				t.Errorf("grant to %q: %v, %v", who, got, err)
			}
		}
		twin := r.signIn(t, account.ProviderB, identity.Claims{Subject: "3", Email: "user@example.test"}, "")
		_, err := account.SetRole(t.Context(), r.db, "user@example.test", account.RoleUser, "cli:7")
		if err == nil || !strings.Contains(err.Error(), u.ID) || !strings.Contains(err.Error(), twin.ID) {
			t.Errorf("an e-mail of two users: %v", err)
		}
		if _, err := account.SetRole(t.Context(), r.db, u.ID, account.RoleUser, "cli:7"); err != nil {
			t.Error(err)
		}
		r.audited(t, u.ID, "cli:7 role-revoked", "cli:7 role-granted", "cli:7 role-granted", "cli:7 role-granted")
		r.audited(t, twin.ID)
	})
}

func TestASignOutEndsEveryTokenIssuedBefore(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, r *harness) {
		r.a["token"] = identity.Claims{Subject: "1", Email: "m@example.test"}
		signIn := func() account.Session {
			t.Helper()
			s, err := r.SignIn(t.Context(), account.ProviderA, "token", "")
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if r.db.Postgres() {
			clock.Advance(time.Hour) // the replica's clock, not the database's
		}
		old := signIn()
		clock.Advance(0)
		other := r.signIn(t, account.ProviderB, identity.Claims{Subject: "2"}, "")
		theirs := issue(t, account.NewTokens(secret, time.Hour), account.Principal{UserID: other.ID})
		if _, err := r.Authenticate(t.Context(), old.Token); err != nil {
			t.Fatal(err)
		}
		if err := account.SignOut(t.Context(), r.db, old.User.ID, "cli:7"); err != nil {
			t.Fatal(err)
		}
		fresh := signIn() // probably in the same second as the sign-out
		invalid := fault.New(fault.Unauthorized, "invalid_token")
		for _, s := range []*account.Service{r.Service, r.replica()} {
			if s == r.Service {
				time.Sleep(account.SignOutDelay) // the command waits as long
			}
			if _, err := s.Authenticate(t.Context(), old.Token); !errors.Is(err, invalid) {
				t.Errorf("a token from before the sign-out: %v", err)
			}
			for _, token := range []string{fresh.Token, theirs} {
				if _, err := s.Authenticate(t.Context(), token); err != nil {
					t.Errorf("a token that the sign-out does not affect: %v", err)
				}
			}
		}
		if err := account.SignOut(t.Context(), r.db, uuid.NewString(), "cli:7"); !errors.Is(err, user.ErrDeleted) {
			t.Errorf("a sign-out of an unknown user: %v", err)
		}
		r.audited(t, old.User.ID, "cli:7 signed-out")
		// A client that repeats the call fills no audit record.
		for _, again := range []struct {
			agoMs int64
			want  []string
		}{{-60_000, []string{"cli:7 signed-out"}}, {1001, []string{"cli:7 signed-out", "cli:7 signed-out"}}} {
			dbtest.Exec(t, r.db, `UPDATE users SET signed_out_at = now_ms() - $1 WHERE id = $2`, again.agoMs, old.User.ID)
			if err := account.SignOut(t.Context(), r.db, old.User.ID, "cli:7"); err != nil {
				t.Fatal(err)
			}
			r.audited(t, old.User.ID, again.want...)
		}
	})
}

// A sign-out still applies after the configured lifetime of tokens becomes shorter.
func TestASignOutOutlivesAShorterTokenLifetime(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, r *harness) {
		u := r.signIn(t, account.ProviderA, identity.Claims{Subject: "1"}, "")
		clock.Advance(-24 * time.Hour)
		old := issue(t, account.NewTokens(secret, 7*24*time.Hour), account.Principal{UserID: u.ID})
		clock.Advance(0)
		if err := account.SignOut(t.Context(), r.db, u.ID, "cli:7"); err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, r.db, `UPDATE users SET signed_out_at = signed_out_at - $1`, (12 * time.Hour).Milliseconds())
		if _, err := r.Authenticate(t.Context(), old); !errors.Is(err, fault.New(fault.Unauthorized, "invalid_token")) {
			t.Errorf("a token from before the sign-out: %v", err)
		}
	})
}

// arriving is a context that reports the first call of Done.
type arriving struct {
	context.Context
	once sync.Once
	here chan struct{}
}

func (a *arriving) Done() <-chan struct{} {
	a.once.Do(func() { close(a.here) })
	return a.Context.Done()
}

func TestAClientThatDisconnectsFailsNoOther(t *testing.T) {
	r := newHarness(t, dbtest.Open(t, db.Options{URL: "sqlite::memory:", MaxPool: 1}))
	u := r.signIn(t, account.ProviderA, identity.Claims{Subject: "1"}, "")
	token := issue(t, account.NewTokens(secret, time.Hour), account.Principal{UserID: u.ID})
	leaving, leave := context.WithCancel(t.Context())
	staying := &arriving{Context: t.Context(), here: make(chan struct{})}
	waits := r.db.Stats().WaitCount
	var wg sync.WaitGroup
	err := r.db.InTx(t.Context(), func(*db.Tx) error { // uses the only connection
		wg.Go(func() { _, _ = r.Authenticate(leaving, token) })
		for r.db.Stats().WaitCount == waits {
			time.Sleep(time.Millisecond)
		}
		wg.Go(func() {
			if _, err := r.Authenticate(staying, token); err != nil {
				t.Errorf("while another client disconnected: %v", err)
			}
		})
		<-staying.here
		leave()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// audited fails the test unless the audit record of a target has exactly these entries, newest first, each as
// "actor action".
func (r *harness) audited(t *testing.T, target string, want ...string) {
	t.Helper()
	entries, err := audit.List(t.Context(), r.db, audit.Filter{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Actor+" "+e.Action)
	}
	slices.Sort(got) // entries of the same millisecond have no order
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("audit record of %s: %q, want %q", target, got, want)
	}
}
