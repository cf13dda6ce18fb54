// The rules of an edit with the sentence for each, the order of segments, and the exact stored form.

package timeline_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/timeline"
)

// full returns a valid timeline that uses every field.
func full() timeline.Timeline {
	return timeline.Timeline{
		OutputKind: timeline.Video, Quality: timeline.High,
		Segments: []timeline.Segment{
			{SourceKey: "a", Order: 2, Duration: 5 * time.Second, TrimStart: time.Second, TrimEnd: 3 * time.Second, Volume: 1, Speed: 1},
			{SourceKey: "b", Order: 1, Duration: time.Second, Volume: 0, Speed: 0.1},
		},
		Clips: []timeline.Clip{{SourceKey: "m", Start: 1, SourceTrimStart: 2, SourceTrimEnd: 3, Volume: 10, Speed: 10}},
		Directives: []timeline.Directive{{
			ID: "d", Range: timeline.Range{Start: 0, End: time.Second}, MuteOriginal: true,
			SourceOffset: 4, AppliedSpeed: 1, Selections: []timeline.Selection{{StemID: "voice_all", SourceKey: "s", Volume: 0.5}},
		}},
	}
}

func TestValidateNamesTheWireField(t *testing.T) {
	nan, inf, long := math.NaN(), math.Inf(1), strings.Repeat("x", 129)
	tests := []struct {
		name   string
		damage func(*timeline.Timeline)
		want   string
	}{
		{"valid", func(*timeline.Timeline) {}, ""},
		{"no segments", func(t *timeline.Timeline) { t.Segments = nil }, "segments must not be empty"},
		{"too many segments", func(t *timeline.Timeline) { t.Segments = slices.Repeat(t.Segments[:1], 201) }, "segments must have at most 200 entries"},
		{"200 segments", func(t *timeline.Timeline) { t.Segments = slices.Repeat(t.Segments[:1], 200) }, ""},
		{"too many clips", func(t *timeline.Timeline) { t.Clips = slices.Repeat(t.Clips, 65) }, "bgmClips must have at most 64 entries"},
		{"too many directives", func(t *timeline.Timeline) { t.Directives = slices.Repeat(t.Directives, 65) }, "separationDirectives must have at most 64 entries"},
		{"output kind", func(t *timeline.Timeline) { t.OutputKind = "gif" }, "outputKind must be video or audio"},
		{"quality", func(t *timeline.Timeline) { t.Quality = "" }, "quality must be low, medium or high"},
		{"source", func(t *timeline.Timeline) { t.Segments[1].SourceKey = "" }, "segments[1].sourceFileKey is required"},
		{"duration", func(t *timeline.Timeline) { t.Segments[0].Duration = 0 }, "segments[0].durationMs must be > 0"},
		{"trim start", func(t *timeline.Timeline) { t.Segments[0].TrimStart = -1 }, "segments[0].trimStartMs must be >= 0"},
		{"trim end negative", func(t *timeline.Timeline) { t.Segments[0].TrimEnd = -1 }, "segments[0].trimEndMs must be >= 0"},
		{"trim end equal", func(t *timeline.Timeline) { t.Segments[0].TrimEnd = time.Second }, "segments[0].trimEndMs must be 0 or > trimStartMs"},
		{"saturated trims", func(t *timeline.Timeline) {
			t.Segments[0].TrimStart, t.Segments[0].TrimEnd = timeline.Milliseconds(math.MaxInt64-1), timeline.Milliseconds(math.MaxInt64)
		}, ""},
		{"volume nan", func(t *timeline.Timeline) { t.Segments[0].Volume = nan }, "segments[0].volumeScale must be a finite number"},
		{"volume negative", func(t *timeline.Timeline) { t.Segments[0].Volume = -0.1 }, "segments[0].volumeScale must be >= 0"},
		{"volume high", func(t *timeline.Timeline) { t.Segments[0].Volume = 10.01 }, "segments[0].volumeScale must be <= 10"},
		{"speed zero", func(t *timeline.Timeline) { t.Segments[1].Speed = 0 }, "segments[1].speedScale must be > 0"},
		{"speed low", func(t *timeline.Timeline) { t.Segments[1].Speed = 0.09 }, "segments[1].speedScale must be >= 0.1"},
		{"speed high", func(t *timeline.Timeline) { t.Segments[1].Speed = 10.5 }, "segments[1].speedScale must be <= 10"},
		{"speed inf", func(t *timeline.Timeline) { t.Segments[1].Speed = inf }, "segments[1].speedScale must be a finite number"},
		{"clip source", func(t *timeline.Timeline) { t.Clips[0].SourceKey = "" }, "bgmClips[0].audioFileKey is required"},
		{"clip start", func(t *timeline.Timeline) { t.Clips[0].Start = -1 }, "bgmClips[0].startMs must be >= 0"},
		{"clip trim start", func(t *timeline.Timeline) { t.Clips[0].SourceTrimStart = -1 }, "bgmClips[0].sourceTrimStartMs must be >= 0"},
		{"clip trim end", func(t *timeline.Timeline) { t.Clips[0].SourceTrimEnd = 2 }, "bgmClips[0].sourceTrimEndMs must be 0 or > sourceTrimStartMs"},
		{"clip volume", func(t *timeline.Timeline) { t.Clips[0].Volume = 11 }, "bgmClips[0].volume must be <= 10"},
		{"clip speed", func(t *timeline.Timeline) { t.Clips[0].Speed = -1 }, "bgmClips[0].speed must be > 0"},
		{"directive id", func(t *timeline.Timeline) { t.Directives[0].ID = "" }, "separationDirectives[0].id is required"},
		{"directive id of 128 bytes", func(t *timeline.Timeline) { t.Directives[0].ID = strings.Repeat("é", 64) }, ""},
		{"directive id of 129 bytes", func(t *timeline.Timeline) { t.Directives[0].ID = strings.Repeat("é", 64) + "x" },
			"separationDirectives[0].id must have at most 128 bytes"},
		{"long stem id", func(t *timeline.Timeline) { t.Directives[0].Selections[0].StemID = long }, "separationDirectives[0].selections[0].stemId must have at most 128 bytes"},
		{"long source", func(t *timeline.Timeline) { t.Segments[1].SourceKey = long }, "segments[1].sourceFileKey must have at most 128 bytes"},
		{"long clip source", func(t *timeline.Timeline) { t.Clips[0].SourceKey = long }, "bgmClips[0].audioFileKey must have at most 128 bytes"},
		{"range start", func(t *timeline.Timeline) { t.Directives[0].Range.Start = -1 }, "separationDirectives[0].rangeStartMs must be >= 0"},
		{"range end", func(t *timeline.Timeline) { t.Directives[0].Range.End = 0 }, "separationDirectives[0].rangeEndMs must be > rangeStartMs"},
		{"offset", func(t *timeline.Timeline) { t.Directives[0].SourceOffset = -1 }, "separationDirectives[0].sourceOffsetMs must be >= 0"},
		{"applied speed", func(t *timeline.Timeline) { t.Directives[0].AppliedSpeed = 0 }, "separationDirectives[0].appliedSpeedScale must be > 0"},
		{"selections", func(t *timeline.Timeline) {
			t.Directives[0].Selections = slices.Repeat(t.Directives[0].Selections, 17)
		}, "separationDirectives[0].selections must have at most 16 entries"},
		{"stem id", func(t *timeline.Timeline) { t.Directives[0].Selections[0].StemID = "" }, "separationDirectives[0].selections[0].stemId is required"},
		{"rotate", func(t *timeline.Timeline) { t.Segments[1].Rotate = 45 }, "segments[1].rotate must be 0, 90, 180 or 270"},
		{"rotate back", func(t *timeline.Timeline) { t.Segments[1].Rotate = -90 }, "segments[1].rotate must be 0, 90, 180 or 270"},
		{"crop", func(t *timeline.Timeline) { t.Segments[1].Crop.Top = 0.91 }, "segments[1].crop.top must be 0..0.9"},
		{"crop of a width", func(t *timeline.Timeline) { t.Segments[1].Crop = timeline.Crop{Left: 0.5, Right: 0.41} },
			"segments[1].crop.right must be at most 0.9 together with left"},
		{"crop of a height", func(t *timeline.Timeline) { t.Segments[1].Crop = timeline.Crop{Top: 0.01, Bottom: 0.9} },
			"segments[1].crop.bottom must be at most 0.9 together with top"},
		{"largest crop", func(t *timeline.Timeline) {
			t.Segments[1].Crop = timeline.Crop{Left: 0.3, Right: 0.6, Top: 0.83, Bottom: 0.07}
		}, ""},
		{"moves", func(t *timeline.Timeline) { t.Segments[1].Moves = make([]timeline.Move, 17) }, "segments[1].moves must have at most 16 entries"},
		{"move scale", func(t *timeline.Timeline) { t.Segments[1].Moves = []timeline.Move{{Scale: 0.9}} }, "segments[1].moves[0].scale must be 1..8"},
		{"move x", func(t *timeline.Timeline) { t.Segments[1].Moves = []timeline.Move{{Scale: 8, X: 1.01}} }, "segments[1].moves[0].x must be 0..1"},
		{"move y", func(t *timeline.Timeline) { t.Segments[1].Moves = []timeline.Move{{Scale: 8, Y: nan}} }, "segments[1].moves[0].y must be 0..1"},
		{"move early", func(t *timeline.Timeline) { t.Segments[1].Moves = []timeline.Move{{At: -1, Scale: 1}} }, "segments[1].moves[0].atMs must be >= 0"},
		{"moves that stand still", func(t *timeline.Timeline) {
			t.Segments[1].Moves = []timeline.Move{timeline.DefaultMove, timeline.DefaultMove}
		}, "segments[1].moves[1].atMs must be > that of the point before it"},
		{"saturated moves", func(t *timeline.Timeline) {
			t.Segments[1].Moves = []timeline.Move{timeline.DefaultMove, {At: math.MaxInt64, Scale: 2}, {At: math.MaxInt64, Scale: 3}}
		}, ""},
		{"one speed point", func(t *timeline.Timeline) { t.Segments[1].SpeedPoints = speeds(1) }, "segments[1].speedPoints must have at least 2 entries"},
		{"speed points", func(t *timeline.Timeline) { t.Segments[1].SpeedPoints = speeds(17) }, "segments[1].speedPoints must have at most 16 entries"},
		{"16 speed points", func(t *timeline.Timeline) { t.Segments[1].Speed, t.Segments[1].SpeedPoints = 1, speeds(16) }, ""},
		{"no speed points", func(t *timeline.Timeline) { t.Segments[1].Speed, t.Segments[1].SpeedPoints = 2, speeds(0) }, ""},
		{"late speed points", func(t *timeline.Timeline) { t.Segments[1].SpeedPoints = speeds(3)[1:] },
			"segments[1].speedPoints[0].atMs must be 0 in the first point"},
		{"speed points that stand still", func(t *timeline.Timeline) { t.Segments[1].SpeedPoints = slices.Repeat(speeds(1), 2) },
			"segments[1].speedPoints[1].atMs must be > that of the point before it"},
		{"slow speed point", func(t *timeline.Timeline) {
			t.Segments[1].SpeedPoints = []timeline.SpeedPoint{{Speed: 10}, {At: 1, Speed: 0.09}}
		}, "segments[1].speedPoints[1].speed must be 0.1..10"},
		{"speed points and a speed", func(t *timeline.Timeline) { t.Segments[1].Speed, t.Segments[1].SpeedPoints = 2, speeds(2) },
			"segments[1].speedPoints must not be set together with speedScale"},
		{"adjust", func(t *timeline.Timeline) { t.Segments[1].Adjust.Tint = -1.1 }, "segments[1].adjust.tint must be -1..1"},
		{"stem source", func(t *timeline.Timeline) { t.Directives[0].Selections[0].SourceKey = "" }, "separationDirectives[0].selections[0].audioUrl is required"},
		{"stem volume", func(t *timeline.Timeline) { t.Directives[0].Selections[0].Volume = nan }, "separationDirectives[0].selections[0].volume must be a finite number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tl := full()
			tt.damage(&tl)
			checkFault(t, tl.Validate(timeline.MultipartNames), tt.want)
		})
	}
}

