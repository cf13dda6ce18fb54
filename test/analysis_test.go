// POST /assets/analysis, and how its work is shared fairly among accounts.

package test

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

const analysisPath = "/api/v2/assets/analysis"

// whenFree repeats a request while the service is busy: a request that waits longer than 20 s for its turn gets 503.
func whenFree(t testing.TB, send func() *apitest.Response) *apitest.Response {
	t.Helper()
	var r *apitest.Response
	apitest.Eventually(t, 5*time.Minute, func() bool {
		r = send()
		return r.Status != http.StatusServiceUnavailable
	}, func() string { return "the service is still busy" })
	return r
}

// analysis is the body of POST /assets/analysis.
type analysis struct {
	DurationMs     int64
	HasVideo       bool
	Width, Height  *int
	FrameRate      *float64
	HasAudio       bool
	IntegratedLUFS *float64 `json:"integratedLufs"`
	TruePeakDB     *float64 `json:"truePeakDb"`
	OnsetsMs       []int64
	Peaks          *waveform
}

// generate makes a file for one test with ffmpeg.
func generate(t testing.TB, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	mediatest.FFmpeg(t, append(args, path)...)
	return path
}

func TestAnalysis(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u, other := s.SignIn(t), s.SignIn(t)
	analyse := func(u *apitest.User, path, ext string, more M) (a analysis) {
		t.Helper()
		body := M{"assetKey": uploadAsset(t, u, path, ext, "video/mp4")}
		for k, v := range more {
			body[k] = v
		}
		whenFree(t, func() *apitest.Response { return u.Post(t, analysisPath, body) }).Expect(200).JSON(&a)
		return a
	}

	// A rotated film with ticks at 0.5 s, 1.0 s, ...
	lying := generate(t, "lying.mp4", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=3", "-f", "lavfi", "-i",
		"aevalsrc='0.5*sin(2*PI*1000*t)*exp(-40*mod(t\\,0.5))*gt(t\\,0.4)':s=44100:d=3", "-pix_fmt", "yuv420p", "-c:a", "aac")
	film := mediatest.WithMatrix(t, lying, [4]int32{0, 1, -1, 0})
	a := analyse(u, film, "mp4", nil)
	if d := a.DurationMs; d < 2990 || d > 3060 || !a.HasVideo || *a.Width != 180 || *a.Height != 320 || *a.FrameRate != 25 || !a.HasAudio {
		t.Errorf("a film of 3 s, 180x320 as displayed: %+v", a)
	}
	for i, want := range []int64{500, 1000, 1500, 2000, 2500} {
		if len(a.OnsetsMs) != 5 || math.Abs(float64(a.OnsetsMs[i]-want)) > 30 {
			t.Fatalf("onsets at %v", a.OnsetsMs)
		}
	}
	if a.Peaks == nil || a.Peaks.Length > 1000 || a.Peaks.Length < 850 || a.Peaks.SampleRate != 48000 {
		t.Errorf("peaks %+v", a.Peaks)
	}

	// Music with a cover. For another account it is not decoded again.
	cover := generate(t, "cover.png", "-f", "lavfi", "-i", "color=red:s=64x64", "-frames:v", "1")
	music := generate(t, "music.m4a", "-f", "lavfi", "-i", "sine=f=997:d=2:r=48000", "-i", cover, "-map", "0", "-map", "1",
		"-c:a", "aac", "-c:v", "png", "-disposition:v", "attached_pic")
	a = analyse(u, music, "m4a", M{"points": 200})
	if a.HasVideo || a.Width != nil || a.Height != nil || a.FrameRate != nil || len(a.Peaks.Data) > 400 {
		t.Errorf("music with a cover: %+v", a)
	}
	// ffmpeg's ebur128 measures the same. The encoder overshoots at the start of the sine.
	if math.Abs(*a.IntegratedLUFS+21.1) > 0.2 || math.Abs(*a.TruePeakDB+16.7) > 0.3 {
		t.Errorf("%v LUFS, %v dBTP", *a.IntegratedLUFS, *a.TruePeakDB)
	}
	var again analysis
	other.Post(t, analysisPath, M{"assetKey": "assets/" + sha256Of(t, music) + ".m4a", "points": 100}).Expect(200).JSON(&again)
	if *again.IntegratedLUFS != *a.IntegratedLUFS || again.Peaks.Length > 100 {
		t.Errorf("for another account: %+v", again)
	}
	var list struct{ Assets []struct{ AssetKey string } }
	other.Get(t, "/api/v2/assets").Expect(200).JSON(&list)
	if len(list.Assets) != 1 {
		t.Errorf("an analysed asset is not its user's: %+v", list)
	}

	silent := analyse(u, generate(t, "silence.wav", "-f", "lavfi", "-i", "anullsrc=d=1"), "wav", nil)
	if !silent.HasAudio || silent.IntegratedLUFS != nil || silent.TruePeakDB != nil || len(silent.OnsetsMs) > 0 || silent.Peaks == nil {
		t.Errorf("silence: %+v", silent)
	}
	// A second of audio that starts late is as loud as without the delay.
	late := analyse(u, generate(t, "late.mp4", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=10:d=4", "-itsoffset", "3", "-f", "lavfi", "-i",
		"sine=f=997:d=1:r=48000", "-pix_fmt", "yuv420p", "-c:a", "aac"), "mp4", nil)
	if l := late.IntegratedLUFS; l == nil || math.Abs(*l+21.1) > 0.2 {
		t.Errorf("a late sound: %+v", late)
	}
	// Audio only in the centre channel.
	centre := analyse(u, generate(t, "centre.wav", "-f", "lavfi", "-i", "aevalsrc=0|0|0.2*sin(2*PI*997*t):c=3.0:s=48000:d=1"), "wav", nil)
	if l := centre.IntegratedLUFS; l == nil || math.Abs(*l+17) > 0.2 {
		t.Errorf("the centre channel alone: %+v", centre)
	}
	mute := analyse(u, generate(t, "mute.webm", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=10:d=1", "-c:v", "libvpx"), "webm", nil)
	if mute.HasAudio || mute.Peaks != nil || mute.OnsetsMs != nil || mute.IntegratedLUFS != nil || !mute.HasVideo || *mute.FrameRate != 10 {
		t.Errorf("a film without sound: %+v", mute)
	}

	text := filepath.Join(t.TempDir(), "text.mp4")
	if err := os.WriteFile(text, []byte("this is no film"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := uploadAsset(t, u, text, "mp4", "video/mp4")
	for range 2 {
		u.Post(t, analysisPath, M{"assetKey": broken}).Error(400, "assetKey names a file without readable pictures or sound")
	}
	for points, sentence := range map[any]string{
		99: "points must be 100..4000", 4001: "points must be 100..4000", 100.5: "points must be an integer", "100": "points must be an integer",
	} {
		u.Send(t, apitest.Request{Method: "POST", Path: analysisPath, JSON: M{"assetKey": broken, "points": points}}).Error(400, sentence)
	}
	u.Post(t, analysisPath, M{"assetKey": "assets/x.mp4"}).Error(400, "invalid_asset_key")
	u.Post(t, analysisPath, M{"assetKey": "assets/" + strings.Repeat("01ab", 16) + ".mp4"}).Expect(404)
}

// If requests of one account wait for the bucket, nothing of another account waits: no render, no analysis and no
// separation. The requests transfer one asset at a time.
func TestRequestsKeepNoOtherAccountWaiting(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.StandInBucket())
	greedy, other := s.SignIn(t), s.SignIn(t)
	film := uploadAsset(t, other, generate(t, "film.mp4", "-f", "lavfi", "-i", "testsrc2=s=64x64:d=1", "-pix_fmt", "yuv420p"), "mp4", "video/mp4")
	var stalled []string
	for n := range 12 {
		tone := generate(t, "tone.mp3", "-f", "lavfi", "-i", fmt.Sprintf("sine=f=%d:d=1", 300+n))
		key := uploadAsset(t, greedy, tone, "mp3", "audio/mpeg")
		s.World.FailBucket(t, fake.Rule{Step: bucket.StepGet, Path: "/" + key, Kind: fake.KindStall})
		stalled = append(stalled, key)
	}
	transfers := func() (n int) {
		for _, hits := range s.World.Bucket.Faults.Hits() {
			n += min(1, hits)
		}
		return n
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer s.World.Heal()
	for i, key := range stalled {
		path, body := separateV3Path, M{"sourceAssetKey": key}
		if i%2 == 1 {
			path, body = analysisPath, M{"assetKey": key}
		}
		all.Go(func() {
			_, _ = greedy.TryDo(t, apitest.Request{Method: "POST", Path: path, JSON: body, Token: greedy.Token}) // whatever the answer
		})
	}
	apitest.Eventually(t, maxWait, func() bool { return transfers() > 0 }, func() string { return "nothing is fetched" })
	id := other.Post(t, "/api/v2/render/v3", ofAsset(film, 1000)).Job(200)
	other.WaitRendered(t, id)
	other.Post(t, analysisPath, M{"assetKey": film}).Expect(200)
	other.Send(t, apitest.Request{Method: "POST", Path: separatePath, Form: apitest.SeparationForm(mixture(t))}).Job(202)
	if n := transfers(); n != 1 {
		t.Errorf("%d assets are fetched for one account at once", n)
	}
}
