package separation

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/fault"
)

func TestTokens(t *testing.T) {
	const secret, previous = "a secret of at least thirty-two characters", "the secret before it, of thirty-two characters"
	former, s := signer{previous, ""}, signer{secret, previous}
	now := time.Unix(1_700_000_000, 0)
	good := s.token("sep-1", "voice_all", now.Add(time.Minute))
	exp, sig, _ := strings.Cut(good, ".")
	last := sig[len(sig)-1:]
	twin := map[bool]string{true: "B", false: "A"}[last == "A"] // differs in padding bits or in bytes
	tests := []struct {
		name, job, stem, token string
		now                    time.Time
		want                   error
	}{
		{"good", "sep-1", "voice_all", good, now, nil},
		{"in its last second", "sep-1", "voice_all", good, now.Add(59 * time.Second), nil},
		{"expired", "sep-1", "voice_all", good, now.Add(time.Minute), errExpiredToken},
		{"missing", "sep-1", "voice_all", "", now, errMissingToken},
		{"of another job", "sep-2", "voice_all", good, now, errInvalidToken},
		{"of another stem", "sep-1", "speaker_0", good, now, errInvalidToken},
		{"fields shifted", "sep-1\nvoice", "_all", good, now, errInvalidToken},
		{"longer life", "sep-1", "voice_all", "1900000000." + sig, now, errInvalidToken},
		{"expiry with a sign", "sep-1", "voice_all", "+" + good, now, errInvalidToken},
		{"expiry with a zero", "sep-1", "voice_all", "0" + good, now, errInvalidToken},
		{"no dot", "sep-1", "voice_all", exp + sig, now, errInvalidToken},
		{"no signature", "sep-1", "voice_all", exp + ".", now, errInvalidToken},
		{"no expiry", "sep-1", "voice_all", "." + sig, now, errInvalidToken},
		{"cut short", "sep-1", "voice_all", good[:len(good)-1], now, errInvalidToken},
		{"last character", "sep-1", "voice_all", good[:len(good)-1] + twin, now, errInvalidToken},
		{"padded", "sep-1", "voice_all", good + "=", now, errInvalidToken},
		{"a line break inside", "sep-1", "voice_all", good[:20] + "\n" + good[20:], now, errInvalidToken},
		{"very long", "sep-1", "voice_all", good + strings.Repeat("A", 1<<16), now, errInvalidToken},
		{"of the former secret", "sep-1", "voice_all", former.token("sep-1", "voice_all", now.Add(time.Minute)), now, nil},
		{"of another secret", "sep-1", "voice_all", signer{"x", ""}.token("sep-1", "voice_all", now.Add(time.Minute)), now, errInvalidToken},
		{"expired and forged", "sep-1", "voice_all", "1." + sig, now, errInvalidToken},
	}
	for _, tt := range tests {
		if got := s.check(tt.job, tt.stem, tt.token, tt.now); got != tt.want && !errors.Is(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
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

// A path-only URL may include the path of PUBLIC_BASE_URL; an absolute one must.
func TestStemURLsUnderAPath(t *testing.T) {
	s := New(Options{PublicBaseURL: "https://api.example.test/base", SigningSecret: "a secret of at least thirty-two characters", URLLifetime: time.Hour})
	good := s.stemURL("sep-00000000-0000-7000-8000-000000000000", "voice_all")
	bare := strings.TrimPrefix(good, s.PublicBaseURL)
	for raw, want := range map[string]bool{
		good: true, bare: true, "/base" + bare: true, "//api.example.test/base" + bare: false,
		"https://api.example.test" + bare: false, "/other" + bare: false, "/base/base" + bare: false, "base" + bare: false,
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

func TestStemURLsOpenTheirOwnersStems(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *db.DB) {
		r := newHarness(t, d)
		s := r.service()
		owner, other := r.User(2), r.User(2)
		id := r.enqueue(s, owner)
		j := r.claimed(s)
		r.processing(s, &j)
		r.makeReady(s, &j, stemVoice)
		good := s.stemURL(id, stemVoice)
		for name, tt := range map[string]struct {
			owner, url string
			ok         bool
		}{
			"absolute":           {owner, good, true},
			"path only":          {owner, strings.TrimPrefix(good, s.PublicBaseURL), true},
			"host in capitals":   {owner, strings.Replace(good, "api.example.test", "API.example.TEST", 1), true},
			"somebody else":      {other, good, false},
			"another host":       {owner, strings.Replace(good, "api.", "evil.", 1), false},
			"another scheme":     {owner, strings.Replace(good, "https", "http", 1), false},
			"with a password":    {owner, strings.Replace(good, "api.", "a:b@api.", 1), false},
			"another stem":       {owner, strings.Replace(good, stemVoice, stemBackground, 1), false},
			"unknown stem":       {owner, s.stemURL(id, stemBackground), false},
			"no token":           {owner, strings.Split(good, "?")[0], false},
			"escaped characters": {owner, strings.Replace(good, "/stem/", "/st%65m/", 1), false},
			"a dot segment":      {owner, strings.Replace(good, "/stem/", "/stem/./", 1), false},
		} {
			ref, err := s.ResolveStemURL(t.Context(), tt.owner, tt.url)
			if tt.ok && (err != nil || ref.ObjectKey != stemKey(id, stemVoice, "flac")) {
				t.Errorf("%s: %+v, %v", name, ref, err)
			}
			if !tt.ok && !errors.Is(err, errInvalidStemURL) {
				t.Errorf("%s: %v, want invalid_stem_url", name, err)
			}
		}
		token := func(u string) string { return u[strings.Index(u, "=")+1:] }
		obj, name, err := s.OpenStem(t.Context(), id, stemVoice, token(good), "")
		if err != nil || name != "voice_all.flac" {
			t.Fatalf("%q, %v", name, err)
		}
		obj.Close()
		if n := r.Number(`SELECT COUNT(*) FROM separations WHERE collected_at > 0`); n != 1 {
			t.Error("a download does not count as collected")
		}
		r.age(id, 2*time.Hour)
		if err := s.SweepJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		var refused *fault.Error
		if _, _, err := s.OpenStem(t.Context(), id, stemVoice, token(good), ""); !errors.As(err, &refused) || refused.Kind != fault.NotFound {
			t.Errorf("a stem of a DISPOSED job: %v", err)
		}
	})
}