// speeds returns n valid speed points.
func speeds(n int) (points []timeline.SpeedPoint) {
	for i := range n {
		points = append(points, timeline.SpeedPoint{At: time.Duration(i), Speed: 0.1})
	}
	return points
}

func TestValidateUsesTheNamesOfThePath(t *testing.T) {
	tl := full()
	tl.Segments[0].SourceKey = ""
	checkFault(t, tl.Validate(timeline.AssetNames), "segments[0].sourceAssetKey is required")
	tl = full()
	tl.Clips[0].SourceKey = ""
	checkFault(t, tl.Validate(timeline.AssetNames), "bgmClips[0].audioAssetKey is required")
	checkFault(t, timeline.Legacy("video", 0).Validate(timeline.LegacyNames), "videoDurationMs must be > 0")
	checkFault(t, timeline.Legacy("video", time.Second).Validate(timeline.LegacyNames), "")
}

func checkFault(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("got %v, want no error", err)
		}
		return
	}
	f := fault.As(err)
	if f == nil || f.Kind != fault.Invalid || f.Answer() != want {
		t.Fatalf("got %v, want a 400 with %q", err, want)
	}
}

func TestSegmentsPlayInOrderWithTiesInListOrder(t *testing.T) {
	tl := timeline.Timeline{}
	for i, order := range []int64{5, -1, 5, math.MaxInt64, math.MinInt64, 5} {
		tl.Segments = append(tl.Segments, timeline.Segment{SourceKey: string(rune('a' + i)), Order: order})
	}
	segments, indexes := tl.InOrder()
	var keys strings.Builder
	for i, s := range segments {
		keys.WriteString(s.SourceKey)
		if tl.Segments[indexes[i]].SourceKey != s.SourceKey {
			t.Errorf("index %d does not lead back to segment %q", indexes[i], s.SourceKey)
		}
	}
	if keys.String() != "ebacfd" {
		t.Errorf("played %q, want ebacfd", keys.String())
	}
	if tl.Segments[0].Order != 5 {
		t.Error("the timeline itself was reordered")
	}
}

