// The edit of the demonstration, with its dissolve, push, remix and music, and what follows from it: what each moment
// of the film must show and sound like.

package demo

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"
)

// clip is one source film.
type clip struct {
	name string // for people
	path string
	// width and height are as displayed.
	width, height int
	rate          *big.Rat
	length        time.Duration // of the pictures
	lamp          *lamp         // nil for a clip without flashes and ticks
	silent        bool          // without sound
}

// segment is a range of a clip in the film. Everything plays at speed 1.
type segment struct {
	clip     int
	from, to time.Duration // in the clip
	volume   float64
	start    time.Duration // in the film
	fit      string        // "" means pad
	join     string        // type of the transition from the previous segment; "" means cut
	overlap  time.Duration // with the previous segment
}

func (s segment) length() time.Duration { return s.to - s.from }

func (s segment) end() time.Duration { return s.start + s.length() }

// music is a range of the music file under the film.
type music struct {
	start    time.Duration // in the film
	from, to time.Duration // in the file
	volume   float64
	fadeOut  time.Duration
	ducking  float64 // dB; 0 means no ducking
}

func (m music) end() time.Duration { return m.start + m.to - m.from }

// remix replaces the first segment's own sound with its stems.
type remix struct {
	from, to          time.Duration // in the film
	offset            time.Duration // position of from in the stems
	voice, background float64
}

// film is the edit that the demonstration submits and then checks.
type film struct {
	clips    []clip
	segments []segment
	music    []music
	remixes  []remix
}

// The mix of the demonstration. In the first third of the first segment, its original sound plays. In the second third
// its voice is raised. In the last third both stems have their original volume, and the music pauses, so that nothing
// covers the comparison. A moment of silence leads to the dissolve, in which the two clips' own sounds cross-fade. A
// push leads to the third segment. Both ends fade, and the music ends before the fade at the end.
const (
	liftVoice      = 1.4
	liftBackground = 0.4
	musicBelow     = 0.45 // under the first segment
	musicAfter     = 0.9  // under the rest
	musicDucked    = 9    // dB, while the raised voice speaks
	musicFade      = 1500 * time.Millisecond
	laterVolume    = 0.85 // of the segments after the first
	targetLUFS     = -20
	maxTruePeakDB  = -1
	silence        = 500 * time.Millisecond
	overlap        = 500 * time.Millisecond // of a dissolve and of a push
	ends           = 500 * time.Millisecond // the fades from black and to black
	ownLongest     = 20 * time.Second
)

// edit lays out the film. Clips with a lamp are the demonstration's own. Their music starts its first bar at the end of
// lead, so the first clip is trimmed to that point, and the second shows its lead during the dissolve. The first clip's
// last bar follows as the third segment. Other clips are used from their start.
func edit(clips []clip, musicLength time.Duration) film {
	f := film{clips: clips}
	var at time.Duration
	for i, c := range clips {
		s := segment{clip: i, to: min(c.length, ownLongest).Truncate(time.Millisecond), volume: 1, start: at}
		if c.lamp != nil {
			s.from, s.to = lead, lead+(c.length-lead)/bar*bar
		}
		if i > 0 {
			s.volume = laterVolume
		}
		switch i {
		case 1:
			s.fit = "blur"
			s = f.overlapped(s, "dissolve")
		case 2:
			s = f.overlapped(s, "push")
		}
		f.segments = append(f.segments, s)
		at = f.length()
	}
	if first := f.segments[0]; clips[0].lamp != nil && len(clips) == 2 {
		f.segments = append(f.segments, f.overlapped(segment{from: first.to - bar, to: first.to, volume: laterVolume, start: at}, "push"))
	}
	first := f.segments[0]
	third := (first.length() / 3).Truncate(time.Millisecond)
	lift, same, end := first.start+third, first.start+2*third, first.end()
	if len(f.segments) > 1 {
		end = f.segments[1].start
	}
	muted := end - min(silence, (end-same)/2)
	f.remixes = []remix{
		{from: lift, to: same, offset: first.from + third, voice: liftVoice, background: liftBackground},
		{from: same, to: muted, offset: first.from + 2*third, voice: 1, background: 1},
		{from: muted, to: end, offset: first.from + muted - first.start},
	}
	// After the first segment the second range of music continues as if it had not paused.
	end = first.end()
	below := min(same, musicLength)
	f.music = []music{{start: 0, from: 0, to: below, volume: musicBelow, ducking: musicDucked}}
	if after := min(f.length()-ends, musicLength); after > end+time.Second {
		f.music = append(f.music, music{start: end, from: end, to: after, volume: musicAfter})
	} else if rest := min(f.length()-ends-end, musicLength); rest > time.Second {
		f.music = append(f.music, music{start: end, from: 0, to: rest, volume: musicAfter})
	}
	if n := len(f.music) - 1; n > 0 {
		f.music[n].fadeOut = min(musicFade, (f.music[n].to-f.music[n].from)/2)
	}
	return f
}

