// Separations from submission to stems: forms, prices, missing stems and the queue.

package test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

const separatePath = "/api/v2/separate"

// submit posts a separation form and returns the answer.
func submit(t testing.TB, u *apitest.User, form ...apitest.Part) *apitest.Response {
	t.Helper()
	return u.Send(t, apitest.Request{Method: "POST", Path: separatePath, Form: form})
}

func TestSeparationFromSubmitToStems(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t)
	s.World.Separator.Configure(func(b *separator.Behaviour) { b.NoSpeakers = false })
	u := s.SignIn(t)
	id := u.Separate(t, mixture(t))
	if b := u.Balance(t); b != 2 {
		t.Errorf("balance after submit %d, want 3 - 1", b)
	}
	job := u.WaitReady(t, id)
	if b := u.Balance(t); b != 2 {
		t.Errorf("balance when READY %d, want 2", b)
	}
	var order []string
	for _, s := range job.Stems {
		order = append(order, s.StemID+"="+s.Label)
	}
	want := "voice_all=All speakers speaker_0=Speaker 1 speaker_1=Speaker 2 background=Background audio"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("stems %s\nwant  %s", got, want)
	}
	length := mixtureLength.Milliseconds()
	if d := job.ActualDurationMs - length; d < -50 || d > 50 {
		t.Errorf("actualDurationMs %d, want %d", job.ActualDurationMs, length)
	}
	for _, s := range job.Stems {
		if d := s.DurationMs - length; d < -50 || d > 50 {
			t.Errorf("%s: durationMs %d, want %d", s.StemID, s.DurationMs, length)
		}
	}
	// The stand-in treats sound above 600 Hz as voice.
	voice := u.DownloadStem(t, job.Stem(t, "voice_all"))
	background := u.DownloadStem(t, job.Stem(t, "background"))
	whole := mediatest.Window{}
	if hz := mediatest.DominantTone(t, voice, whole, 300, 1200); hz != 1200 {
		t.Errorf("the voice is %v Hz, want 1200", hz)
	}
	if hz := mediatest.DominantTone(t, background, whole, 300, 1200); hz != 300 {
		t.Errorf("the background is %v Hz, want 300", hz)
	}
	// The service keeps PCM as FLAC, which is lossless: the stems add up to the source.
	if codec := mediatest.Inspect(t, voice).Audio(t).Codec; codec != "flac" {
		t.Errorf("the voice is %s, want flac", codec)
	}
	source, v, b := mediatest.Mono(t, mixture(t)), mediatest.Mono(t, voice), mediatest.Mono(t, background)
	if len(v) != len(source) || len(b) != len(source) {
		t.Fatalf("lengths %d + %d, want %d", len(v), len(b), len(source))
	}
	worst := 0.0
	for i := range source {
		worst = max(worst, math.Abs(source[i]-v[i]-b[i]))
	}
	if worst > 2.0/32768 { // one 16-bit step for each stem
		t.Errorf("voice + background differs from the source by %g", worst)
	}
}

func TestSeparationForms(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	file := apitest.Part{Name: "file", Path: mixture(t), Filename: "a.wav"}
	submit(t, u, file).Sentence(400, "spec") // the handlers' tests cover all refusals
	if b := u.Balance(t); b != 3 {
		t.Errorf("a refused submit changed the balance to %d", b)
	}
	// Obsolete and unknown keys are ignored, part names may be unquoted, and parts may come in any order.
	file.Unquoted = true
	submit(t, u, apitest.Part{Name: "spec", Type: "application/json", Text: `{"sourceLanguageCode":"ko","mediaType":"VIDEO",
		"numberOfSpeakers":-1,"trimStartMs":9,"trimEndMs":1,"unknown":{"x":[]}}`}, file).Expect(202)
	submit(t, u, file, apitest.Part{Name: "spec", Text: `{}`}, apitest.Part{Name: "note", Text: "ignored"}).Expect(202)
}

