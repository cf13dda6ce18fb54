package demo

import (
	"math/big"
	"slices"
	"testing"
	"time"
)

func ownClips() []clip {
	return []clip{scenes[0].clip("a.mp4"), scenes[1].clip("b.mp4")}
}

const msec = time.Millisecond

func TestOwnFilmFallsOnBars(t *testing.T) {
	f := edit(ownClips(), 16800*msec)
	if f.length() != 16800*msec || f.frames() != 504 {
		t.Errorf("%v in %d frames, want 16.8 s in 504", f.length(), f.frames())
	}
	if width, height, rate := f.canvas(); width != 1280 || height != 720 || rate.Cmp(big.NewRat(30, 1)) != 0 {
		t.Errorf("canvas %d×%d at %v", width, height, rate)
	}
	if want := []time.Duration{0, 500 * msec, 2800 * msec, 5600 * msec, 7400 * msec, 7900 * msec, 8400 * msec,
		13500 * msec, 14000 * msec, 14800 * msec, 16300 * msec, 16800 * msec}; !slices.Equal(f.cuts(), want) {
		t.Errorf("cuts %v, want %v", f.cuts(), want)
	}
	if len(f.music) != 2 || f.music[0].end() != 5600*msec || f.music[1].start != 8400*msec || f.music[1].from != 8400*msec || f.music[1].end() != 16300*msec {
		t.Errorf("music %+v", f.music)
	}
	if !f.mutedAt(7400*msec) || f.mutedAt(7399*msec) || f.mutedAt(7900*msec) {
		t.Error("silence does not lead to the dissolve alone")
	}
	if s := f.segments[1]; s.from != 0 || s.start != 7900*msec || s.join != "dissolve" || s.overlap != 500*msec {
		t.Errorf("second segment %+v", s)
	}
	if s := f.segments[2]; s.clip != 0 || s.from != 5600*msec || s.start != 13500*msec || s.join != "push" || s.overlap != 500*msec {
		t.Errorf("third segment %+v", s)
	}
	for at, want := range map[time.Duration]float64{0: 0, 2799 * msec: 0, 2800 * msec: liftVoice, 5600 * msec: 1, 7400 * msec: 0, 8400 * msec: 0} {
		var got float64
		if r := f.remixAt(at); r != nil {
			got = r.voice
		}
		if got != want {
			t.Errorf("voice ×%v at %v, want ×%v", got, at, want)
		}
	}
}

func TestUsersFilm(t *testing.T) {
	clips := []clip{
		{name: "x.mov", width: 479, height: 853, rate: big.NewRat(120, 1), length: 3333333 * time.Microsecond},
		{name: "long.mp4", width: 1920, height: 1080, rate: big.NewRat(30000, 1001), length: time.Hour},
	}
	f := edit(clips, 5*time.Second)
	if want := 3333*msec + ownLongest - 500*msec; f.length() != want {
		t.Errorf("length %v, want %v", f.length(), want)
	}
	if width, height, rate := f.canvas(); width != 478 || height != 852 || rate.Cmp(big.NewRat(60, 1)) != 0 {
		t.Errorf("canvas %d×%d at %v", width, height, rate)
	}
	// The music is too short to continue after the pause, so it starts again.
	if len(f.music) != 2 || f.music[0].to != 2222*msec || f.music[1].from != 3333*msec || f.music[1].to != 5*time.Second {
		t.Errorf("music %+v", f.music)
	}
	if f = edit(clips, 3*time.Second); f.music[1].from != 0 || f.music[1].to != 3*time.Second {
		t.Errorf("short music %+v", f.music)
	}
	if f = edit(clips[:1], time.Minute); len(f.music) != 1 || len(f.segments) != 1 {
		t.Errorf("one clip: %+v", f)
	}
}

func TestLampAreaFollowsTheScaledClip(t *testing.T) {
	f := edit(ownClips(), 16800*msec)
	if a := f.lampArea(0); a != *f.clips[0].lamp {
		t.Errorf("lamp of the first clip at %+v", a)
	}
	// The upright clip is 405 wide in the middle of 1280.
	a := f.lampArea(1)
	if a.x < 799 || a.x > 802 || a.y < 40 || a.y > 43 {
		t.Errorf("lamp of the second clip at %+v", a)
	}
}
