package separation

import (
	"cmp"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/base/fault"
)

func TestTokens(t *testing.T) {
	const secret, previous = "a secret of at least thirty-two characters", "the secret before it, of thirty-two characters"
	former, s := signer{previous, ""}, signer{secret, previous}
	now := time.Unix(1_700_000_000, 0)
	good := s.token("sep-1", "voice_all", now.Add(time.Minute))
	exp, sig, _ := strings.Cut(good, ".")
	last := sig[len(sig)-1:]
	twin := map[bool]string{true: "B", false: "A"}[last == "A"] // differs in padding bits or in bytes
	for _, tt := range []struct {
		name, job, stem, token string        // of sep-1, voice_all and good, unless given
		after                  time.Duration // the time of the check
		want                   error
	}{
		{name: "good"},
		{name: "in its last second", after: 59 * time.Second},
		{name: "expired", after: time.Minute, want: errExpiredToken},
		{name: "of another job", job: "sep-2", want: errInvalidToken},
		{name: "of another stem", stem: "speaker_0", want: errInvalidToken},
		{name: "fields shifted", job: "sep-1\nvoice", stem: "_all", want: errInvalidToken},
		{name: "longer life", token: "1900000000." + sig, want: errInvalidToken},
		{name: "expiry with a sign", token: "+" + good, want: errInvalidToken},
		{name: "expiry with a zero", token: "0" + good, want: errInvalidToken},
		{name: "no dot", token: exp + sig, want: errInvalidToken},
		{name: "no signature", token: exp + ".", want: errInvalidToken},
		{name: "no expiry", token: "." + sig, want: errInvalidToken},
		{name: "cut short", token: good[:len(good)-1], want: errInvalidToken},
		{name: "last character", token: good[:len(good)-1] + twin, want: errInvalidToken},
		{name: "padded", token: good + "=", want: errInvalidToken},
		{name: "a line break inside", token: good[:20] + "\n" + good[20:], want: errInvalidToken},
		{name: "very long", token: good + strings.Repeat("A", 1<<16), want: errInvalidToken},
		{name: "of the former secret", token: former.token("sep-1", "voice_all", now.Add(time.Minute))},
		{name: "of another secret", token: signer{"x", ""}.token("sep-1", "voice_all", now.Add(time.Minute)), want: errInvalidToken},
		{name: "expired and forged", token: "1." + sig, want: errInvalidToken},
	} {
		got := s.check(cmp.Or(tt.job, "sep-1"), cmp.Or(tt.stem, "voice_all"), cmp.Or(tt.token, good), now.Add(tt.after))
		if got != tt.want && !errors.Is(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := s.check("sep-1", "voice_all", "", now); got != errMissingToken {
		t.Errorf("no token: %v", got)
	}
}

// FuzzToken checks that only the token signed for a stem opens it.
func FuzzToken(f *testing.F) {
	s := signer{"a secret of at least thirty-two characters", ""}
	now := time.Unix(1_700_000_000, 0)
	good := s.token("sep-1", "voice_all", now.Add(time.Hour))
	for _, seed := range []string{good, "", ".", good + "=", good + ".", " " + good, "1e9." + good, strings.ToUpper(good), good[:30]} {
		f.Add("sep-1", "voice_all", seed)
	}
	f.Add("sep-1\nvoice_all", "", good)
	f.Fuzz(func(t *testing.T, job, stem, token string) {
		err := s.check(job, stem, token, now)
		if err != nil {
			var refused *fault.Error
			if !errors.As(err, &refused) {
				t.Fatalf("%q: %v is not a client's error", token, err)
			}
			return
		}
		exp, _, _ := strings.Cut(token, ".")
		expiry, err := strconv.ParseInt(exp, 10, 64)
		if err != nil || token != s.token(job, stem, time.Unix(expiry, 0)) || expiry <= now.Unix() {
			t.Fatalf("%q opens %q of %q", token, stem, job)
		}
	})
}

func TestStemURLs(t *testing.T) {
	s := New(Options{PublicBaseURL: "https://api.example.test/base", SigningSecret: "a secret of at least thirty-two characters", URLLifetime: time.Hour})
	good := s.stemURL("sep-00000000-0000-7000-8000-000000000000", "voice_all")
	bare := strings.TrimPrefix(good, s.PublicBaseURL)
	for raw, want := range map[string]bool{
		// A path-only URL may include the path of PUBLIC_BASE_URL; an absolute one must.
		good: true, bare: true, "/base" + bare: true, "//api.example.test/base" + bare: false,
		"https://api.example.test" + bare: false, "/other" + bare: false, "/base/base" + bare: false, "base" + bare: false,
		strings.Replace(good, "api.example.test", "API.example.TEST", 1): true,
		strings.Replace(good, "api.", "evil.", 1):                        false,
		strings.Replace(good, "https", "http", 1):                        false,
		strings.Replace(good, "api.", "a:b@api.", 1):                     false,
		strings.Replace(good, "/stem/", "/st%65m/", 1):                   false,
		strings.Replace(good, "/stem/", "/stem/./", 1):                   false,
	} {
		if _, _, _, ok := s.parseStemURL(raw); ok != want {
			t.Errorf("%s: %v, want %v", raw, ok, want)
		}
	}
}

// FuzzStemURL checks that a URL that parses contains one valid job id and stem id.
func FuzzStemURL(f *testing.F) {
	s := New(Options{PublicBaseURL: "https://api.example.test/base", SigningSecret: "a secret of at least thirty-two characters", URLLifetime: time.Hour})
	const id = "sep-00000000-0000-7000-8000-000000000000"
	good := s.stemURL(id, "voice_all")
	for _, seed := range []string{good, strings.TrimPrefix(good, s.PublicBaseURL), "//api.example.test/base" + good[len("https://api.example.test/base"):],
		strings.Replace(good, "https", "http", 1), strings.Replace(good, "/stem/", "/stem/../", 1), strings.Replace(good, "sep-", "%73ep-", 1),
		strings.Replace(good, "api.", "user@api.", 1), good + "#x", "https:" + good, "\x00", strings.Replace(good, "test/", "test:443/", 1)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		job, stem, token, ok := s.parseStemURL(raw)
		if !ok {
			return
		}
		if m := stemPath.FindStringSubmatch("/api/v2/separate/" + job + "/stem/" + stem); m == nil {
			t.Fatalf("%q names job %q, stem %q", raw, job, stem)
		}
		u, err := url.Parse(raw)
		if err != nil || u.User != nil || u.Host != "" && !strings.EqualFold(u.Host, "api.example.test") || u.Query().Get("token") != token {
			t.Fatalf("%q was accepted as a URL of this service", raw)
		}
	})
}