// overlapped overlaps the start of s with the end of the previous segment, by whole frames of the film. If the segments
// are too short, they are joined by a cut.
func (f film) overlapped(s segment, join string) segment {
	before, frames := f.segments[len(f.segments)-1], f.frameAt(overlap)
	if f.clips[s.clip].lamp != nil {
		s.from -= min(s.from, overlap)
	}
	if min(before.length(), s.length()) >= 5*overlap {
		s.join, s.overlap = join, f.timeOf(frames)
		s.start -= s.overlap
	}
	return s
}

// joinAt returns the segment that overlaps the previous one at a time, or nil.
func (f film) joinAt(at time.Duration) *segment {
	for i, s := range f.segments {
		if s.start <= at && at < s.start+s.overlap {
			return &f.segments[i]
		}
	}
	return nil
}

// alone returns the time in which a segment does not overlap another.
func (f film) alone(n int) (from, to time.Duration) {
	from, to = f.segments[n].start+f.segments[n].overlap, f.segments[n].end()
	if n+1 < len(f.segments) {
		to = f.segments[n+1].start
	}
	return from, to
}

// frameAt returns the number of the film's frame nearest to a time, and timeOf the time of a frame.
func (f film) frameAt(at time.Duration) int {
	_, _, rate := f.canvas()
	exact, _ := new(big.Rat).Mul(rate, big.NewRat(at.Microseconds(), 1e6)).Float64()
	return int(exact + 0.5)
}

func (f film) timeOf(frame int) time.Duration {
	_, _, rate := f.canvas()
	seconds, _ := new(big.Rat).Quo(big.NewRat(int64(frame), 1), rate).Float64()
	return time.Duration(seconds * float64(time.Second))
}

// fade returns the length of the fade at each end of the film, in whole frames.
func (f film) fade() time.Duration { return f.timeOf(f.frameAt(ends)) }

// length returns how long the film lasts.
func (f film) length() time.Duration { return f.segments[len(f.segments)-1].end() }

// canvas returns the film's resolution and frame rate: the first clip's, with even sides and at most 60 frames a
// second.
func (f film) canvas() (width, height int, rate *big.Rat) {
	c := f.clips[0]
	rate = c.rate
	if limit := big.NewRat(60, 1); rate.Cmp(limit) > 0 {
		rate = limit
	}
	return c.width &^ 1, c.height &^ 1, rate
}

// frames returns the number of the film's frames.
func (f film) frames() int { return f.frameAt(f.length()) }

