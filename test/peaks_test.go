package test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// waveform is the public audiowaveform format.
type waveform struct {
	Version, Channels, Bits, Length int
	SampleRate                      int `json:"sample_rate"`
	SamplesPerPixel                 int `json:"samples_per_pixel"`
	Data                            []int
}

// peaksPath returns the path of a stem's peaks with additional query parameters.
func peaksPath(t testing.TB, stem apitest.Stem, more string) string {
	t.Helper()
	path, query, _ := strings.Cut(stemPath(t, stem), "?")
	return path + "/peaks?" + query + more
}

// burst makes a clip in the voice band: a loud and a soft second, surrounded by silence, at 44.1 kHz. One channel has
// half the level of the other.
func burst(t testing.TB) string {
	return fixture(t, "burst", func(t testing.TB) string {
		path := t.TempDir() + "/burst.wav"
		mediatest.FFmpeg(t, "-f", "lavfi", "-i", "aevalsrc=(0.8*between(t\\,1\\,2)+0.1*between(t\\,3\\,4))*sin(2*PI*1500*t)|"+
			"(0.4*between(t\\,1\\,2)+0.05*between(t\\,3\\,4))*sin(2*PI*1500*t):s=44100:d=5", "-c:a", "pcm_s16le", path)
		return path
	})
}

// checkPeaks fails the test unless the peaks match the 16-bit file at path.
func checkPeaks(t testing.TB, w waveform, path string, points int) {
	t.Helper()
	stream, per := mediatest.Inspect(t, path).Audio(t), w.SamplesPerPixel
	if w.Version != 2 || w.Channels != 1 || w.Bits != 8 || w.SampleRate != stream.SampleRate || len(w.Data) != 2*w.Length {
		t.Fatalf("wrong format: version %d, %d channels, %d bits, %d Hz, length %d with %d numbers", w.Version, w.Channels, w.Bits, w.SampleRate, w.Length, len(w.Data))
	}
	var samples []int // the means of the channels
	raw := mediatest.FFmpeg(t, "-i", "file:"+path, "-map", "0:a:0", "-c:a", "pcm_s16le", "-f", "s16le", "-")
	for ; len(raw) >= 2*stream.Channels; raw = raw[2*stream.Channels:] {
		sum := 0
		for c := range stream.Channels {
			sum += int(int16(binary.LittleEndian.Uint16(raw[2*c:])))
		}
		samples = append(samples, sum/stream.Channels)
	}
	if w.Length > points || w.Length < points*85/100 || per*w.Length < len(samples) || per*(w.Length-1) >= len(samples) {
		t.Fatalf("%d pairs of %d for %d points and %d samples", w.Length, per, points, len(samples))
	}
	i := 0
	for part := range slices.Chunk(samples, per) {
		if low, high := slices.Min(part)/256, slices.Max(part)/256; w.Data[2*i] != low || w.Data[2*i+1] != high {
			t.Fatalf("pair %d of %d: %d, %d, want %d, %d", i, w.Length, w.Data[2*i], w.Data[2*i+1], low, high)
		}
		i++
	}
}

func TestPeaks(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Shared(t)
	u := s.SignIn(t)
	job := u.WaitReady(t, u.Separate(t, burst(t)))
	voice := job.Stem(t, "voice_all")
	get := func(stem apitest.Stem, more string) (w waveform) {
		t.Helper()
		s.Do(t, apitest.Request{Path: peaksPath(t, stem, more), Valid: true}).Expect(200).JSON(&w)
		return w
	}
	w := get(voice, "")
	if now := u.Separation(t, job.JobID); now.ExpiresAt != job.ExpiresAt {
		t.Errorf("expires at %d after its peaks were drawn, %d before: nothing was collected", now.ExpiresAt, job.ExpiresAt)
	}
	for _, stem := range job.Stems {
		path := s.DownloadStem(t, stem)
		for _, points := range []int{1000, 100, 333, 4000} {
			checkPeaks(t, get(stem, fmt.Sprint("&points=", points)), path, points)
		}
	}
	checkPeaks(t, w, s.DownloadStem(t, voice), 1000)

	path := peaksPath(t, voice, "")
	first := s.Do(t, apitest.Request{Path: path, Valid: true}).Expect(200)
	tag := first.Header.Get("ETag")
	if tag == "" || first.Header.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("ETag %q, Cache-Control %q", tag, first.Header.Get("Cache-Control"))
	}
	if other := s.Do(t, apitest.Request{Path: path + "&points=500", Valid: true}).Expect(200).Header.Get("ETag"); other == tag {
		t.Error("different points have the same ETag")
	}
	again := s.Do(t, apitest.Request{Path: path, Header: http.Header{"If-None-Match": {tag}}, Valid: true}).Expect(304)
	if len(again.Body) > 0 || again.Header.Get("ETag") != tag {
		t.Errorf("304 with %d bytes and ETag %q", len(again.Body), again.Header.Get("ETag"))
	}
	peaksAreRefusedAsTheStemIs(t, s, u, job)
}

// peaksAreRefusedAsTheStemIs deletes the user at the end.
func peaksAreRefusedAsTheStemIs(t *testing.T, s *apitest.Server, u *apitest.User, job apitest.SeparationStatus) {
	voice := job.Stem(t, "voice_all")
	path, _, _ := strings.Cut(peaksPath(t, voice, ""), "?")
	_, token, _ := strings.Cut(peaksPath(t, voice, ""), "?token=")
	get := func(path string) *apitest.Response { t.Helper(); return s.Do(t, apitest.Request{Path: path}) }
	get(path).Error(401, "missing_token")
	u.Send(t, apitest.Request{Path: path}).Error(401, "missing_token") // a bearer token is not a stem token
	get(path+"?token="+token+"0").Error(403, "invalid_stem_token")
	get(path+"?token=1."+strings.Repeat("A", 43)).Error(403, "invalid_stem_token")
	get(strings.Replace(path, "voice_all", "background", 1)+"?token="+token).Error(403, "invalid_stem_token")
	get(path+"?token=&points=5").Error(401, "missing_token") // the token is checked first
	for _, points := range []string{"99", "4001", "0", "-1000", "1e3", "1000.0", "many", "", "9999999999999999999999"} {
		get(path+"?token="+token+"&points="+points).Error(400, "invalid_points")
	}
	for _, points := range []string{"100", "4000"} {
		get(path + "?token=" + token + "&points=" + points).Expect(200)
	}
	s.Do(t, apitest.Request{Method: "POST", Path: path + "?token=" + token}).Expect(405)
	deleteAccount(t, u)
	get(path + "?token=" + token).Sentence(404)
	waitFilesGone(t, s, job.JobID)
}