func TestSeparationPrice(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t)
	s.World.FailSeparator(t, fake.Rule{Step: fake.AnyStep, Kind: fake.KindStall}) // so that nothing is refunded
	defer s.World.Heal()
	u := s.SignIn(t)
	// 302 s of silence cost two credits, as quoted.
	long := filepath.Join(t.TempDir(), "long.wav")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "anullsrc=r=8000:cl=mono", "-t", "302", "-c:a", "pcm_u8", long)
	var quote struct{ Credits int }
	u.Get(t, "/api/v2/credits/cost?durationMs=302000").Expect(200).JSON(&quote)
	submit(t, u, apitest.SeparationForm(long)...).Expect(202)
	if b := u.Balance(t); quote.Credits != 2 || b != 3-quote.Credits {
		t.Errorf("quote %d, balance after submit %d", quote.Credits, b)
	}
	res := submit(t, u, apitest.SeparationForm(long)...)
	if res.Error(402, "insufficient_credits"); res.Detail() != "required=2 balance=1" {
		t.Errorf("detail %q, want required=2 balance=1", res.Detail())
	}
	var short struct{ Required, Balance int }
	if res.JSON(&short); short.Required != 2 || short.Balance != 1 {
		t.Errorf("%+v, want 2 and 1", short)
	}
	// The longest of several tracks determines the price.
	both := filepath.Join(t.TempDir(), "both.m4a")
	mediatest.FFmpeg(t, "-f", "lavfi", "-t", "2", "-i", "anullsrc=r=8000:cl=mono", "-f", "lavfi", "-t", "302", "-i", "anullsrc=r=8000:cl=mono",
		"-map", "0", "-map", "1", "-c:a", "aac", both)
	res = submit(t, u, apitest.SeparationForm(both)...)
	if res.Error(402, "insufficient_credits"); res.Detail() != "required=2 balance=1" {
		t.Errorf("two tracks: detail %q, want required=2 balance=1", res.Detail())
	}
	u.Separate(t, mixture(t))
	res = submit(t, u, apitest.SeparationForm(mixture(t))...)
	if res.Error(402, "insufficient_credits"); res.Detail() != "required=1 balance=0" {
		t.Errorf("detail %q, want required=1 balance=0", res.Detail())
	}
	if b := u.Balance(t); b != 0 {
		t.Errorf("balance %d, want 0", b)
	}
}

// A request without enough credits is refused before the service reads the upload. A repeat of an accepted request
// still returns its job.
func TestEmptyBalanceIsRefusedBeforeTheBody(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u := s.SignIn(t)
	request := withKey(apitest.Request{Method: "POST", Path: separatePath, Form: apitest.SeparationForm(mixture(t))}, "last-credit")
	spend(t, u, 2)
	if first, again := u.Send(t, request).Job(202), u.Send(t, request).Job(202); first != again {
		t.Errorf("the repeat returned %v, want %v", again, first)
	}
	// Send only the header of a request, never its body.
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.Replica(0).URL, "http://")) // a front would wait for the body
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000000\r\n\r\n", separatePath, u.Token)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no response before the body: %v", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if want := `{"error":"insufficient_credits","detail":"required=1 balance=0","required":1,"balance":0}`; err != nil || answer.StatusCode != 402 || strings.TrimSpace(string(body)) != want {
		t.Errorf("%d %s (%v), want 402 %s", answer.StatusCode, body, err, want)
	}
}

// noFilesLeft fails the test unless the staging folder becomes empty.
func noFilesLeft(t testing.TB, s *apitest.Server) {
	t.Helper()
	var left []string
	apitest.Eventually(t, maxWait, func() bool {
		left = nil
		_ = filepath.WalkDir(filepath.Join(s.Storage, "uploads"), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				left = append(left, path)
			}
			return nil // the service may delete the folder in the meantime
		})
		return len(left) == 0
	}, func() string { return "files left in the staging area: " + strings.Join(left, ", ") })
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
