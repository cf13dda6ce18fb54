package test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"cutroom/internal/apitest"
	"cutroom/internal/mediatest"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
)

// test/matrix covers all steps, faults and sentences.
func TestProviderFailuresAreMappedAndRefunded(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("SEPARATION_BUSY_WAIT_MIN", "0"))
	u := s.SignIn(t)
	tests := []struct {
		step          string
		status, calls int
		want          string
	}{
		{separator.StepRegister, 402, 1, "provider_quota: Insufficient provider quota"},
		{separator.StepUploadToken, 500, 3, "provider_unavailable: Provider service unavailable"},
	}
	for _, tt := range tests {
		t.Run(tt.step+" "+fmt.Sprint(tt.status), func(t *testing.T) {
			s.World.Separator.Faults.ResetCalls()
			s.World.FailSeparator(t, fake.Rule{Step: tt.step, Kind: fake.KindStatus, Status: tt.status})
			defer s.World.Heal()
			id := u.Separate(t, mixture(t))
			job := u.WaitSeparation(t, id, "FAILED")
			if got := job.ErrorCode + ": " + job.Error; got != tt.want || u.Balance(t) != 3 {
				t.Errorf("error %q, balance %d, want %q, and 3", got, u.Balance(t), tt.want)
			}
			if calls := s.World.Separator.Faults.Count(tt.step); calls != tt.calls {
				t.Errorf("%d calls of a step that answers %d, want %d", calls, tt.status, tt.calls)
			}
		})
	}
}

// stemIDs returns the ids of a job's stems in order.
func stemIDs(job apitest.SeparationStatus) string {
	var out []string
	for _, s := range job.Stems {
		out = append(out, s.StemID)
	}
	return strings.Join(out, " ")
}

func TestStemFallbacks(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t)
	u := s.SignIn(t, apitest.Credits(10))
	run := func(change func(b *separator.Behaviour)) apitest.SeparationStatus {
		t.Helper()
		before := s.World.Separator.Behaviour()
		s.World.Separator.Configure(change)
		defer s.World.Separator.Configure(func(b *separator.Behaviour) { *b = before })
		return u.WaitReady(t, u.Separate(t, mixture(t)))
	}
	t.Run("voice from the speakers", func(t *testing.T) {
		job := run(func(b *separator.Behaviour) { b.NoVoice, b.NoSpeakers = true, false })
		if got := stemIDs(job); got != "voice_all speaker_0 speaker_1 background" {
			t.Errorf("stems %s", got)
		}
		voice := u.DownloadStem(t, job.Stem(t, "voice_all"))
		if hz := mediatest.DominantTone(t, voice, mediatest.Window{}, 300, 1200); hz != 1200 {
			t.Errorf("the voice is %v Hz, want 1200", hz)
		}
		// The voice is the sum of all speakers, not their mean, so its level is that of the source.
		level := mediatest.ToneLevel(t, voice, 1200, mediatest.Window{})
		if source := mediatest.ToneLevel(t, mixture(t), 1200, mediatest.Window{}); math.Abs(level-source) > 0.3 {
			t.Errorf("the voice has %.2f dB, the source %.2f", level, source)
		}
	})
	t.Run("mp3 is kept unchanged", func(t *testing.T) {
		job := run(func(b *separator.Behaviour) { b.StemFormat = "mp3" })
		path := u.DownloadStem(t, job.Stem(t, "voice_all"))
		if !strings.HasSuffix(path, ".mp3") {
			t.Errorf("the stem is served as %s, want audio/mpeg", path)
		}
	})
	t.Run("what FLAC would clip is kept unchanged", func(t *testing.T) {
		loud := mediatest.FFmpeg(t, "-f", "lavfi", "-i", "sine=f=1200:d=1,volume=20dB:precision=float", "-c:a", "pcm_f32le", "-f", "wav", "-")
		s.World.FailSeparator(t, fake.Rule{Step: separator.StepDownload, Path: "voice", Kind: fake.KindGarbage, Body: string(loud)})
		defer s.World.Heal()
		voice := run(func(*separator.Behaviour) {}).Stem(t, "voice_all")
		if got, err := os.ReadFile(u.DownloadStem(t, voice)); err != nil || !bytes.Equal(got, loud) {
			t.Errorf("a voice of %d bytes, above full scale, is served as %d different bytes (%v)", len(loud), len(got), err)
		}
		s.Do(t, apitest.Request{Path: peaksPath(t, voice, "")}).Expect(200)
	})
	if leaks := s.World.Separator.KeyLeaks(); leaks != 0 {
		t.Errorf("the API key went to a storage host %d times", leaks)
	}
}

// The separation package tests which job goes to the provider next.
func TestQueue(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("SEPARATION_MAX_PROVIDER_IN_FLIGHT", "1"))
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 40 })
	a, b := s.SignIn(t), s.SignIn(t)
	a.WaitSeparation(t, a.Separate(t, mixture(t)), "PROCESSING")
	for i, u := range []*apitest.User{b, a, b} {
		job := u.Separation(t, u.Separate(t, mixture(t)))
		if job.Status != "QUEUED" || job.QueuePosition != i+1 {
			t.Errorf("job %d is %s at %d, want QUEUED at %d", i, job.Status, job.QueuePosition, i+1)
		}
		// Without history, the estimate is 180 s for each job, one at a time.
		if job.EstimatedWaitSec != 180*(i+1) {
			t.Errorf("job %d: estimatedWaitSec %d, want %d", i, job.EstimatedWaitSec, 180*(i+1))
		}
	}
	if n := s.World.Separator.Faults.Count(separator.StepUploadToken); n != 1 {
		t.Errorf("the provider got %d jobs, want 1", n)
	}
}

// stallOnce returns a rule that makes one call of a step hang until the client gives up.
func stallOnce(step string) fake.Rule {
	return fake.Rule{Step: step, Times: 1, Kind: fake.KindStall}
}