func TestMillisecondsSaturates(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		0: 0, 1: time.Millisecond, -1: -time.Millisecond, 9223372036854: 9223372036854 * time.Millisecond,
		9223372036855: math.MaxInt64, math.MaxInt64: math.MaxInt64, math.MinInt64: math.MinInt64,
	} {
		if got := timeline.Milliseconds(ms); got != want {
			t.Errorf("Milliseconds(%d) = %d, want %d", ms, got, want)
		}
	}
}

// The stored form is pinned to the letter: jobs written by an older program must stay readable, and its renders must be
// able to read what this one writes.
func TestStoredFormIsStable(t *testing.T) {
	least := full()
	least.Segments, least.Clips, least.Directives[0].Selections = least.Segments[1:], nil, nil
	most, side := full(), int64(1080)
	s, c := &most.Segments[0], &most.Clips[0]
	most.Segments = most.Segments[:1]
	s.Points, s.Transition = []timeline.Point{{At: 1, Volume: 0.5}}, &timeline.Transition{Kind: timeline.FadeWhite, Duration: time.Second}
	s.Fit, s.Focus = timeline.Blur, &timeline.Focus{X: 0.25, Y: 1}
	s.Rotate, s.Mirror, s.Crop, s.Moves = 90, true, timeline.Crop{Left: 0.5}, []timeline.Move{{At: 1, Scale: 2, X: 0.5}}
	s.Adjust = timeline.Adjust{Exposure: 0.5, Contrast: 0.25, Saturation: -1, Warmth: 1, Tint: 0.125}
	s.Reverse, s.Smooth, s.SpeedPoints = true, true, []timeline.SpeedPoint{{Speed: 1}, {At: 5, Speed: 0.5}}
	c.FadeIn, c.FadeOut, c.Loop, c.End, c.Ducking = 1, 2, true, 9, &timeline.Ducking{AmountDB: 9, Attack: 3, Release: 4}
	most.Loudness, most.Canvas = &timeline.DefaultLoudness, &timeline.Canvas{Aspect: "9:16", MaxSide: &side, Fit: timeline.Cover}
	most.FadeIn, most.FadeOut = &timeline.DefaultFilmFade, &timeline.FilmFade{Colour: timeline.White, Duration: 1}
	for text, want := range map[string]timeline.Timeline{
		`{"v":1,"kind":"video","quality":"high","segments":[` +
			`{"source":"b","order":1,"durationNs":1000000000,"trimStartNs":0,"trimEndNs":0,"volume":0,"speed":0.1}],` +
			`"directives":[{"id":"d","startNs":0,"endNs":1000000000,"muteOriginal":true,"sourceOffsetNs":4,"appliedSpeed":1}]}`: least,
		`{"v":1,"kind":"video","quality":"high","segments":[` +
			`{"source":"a","order":2,"durationNs":5000000000,"trimStartNs":1000000000,"trimEndNs":3000000000,"volume":1,"speed":1,` +
			`"points":[{"atNs":1,"volume":0.5}],"transition":{"type":"fadeWhite","durationNs":1000000000},"fit":"blur","focus":{"x":0.25,"y":1},` +
			`"rotate":90,"mirror":true,"crop":{"left":0.5},"moves":[{"atNs":1,"scale":2,"x":0.5,"y":0}],` +
			`"adjust":{"exposure":0.5,"contrast":0.25,"saturation":-1,"warmth":1,"tint":0.125},` +
			`"reverse":true,"smooth":true,"speedPoints":[{"atNs":0,"speed":1},{"atNs":5,"speed":0.5}]}],` +
			`"clips":[{"source":"m","startNs":1,"trimStartNs":2,"trimEndNs":3,"volume":10,"speed":10,"fadeInNs":1,"fadeOutNs":2,` +
			`"loop":true,"endNs":9,"ducking":{"amountDb":9,"attackNs":3,"releaseNs":4}}],` +
			`"directives":[{"id":"d","startNs":0,"endNs":1000000000,"muteOriginal":true,"sourceOffsetNs":4,"appliedSpeed":1,` +
			`"selections":[{"stemId":"voice_all","source":"s","volume":0.5}]}],"loudness":{"targetLufs":-14,"maxTruePeakDb":-1},` +
			`"canvas":{"aspect":"9:16","maxSide":1080,"fit":"cover"},` +
			`"fadeIn":{"color":"black","durationNs":500000000},"fadeOut":{"color":"white","durationNs":1}}`: most,
	} {
		if data, err := json.Marshal(want); err != nil || string(data) != text {
			t.Errorf("stored as\n%s, %v\nnot as\n%s", data, err, text)
		}
		if got, err := decode([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nis read as %+v, %v", text, got, err)
		}
	}
}

func decode(data []byte) (tl timeline.Timeline, err error) {
	err = json.Unmarshal(data, &tl)
	return tl, err
}

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, data := range []string{"", "{", `{"v":2}`, `{}`, `[]`} {
		if _, err := decode([]byte(data)); err == nil {
			t.Errorf("Decode(%q) succeeded", data)
		} else if f := fault.As(err); f != nil {
			t.Errorf("Decode(%q): a stored row is never the client's fault: %v", data, f)
		}
	}
}

