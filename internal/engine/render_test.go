package engine_test

import (
	"testing"
	"time"

	"cutroom/internal/mediatest"
	"cutroom/internal/timeline"
)

func TestRealClipsBecomeOneFilm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tl := film(
		cut(shared(t, "clip_720p2997.mp4"), 500, 1500),
		cut(shared(t, "clip_480p30.mp4"), 1000, 1500),
		cut(shared(t, "clip_portrait_rot90.mp4"), 0, 750),
		cut(shared(t, "clip_noaudio_360p25.mp4"), 4250, 0),
	)
	tl.Clips = []timeline.Clip{{SourceKey: shared(t, "music_lofi_20s.mp3"), Start: time.Second, Volume: 0.3, Speed: 1}}
	out := b.render(t, tl)
	t.Logf("%+v", out)
	m := mediatest.Inspect(t, out.Path)
	t.Logf("%+v", m)
	if out.Width != 1280 || out.Height != 720 || m.Video(t).Width != 1280 || m.Video(t).FrameRate != "30000/1001" {
		t.Errorf("canvas: %+v", out)
	}
	mediatest.ConstantRate(t, out.Path, 30000.0/1001, int(out.Frames), 20*time.Microsecond)
	mediatest.DurationWithin(t, out.Path, 3000*time.Millisecond, 34*time.Millisecond)
	if !mediatest.IndexFirst(t, out.Path) {
		t.Error("the index comes last")
	}
	again := b.render(t, tl)
	if again.Stats.VideoPartsReused != again.Stats.VideoParts || again.Stats.AudioReused != again.Stats.Audio || again.Stats.AnalysesReused != again.Stats.Analyses {
		t.Errorf("not everything was reused: %+v", again.Stats)
	}
	t.Logf("%+v", again.Stats)
}