// cuts returns the times at which the audible sources or the film's fades change, from zero to the end.
func (f film) cuts() []time.Duration {
	times := []time.Duration{0, f.fade(), f.length() - f.fade(), f.length()}
	for _, s := range f.segments {
		times = append(times, s.start, s.end())
	}
	for _, m := range f.music {
		times = append(times, m.start, m.end()-m.fadeOut, m.end())
	}
	for _, r := range f.remixes {
		times = append(times, r.from, r.to)
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// remixAt returns the remix that covers a time, or nil.
func (f film) remixAt(at time.Duration) *remix {
	for i, r := range f.remixes {
		if r.from <= at && at < r.to {
			return &f.remixes[i]
		}
	}
	return nil
}

// musicGains returns the bounds of the music's gain from a time on, relative to its volume. The gain changes where a
// voice ducks the music and where the music fades.
func (f film) musicGains(at time.Duration) (least, most float64) {
	for _, m := range f.music {
		switch r := f.remixAt(at); {
		case at < m.start || at >= m.end():
		case at >= m.end()-m.fadeOut:
			return 0.25, 0.75
		case m.ducking > 0 && r != nil && r.voice > 0:
			return math.Pow(10, -m.ducking/20) * 0.97, 0.7 // it rises in pauses
		}
	}
	return 1, 1
}

// mutedAt reports whether the film is silent at a time.
func (f film) mutedAt(at time.Duration) bool {
	r := f.remixAt(at)
	return r != nil && r.voice == 0 && r.background == 0
}

// area is a rectangle of a picture, in pixels.
type area struct{ left, top, width, height int }

// inside returns where the film shows the whole picture of a clip: scaled to fit and centred.
func (f film) inside(n int) area {
	width, height, _ := f.canvas()
	c := f.clips[n]
	scale := min(float64(width)/float64(c.width), float64(height)/float64(c.height))
	w, h := float64(c.width)*scale, float64(c.height)*scale
	return area{int((float64(width) - w) / 2), int((float64(height) - h) / 2), int(w), int(h)}
}

// lampArea returns a clip's lamp on the film's canvas.
func (f film) lampArea(n int) lamp {
	a, c := f.inside(n), f.clips[n]
	scale := float64(a.height) / float64(c.height)
	return lamp{x: a.left + int(float64(c.lamp.x)*scale), y: a.top + int(float64(c.lamp.y)*scale), radius: int(float64(c.lamp.radius) * scale)}
}

// Names of the media in a submission: the parts of a multipart request, or the keys of the assets.
type sources struct {
	clips  []string
	music  string
	assets bool // they are asset keys
}

// parts returns the names in a multipart submission.
func (f film) parts() sources {
	s := sources{music: "bgm_0"}
	for i := range f.clips {
		s.clips = append(s.clips, fmt.Sprintf("video_%d", i))
	}
	return s
}

// config returns the RenderConfig of the film.
func (r result) config(names sources, kind string) map[string]any {
	f := r.film
	sourceField, audioField := "sourceFileKey", "audioFileKey"
	if names.assets {
		sourceField, audioField = "sourceAssetKey", "audioAssetKey"
	}
	var segments, clips, directives []map[string]any
	for i, s := range f.segments {
		body := map[string]any{
			sourceField: names.clips[s.clip], "order": i, "durationMs": f.clips[s.clip].length.Milliseconds(),
			"trimStartMs": s.from.Milliseconds(), "trimEndMs": s.to.Milliseconds(), "volumeScale": s.volume, "speedScale": 1,
		}
		if s.fit != "" {
			body["fit"] = s.fit
		}
		if s.join != "" {
			body["transition"] = map[string]any{"type": s.join, "durationMs": overlap.Milliseconds()}
		}
		segments = append(segments, body)
	}
	for _, m := range f.music {
		clips = append(clips, map[string]any{
			audioField: names.music, "startMs": m.start.Milliseconds(), "volume": m.volume,
			"sourceTrimStartMs": m.from.Milliseconds(), "sourceTrimEndMs": m.to.Milliseconds(), "fadeOutMs": m.fadeOut.Milliseconds(),
			"ducking": map[string]any{"amountDb": m.ducking, "attackMs": 50},
		})
	}
	for i, x := range f.remixes {
		directives = append(directives, map[string]any{
			"id": fmt.Sprintf("remix-%d", i), "rangeStartMs": x.from.Milliseconds(), "rangeEndMs": x.to.Milliseconds(),
			"muteOriginalSegmentAudio": true, "sourceOffsetMs": x.offset.Milliseconds(),
			"selections": []map[string]any{
				{"stemId": voiceStem, "audioUrl": r.stem(voiceStem).URL, "volume": x.voice},
				{"stemId": backgroundStem, "audioUrl": r.stem(backgroundStem).URL, "volume": x.background},
			},
		})
	}
	fade := map[string]any{"color": "black", "durationMs": ends.Milliseconds()}
	return map[string]any{"segments": segments, "bgmClips": clips, "separationDirectives": directives, "outputKind": kind, "quality": "medium",
		"fadeIn": fade, "fadeOut": fade,
		"loudness": map[string]any{"targetLufs": targetLUFS, "maxTruePeakDb": maxTruePeakDB}}
}
