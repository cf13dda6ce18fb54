package engine

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

// scaled matches what ffmpeg 7 and later log about a scaler: the matrix and range of its input and its output.
var scaled = regexp.MustCompile(`(\w+) @ \S+ w:\d+ h:\d+ fmt:(\S+) csp:(\S+) range:(\S+) .*-> .*fmt:(\S+) csp:(\S+) range:(\S+) `)

// unasked returns the conversions of matrix or range in ffmpeg's verbose log that no filter states. Versions before 7
// make none.
func unasked(log string) (found []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "color matrix differs") {
			found = append(found, line)
		}
		m := scaled.FindStringSubmatch(line)
		if m == nil || isRGB(m[2]) || isRGB(m[5]) {
			continue
		}
		if strings.HasPrefix(m[2], "gray") && m[4] == m[7] { // a matte has no matrix
			continue
		}
		if m[3] != m[6] || m[4] != m[7] || m[3] == "unknown" || m[4] == "unknown" {
			found = append(found, line)
		}
	}
	return found
}

// Every picture in every graph states its matrix and range, so that no version of ffmpeg converts it.
func TestNothingIsLeftToNegotiation(t *testing.T) {
	t.Parallel()
	engine := newEngine(t, nil)
	version, err := engine.cfg.Media.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(version, "5.") || strings.HasPrefix(version, "6.") {
		t.Skipf("ffmpeg %s negotiates neither matrix nor range; make test-long runs this test on a later one", version)
	}
	var keys []string
	args := []string{"-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=0.6"}
	for i, look := range []struct{ filter, container, encoder string }{
		{"format=yuv420p", "mp4", "libx264"},
		{"format=yuv420p,setparams=range=tv:colorspace=bt709", "mp4", "libx264"},
		{"format=yuv420p,setparams=range=tv:colorspace=smpte170m", "mp4", "libx264"},
		{"scale=out_range=pc,format=yuv420p,setparams=range=pc:colorspace=bt470bg", "mp4", "libx264"},
		{"format=yuv444p10,setparams=range=tv:colorspace=bt709", "mov", "prores_ks"},
		{"format=yuva444p10,setparams=range=tv:colorspace=bt709", "mov", "prores_ks"},
		{"format=argb", "mov", "qtrle"},
		{"format=rgb24", "mov", "png"},
		{"format=gray", "mp4", "libx264"},
		{"format=yuv420p,setfield=tff,setparams=range=tv:colorspace=bt470bg", "mkv", "libx264 -flags +ildct+ilme"},
		{"format=yuv420p10,setparams=range=tv:colorspace=bt2020nc:color_primaries=bt2020:color_trc=bt709", "mp4", "libx264"},
		{"format=yuv420p10,setparams=range=tv:colorspace=bt2020nc:color_primaries=bt2020:color_trc=arib-std-b67", "mp4", "libx264"},
		{"format=yuv420p10,setparams=range=tv:colorspace=bt2020nc:color_primaries=bt2020:color_trc=smpte2084", "mp4", "libx264"},
		{"format=yuva420p,setparams=range=tv:colorspace=bt709", "webm", "libvpx-vp9 -deadline realtime -cpu-used 8"},
	} {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.%s", i, look.container))
		args = append(append(append(args, "-map", "0", "-vf", look.filter, "-c:v"), strings.Fields(look.encoder)...), path)
		keys = append(keys, path)
	}
	mediatest.FFmpeg(t, args...)

	for i, fit := range []timeline.Fit{timeline.Contain, timeline.Cover, timeline.Blur} {
		t.Run(string(fit), func(t *testing.T) {
			t.Parallel()
			tl := timeline.Timeline{OutputKind: timeline.Video, Quality: timeline.Low, Canvas: &timeline.Canvas{Aspect: "1:1", Fit: fit}}
			joins := []timeline.TransitionKind{timeline.Dissolve, timeline.FadeBlack, timeline.FadeWhite, timeline.Wipe, timeline.Slide, timeline.Push}
			for k, key := range keys {
				s := timeline.Segment{SourceKey: key, Order: int64(k), Duration: time.Hour, Volume: 1, Speed: 1}
				if k%3 == i {
					s.Rotate, s.Mirror, s.Crop, s.Adjust = 90, true, timeline.Crop{Left: 0.2}, timeline.Adjust{Warmth: 1}
				} else if k%3 == (i+1)%3 {
					s.Moves = []timeline.Move{timeline.DefaultMove, {At: time.Second, Scale: 2, X: 1, Y: 0}}
					s.Adjust = timeline.Adjust{Exposure: 0.2}
				} else {
					s.Reverse, s.Smooth = true, true
					s.SpeedPoints = []timeline.SpeedPoint{{Speed: 0.3}, {At: time.Second, Speed: 1}}
				}
				tl.Segments = append(tl.Segments, joinedBy(joins[(i+k)%len(joins)], 200, s))
			}
			r := engine.newRun(jobOf(t, tl))
			defer r.close()
			if err := r.open(t.Context()); err != nil {
				t.Fatal(err)
			}
			run := func(name string, args []string) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "ffmpeg", append([]string{"-nostdin", "-hide_banner", "-v", "verbose", "-y"}, args...)...)
				cmd.Dir = r.path("")
				log, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", name, err, log)
				}
				for _, line := range unasked(string(log)) {
					t.Errorf("%s converts: %s", name, line)
				}
			}
			for _, p := range r.plan.Parts {
				run(fmt.Sprint(p.Name, " of ", filepath.Base(p.shots[0].source.Path)), p.pass(p.File, p.keyframes(0)).Args)
				if fit != timeline.Contain {
					continue
				}
				for _, s := range p.shots {
					s.uneven = true
				}
				run("uneven: "+p.Name, p.pass(p.File, p.keyframes(0)).Args)
			}
		})
	}
}