func FuzzValidate(f *testing.F) {
	f.Add(int64(1000), int64(0), int64(500), 1.0, 1.0, int64(0), int64(10), "a", uint8(3))
	f.Add(int64(math.MaxInt64), int64(0), int64(500), 1.0, 1.0, int64(0), int64(10), "a", uint8(3))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), math.Inf(1), math.NaN(), int64(-1), int64(math.MinInt64), "", uint8(255))
	f.Fuzz(func(t *testing.T, duration, in, out int64, volume, speed float64, start, end int64, key string, n uint8) {
		ms := timeline.Milliseconds
		tl := timeline.Timeline{OutputKind: timeline.Audio, Quality: timeline.Low}
		for i := range int(n) {
			tl.Segments = append(tl.Segments, timeline.Segment{
				SourceKey: key, Order: start * int64(i), Duration: ms(duration), TrimStart: ms(in), TrimEnd: ms(out), Volume: volume, Speed: speed})
		}
		tl.Clips = []timeline.Clip{{SourceKey: key, Start: ms(start), SourceTrimStart: ms(in), SourceTrimEnd: ms(out), Volume: volume, Speed: speed}}
		tl.Directives = []timeline.Directive{{ID: key, Range: timeline.Range{Start: ms(start), End: ms(end)}, SourceOffset: ms(in), AppliedSpeed: speed,
			Selections: []timeline.Selection{{StemID: key, SourceKey: key, Volume: volume}}}}
		err := tl.Validate(timeline.AssetNames)
		if err != nil {
			var fe *fault.Error
			if !errors.As(err, &fe) || fe.Kind != fault.Invalid || fe.Answer() == "" {
				t.Fatalf("not a 400 with a sentence: %v", err)
			}
			return
		}
		for _, s := range tl.Segments {
			if s.Duration <= 0 || s.TrimStart < 0 || !(s.Speed >= 0.1 && s.Speed <= 10) || !(s.Volume >= 0 && s.Volume <= 10) ||
				(s.TrimEnd != 0 && s.TrimEnd != math.MaxInt64 && s.TrimEnd <= s.TrimStart) {
				t.Fatalf("passed: %+v", s)
			}
		}
		if r := tl.Directives[0].Range; r.Start < 0 || r.End <= r.Start {
			t.Fatalf("passed: %+v", r)
		}
		if keys, sum := tl.SourceKeys(), tl.SourceDuration(); len(keys) != 1 || sum < 0 {
			t.Fatalf("keys %v, %v of sources", keys, sum)
		}
		data, err := json.Marshal(tl)
		if err != nil {
			t.Fatalf("a valid timeline must be storable: %v", err)
		}
		if back, err := decode(data); err != nil || len(back.Segments) != int(n) {
			t.Fatalf("stored form lost segments: %v", err)
		}
	})
}
