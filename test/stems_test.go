// Downloads of stems by signed links: ranges, expiry, forged tokens, and WAV.

package test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// stemPath returns the path and query of a stem's URL.
func stemPath(t testing.TB, stem apitest.Stem) string {
	t.Helper()
	u, err := url.Parse(stem.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.RequestURI()
}

// signedStem returns the token of a link to a stem that expires at a time.
func signedStem(secret, job, stem string, expires time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s\n%s\n%d", job, stem, expires.Unix())
	return fmt.Sprintf("%d.%s", expires.Unix(), base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
}

func TestStemDownload(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u := s.SignIn(t)
	job := u.WaitReady(t, u.Separate(t, mixture(t)))
	stem := job.Stem(t, "background")
	if !strings.HasPrefix(stem.URL, s.URL+"/") {
		t.Errorf("url %s is not under PUBLIC_BASE_URL %s", stem.URL, s.URL)
	}
	path := stemPath(t, stem)
	// The token in the URL is enough, without a bearer token.
	whole := s.Do(t, apitest.Request{Path: path, Valid: true}).Expect(200)
	if d := whole.Header.Get("Content-Disposition"); d != `attachment; filename="background.flac"` {
		t.Errorf("Content-Disposition %s", d)
	}
	if ct := whole.Header.Get("Content-Type"); ct != "audio/flac" && ct != "audio/x-flac" {
		t.Errorf("Content-Type %s", ct)
	}
	checkRanges(t, s, apitest.Request{Path: path, Valid: true}, whole.Body)
	// Each status has a new URL. The old one stays valid.
	again := stemPath(t, u.Separation(t, job.JobID).Stem(t, "background"))
	s.Do(t, apitest.Request{Path: again, Valid: true}).Expect(200)
	s.Do(t, apitest.Request{Method: "POST", Path: path}).Expect(405)
	// The separation package tests all tokens.
	s.Do(t, apitest.Request{Path: strings.Replace(path, "background", "voice_all", 1)}).Error(403, "invalid_stem_token")
	s.Do(t, apitest.Request{Path: strings.Replace(path, job.JobID, otherID(job.JobID), 1)}).Error(403, "invalid_stem_token")
}

// A stem as WAV has the same samples, is served in the same way, and is deleted with the stem.
func TestStemAsWAV(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Shared(t)
	u := s.SignIn(t)
	job := u.WaitReady(t, u.Separate(t, mixture(t)))
	path := stemPath(t, job.Stem(t, "background"))
	before := accountOf(t, u).StoredBytes
	wav := apitest.Request{Path: path + "&format=wav", Valid: true}
	// A busy service answers 503 while it makes the file; a client that asks again finds it.
	var whole *apitest.Response
	apitest.Eventually(t, time.Minute, func() bool {
		whole = s.Do(t, wav)
		return whole.Status != http.StatusServiceUnavailable
	}, func() string { return "the WAV file is still being made" })
	whole.Expect(200)
	if d, ct := whole.Header.Get("Content-Disposition"), whole.Header.Get("Content-Type"); d != `attachment; filename="background.wav"` || ct != "audio/wav" {
		t.Errorf("%s of type %s", d, ct)
	}
	checkRanges(t, s, wav, whole.Body)
	if got := accountOf(t, u).StoredBytes; got != before+int64(len(whole.Body)) {
		t.Errorf("%d bytes are stored with the WAV file of %d bytes, %d without it", got, len(whole.Body), before)
	}
	kept := s.Do(t, apitest.Request{Path: path, Valid: true}).Expect(200)
	samples := func(name string, body []byte) []byte {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, body, 0o600); err != nil {
			t.Fatal(err)
		}
		return mediatest.FFmpeg(t, "-i", "file:"+file, "-c:a", "pcm_s32le", "-f", "s32le", "-")
	}
	if want := samples("kept.flac", kept.Body); len(want) == 0 || !bytes.Equal(samples("made.wav", whole.Body), want) {
		t.Error("the samples of the WAV file differ from the stem's")
	}
	for _, format := range []string{"mp3", "WAV", ""} {
		s.Do(t, apitest.Request{Path: path + "&format=" + format}).Error(400, "format must be wav or absent")
	}
	s.Do(t, apitest.Request{Path: strings.Replace(wav.Path, "background", "voice_all", 1)}).Error(403, "invalid_stem_token")
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/separate/" + job.JobID, Valid: true}).Expect(204)
	s.Do(t, wav).Expect(404)
}

// checkRanges fails the test unless the resource supports HEAD and byte ranges of body as RFC 9110 requires.
func checkRanges(t testing.TB, s *apitest.Server, r apitest.Request, body []byte) {
	t.Helper()
	size := len(body)
	head := r
	head.Method = http.MethodHead
	h := s.Do(t, head).Expect(200)
	if n := h.Header.Get("Content-Length"); n != strconv.Itoa(size) {
		t.Errorf("HEAD: Content-Length %s, want %d", n, size)
	}
	if h.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("HEAD: Accept-Ranges %q", h.Header.Get("Accept-Ranges"))
	}
	for _, tt := range []struct {
		header   string
		from, to int // half-open
	}{
		{"bytes=0-0", 0, 1},
		{"bytes=0-99", 0, 100},
		{"Bytes=100-199", 100, 200},
		{fmt.Sprintf("bytes=%d-", size-10), size - 10, size},
		{"bytes=-10", size - 10, size},
		{fmt.Sprintf("bytes=10-%d", size+1000), 10, size},
		{fmt.Sprintf("bytes=-%d", size+1000), 0, size},
	} {
		part := r
		part.Header = http.Header{"Range": {tt.header}}
		res := s.Do(t, part)
		if res.Status == 200 && tt.to-tt.from == size {
			continue // the service may send the whole resource instead of a range of all bytes
		}
		res.Expect(206)
		if !bytes.Equal(res.Body, body[tt.from:tt.to]) {
			t.Errorf("%s: %d bytes, which are not the bytes from %d to %d", tt.header, len(res.Body), tt.from, tt.to)
		}
		if want := fmt.Sprintf("bytes %d-%d/%d", tt.from, tt.to-1, size); res.Header.Get("Content-Range") != want {
			t.Errorf("%s: Content-Range %q, want %q", tt.header, res.Header.Get("Content-Range"), want)
		}
	}
	// The service ignores an unknown unit and a header with thousands of ranges.
	for _, header := range []string{"lines=1-2", "bytes=" + strings.Repeat("0-0,", 2000) + "5-6"} {
		whole := r
		whole.Header = http.Header{"Range": {header}}
		if res := s.Do(t, whole).Expect(200); !bytes.Equal(res.Body, body) {
			t.Errorf("Range %.20s: not the whole resource", header)
		}
	}
	beyond := r
	beyond.Header = http.Header{"Range": {fmt.Sprintf("bytes=%d-", size)}}
	res := s.Do(t, beyond).Expect(416)
	if want := fmt.Sprintf("bytes */%d", size); res.Header.Get("Content-Range") != want {
		t.Errorf("range beyond the end: Content-Range %q, want %q", res.Header.Get("Content-Range"), want)
	}
	strange := r
	strange.Header = http.Header{"Range": {"bytes=abc"}}
	if got := s.Do(t, strange).Status; got != 416 && got != 200 {
		t.Errorf("invalid range: status %d", got)
	}
}
