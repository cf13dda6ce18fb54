// Compares the studio's preview with the film that is rendered afterwards: frames, sound and their timing.

package player_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/browsertest"
	"cutroom/internal/testkit/mediatest"
)

// numbered is a clip whose frames carry their number: the left half in sixteens, the right half in ones, as grey levels
// that compression cannot confuse.
func numbered(t *testing.T, size, rate string, frames int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "numbered.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", fmt.Sprintf("color=gray:s=%s:r=%s,format=yuv420p,"+
		"setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709,"+
		"geq=lum='if(lt(X,W/2),32+12*floor(N/16),32+12*mod(N,16))':cb=128:cr=128", size, rate),
		"-f", "lavfi", "-i", "sine=frequency=330", "-frames:v", fmt.Sprint(frames), "-shortest", "-c:v", "libx264", "-crf", "10", "-c:a", "aac",
		"-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv", path)
	return path
}

// lossless cuts off the start of a clip as a phone's "Trim" does: an edit list hides the frames back to the last key
// frame.
func lossless(t *testing.T, clip, from string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lossless.mp4")
	mediatest.FFmpeg(t, "-ss", from, "-i", clip, "-c", "copy", path)
	return path
}

// The player shows the frames of the film that is rendered afterwards, also within joins.
func TestPreviewIsTheFilm(t *testing.T) {
	t.Parallel()
	address := studio(t)
	one, two := numbered(t, "320x180", "30", 90), numbered(t, "180x320", "25", 60)
	samples := []string{one, two, lossless(t, one, "1.3")}
	for _, draft := range []struct{ name, edit string }{
		{"cuts and speeds", `
			segments: [
				{ id: 1, assetKey: one, fromMs: 200, toMs: 1234, speed: 1, volume: 1 },
				{ id: 2, assetKey: two, fromMs: 0, toMs: 1000, speed: 0.5, volume: 1 },
				{ id: 3, assetKey: one, fromMs: 1234, toMs: 3000, speed: 2, volume: 1 },
			]`},
		{"dissolve and wipe and both ends", `
			fadeIn: 'black', fadeOut: 'white', fit: 'contain',
			segments: [
				{ id: 1, assetKey: one, fromMs: 0, toMs: 1500, speed: 1, volume: 1 },
				{ id: 2, assetKey: one, fromMs: 1500, toMs: 3000, speed: 1, volume: 1, join: { type: 'dissolve', durationMs: 700 } },
				{ id: 3, assetKey: two, fromMs: 300, toMs: 2000, speed: 1, volume: 1, join: { type: 'wipe', durationMs: 600, direction: 'right' } },
			]`},
		{"trimmed without encoding", `
			segments: [
				{ id: 1, assetKey: three, fromMs: 0, toMs: 700, speed: 1, volume: 1 },
				{ id: 2, assetKey: three, fromMs: 500, toMs: 1690, speed: 0.5, volume: 1 },
				{ id: 3, assetKey: three, fromMs: 0, toMs: 1690, speed: 1, volume: 1, join: { type: 'dissolve', durationMs: 300 } },
			]`},
		{"upright at 25 with a push and a fade", `
			aspect: '9:16', fit: 'cover', shortSide: 360, frameRate: 25,
			segments: [
				{ id: 1, assetKey: one, fromMs: 0, toMs: 1500, speed: 1, volume: 1 },
				{ id: 2, assetKey: two, fromMs: 0, toMs: 2000, speed: 1, volume: 1, join: { type: 'push', durationMs: 800, direction: 'up' } },
				{ id: 3, assetKey: one, fromMs: 2000, toMs: 3000, speed: 1, volume: 1, join: { type: 'fadeBlack', durationMs: 600 } },
			]`},
		{"turned and cropped and moved over and corrected", `
			segments: [
				{ id: 1, assetKey: one, fromMs: 0, toMs: 1500, speed: 1, volume: 1, rotate: 90, mirror: true, crop: { left: 0.1, top: 0.3 },
					adjust: { exposure: 0.3, contrast: 0.2, warmth: 0.5 } },
				{ id: 2, assetKey: two, fromMs: 0, toMs: 1500, speed: 1, volume: 1, join: { type: 'dissolve', durationMs: 400 },
					moves: [{ atMs: 0, scale: 1, x: 0.35, y: 0.3 }, { atMs: 1200, scale: 2.2, x: 0.73, y: 0.2 }] },
				{ id: 3, assetKey: one, fromMs: 1000, toMs: 2500, speed: 1, volume: 1, rotate: 270, crop: { bottom: 0.4 },
					adjust: { exposure: -0.4, saturation: -0.5, tint: 1 } },
			]`},
		{"backwards and smooth and at a changing speed", `
			segments: [
				{ id: 1, assetKey: one, fromMs: 200, toMs: 1700, speed: 1, volume: 1, reverse: true },
				{ id: 2, assetKey: one, fromMs: 1000, toMs: 2000, speed: 0.4, volume: 1, reverse: true, smooth: true,
					join: { type: 'dissolve', durationMs: 300 } },
				{ id: 3, assetKey: two, fromMs: 100, toMs: 1900, speed: 1, volume: 1, smooth: true,
					speedPoints: [{ atMs: 0, speed: 1 }, { atMs: 600, speed: 3 }, { atMs: 1200, speed: 0.4 }] },
			]`},
	} {
		t.Run(draft.name, func(t *testing.T) { comparePreview(t, address, samples, draft.edit) })
	}
}

// points are the places at which a frame is compared, as shares of its sides.
var points = [][2]float64{{.2, .5}, {.8, .5}, {.4, .2}, {.6, .8}}

// addClips adds clips to the film, which the edits below call one, two and three.
func addClips(p *browsertest.Page, paths ...string) {
	p.Until(`document.querySelector('.drop input:not(:disabled)')`)
	p.Choose(".drop:has([multiple])", paths...)
	p.Until(fmt.Sprintf(`document.querySelectorAll('.piece').length === %d && !document.querySelector('.material .going')`, len(paths)))
}

// editDraft replaces the draft of the first project in the browser's database by what a JavaScript function makes of
// the old one, and loads the page again.
func editDraft(p *browsertest.Page, body string) {
	p.Until(`document.querySelector('.studio[data-saved=true]')`)
	p.Eval(fmt.Sprintf(`new Promise((done, failed) => {
		const ask = indexedDB.open('cutroom-studio');
		ask.onerror = failed;
		ask.onsuccess = () => {
			const work = ask.result.transaction('projects', 'readwrite'), projects = work.objectStore('projects'), found = projects.getAll();
			found.onsuccess = () => { const [first] = found.result; projects.put({ ...first, rev: first.rev + 1, draft: (old => { %s })(first.draft) }); };
			work.oncomplete = () => (ask.result.close(), done());
			work.onabort = failed;
		};
	})`, body))
	p.Reload()
}

// renderEdit replaces the draft of the page, except its clips, by fields in JavaScript, and renders it. In the fields
// old is the draft as it was. It returns the film's path.
func renderEdit(t *testing.T, p *browsertest.Page, edit string) string {
	t.Helper()
	editDraft(p, `const [one, two, three] = old.clips.map(c => c.assetKey);
		return { clips: old.clips, sounds: [], speeches: [], quality: 'high', `+edit+` };`)
	p.Until(`document.querySelectorAll('.piece').length === 3 && document.querySelector('.stage canvas').dataset.frame !== undefined`)
	p.Click(".film .primary:not([aria-disabled])")
	p.Until(`document.querySelector('.film video')?.readyState >= 2`)
	film := filepath.Join(t.TempDir(), "film.mp4")
	var content []byte
	encoded := p.Eval(`fetch(document.querySelector('.film video').src).then(r => r.arrayBuffer()).then(b => {
		let text = ''; new Uint8Array(b).forEach(v => text += String.fromCharCode(v)); return JSON.stringify(btoa(text)); })`)
	if err := json.Unmarshal([]byte(encoded), &content); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(film, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return film
}

// The player's sound is that of the film: volumes, joins, stems, music with fades and points that is ducked, the film's
// ends. Not compared: the matching of a film's loudness, which the player leaves out.
func TestPreviewSoundsLikeTheFilm(t *testing.T) {
	t.Parallel()
	p := browsertest.Open(t)
	p.Go(studio(t))
	p.Fill("input[type=text]", "Ear Witness")
	p.Click("form button[type=submit]")
	p.Click(".material header .primary")
	p.Click(".ask .primary")
	p.Until(`document.querySelectorAll('.stems canvas').length >= 2`)
	for _, draft := range []struct{ name, edit string }{
		{"all of it", `
			fadeIn: 'black', fadeOut: 'black',
			segments: [
				{ id: 1, assetKey: one, fromMs: 0, toMs: 3000, speed: 1, volume: 0.1 },
				{ id: 2, assetKey: two, fromMs: 0, toMs: 2000, speed: 1, volume: 0.2, join: { type: 'dissolve', durationMs: 600 } },
				{ id: 3, assetKey: one, fromMs: 0, toMs: 3000, speed: 2, volume: 0.1, join: { type: 'fadeBlack', durationMs: 400 } },
			],
			sounds: [{ ...old.sounds[0], volume: 1.5, startMs: 300, fromMs: 200, loop: true, duckDb: 12, fadeInMs: 700, fadeOutMs: 1500,
				points: [{ atMs: 0, volume: 1 }, { atMs: 3500, volume: 0.4 }, { atMs: 5000, volume: 1.2 }] }],
			speeches: [{ ...old.speeches[0], alone: true, volumes: { voice_all: 0.15, background: 0.1 } }],`},
		// The music of the draft before covers the noise that AAC leaves behind a loud segment.
		{"far too loud", `
			segments: [
				{ id: 1, assetKey: one, fromMs: 0, toMs: 1000, speed: 1, volume: 0.2 },
				{ id: 2, assetKey: one, fromMs: 1000, toMs: 2000, speed: 1, volume: 10 },
				{ id: 3, assetKey: one, fromMs: 2000, toMs: 3000, speed: 1, volume: 0.2 },
			], sounds: old.sounds,`},
		{"backwards and at a changing speed", `
			segments: [
				{ id: 1, assetKey: one, fromMs: 500, toMs: 3000, speed: 1, volume: 0.2, reverse: true },
				{ id: 2, assetKey: two, fromMs: 0, toMs: 3000, speed: 1, volume: 0.2, speedPoints: [{ atMs: 0, speed: 0.8 }, { atMs: 2000, speed: 1.6 }] },
				{ id: 3, assetKey: one, fromMs: 0, toMs: 2000, speed: 0.8, volume: 0.2, reverse: true },
			]`},
	} {
		t.Run(draft.name, func(t *testing.T) { compareSound(t, p, renderEdit(t, p, draft.edit)) })
	}
}

// playedBy returns the samples of both sides that the player would play.
func playedBy(t *testing.T, p *browsertest.Page) (played [2][]float64) {
	t.Helper()
	// Its clock jumps ahead, so it mixes everything at once.
	p.Eval(`(() => {
		window.mixed = [];
		const start = AudioBufferSourceNode.prototype.start;
		AudioBufferSourceNode.prototype.start = function (...when) {
			if (this.context instanceof AudioContext) window.mixed.push(this.buffer);
			return start.apply(this, when);
		};
		let asked = 0;
		Object.defineProperty(AudioContext.prototype, 'currentTime', { get: () => (asked++ ? 1e6 : 0) });
	})()`)
	p.Click("[aria-label=Play]")
	p.Until(`window.mixed.length && document.querySelector('[aria-label=Play]')`)
	for side := range played {
		text := p.Eval(fmt.Sprintf(`JSON.stringify(window.mixed.flatMap(b => [...b.getChannelData(%d)]))`, side))
		if err := json.Unmarshal([]byte(text), &played[side]); err != nil {
			t.Fatal(err)
		}
	}
	return played
}

// compareSound fails the test where what the player plays is louder or less loud than the film.
func compareSound(t *testing.T, p *browsertest.Page, film string) {
	played := playedBy(t, p)
	rendered := mediatest.Samples(t, film)
	const window = mediatest.SampleRate / 10
	level := func(sides [][]float64, at int) float64 {
		var sum float64
		for _, side := range sides {
			for _, v := range side[at : at+window] {
				sum += v * v / float64(len(sides))
			}
		}
		return 10 * math.Log10(sum/window+1e-6) // not below -60 dB
	}
	if len(played[0]) < 25*window || len(rendered[0]) < len(played[0]) {
		t.Fatalf("%d samples in the player, %d in the film", len(played[0]), len(rendered[0]))
	}
	for at := 0; at+window <= len(played[0]); at += window {
		got, want := level(played[:], at), level(rendered, at)
		if math.Abs(got-want) > 1.5 {
			t.Errorf("at %.1f s: %.1f dB in the player, %.1f dB in the film", float64(at)/mediatest.SampleRate, got, want)
		}
	}
}

// Sound is heard when the film has it: delays of encoders are not played, and what an edit list hides neither.
func TestPreviewIsOnTime(t *testing.T) {
	t.Parallel()
	beeps := func(name string, seconds int, more ...string) string {
		path := filepath.Join(t.TempDir(), name)
		args := append([]string{"-f", "lavfi", "-i", fmt.Sprintf("aevalsrc='0.5*sin(2*PI*1000*t)*gte(mod(t,1),0.3)*lt(mod(t,1),0.5)':s=44100:d=%d", seconds)}, more...)
		mediatest.FFmpeg(t, append(args, path)...)
		return path
	}
	video := []string{"-f", "lavfi", "-i", "color=gray:s=64x64:r=30:d=3", "-c:v", "libx264", "-c:a", "aac"}
	clip := beeps("clip.mp4", 3, video...)
	p := browsertest.Open(t)
	p.Go(studio(t))
	p.Fill("input[type=text]", "Metro Nome")
	p.Click("form button[type=submit]")
	p.See("credits")
	addClips(p, clip, lossless(t, clip, "1.1"))
	p.Choose(".drop:nth-child(2)", beeps("song.mp3", 100, "-c:a", "libmp3lame"))
	p.Until(`!document.querySelector('.material .going') && document.body.innerText.includes('song.mp3')`)
	film := renderEdit(t, p, `
		segments: [
			{ id: 1, assetKey: one, fromMs: 0, toMs: 1000, speed: 1, volume: 1 },
			{ id: 2, assetKey: two, fromMs: 0, toMs: 1000, speed: 1, volume: 1 },
			{ id: 3, assetKey: one, fromMs: 0, toMs: 2000, speed: 1, volume: 0 },
		], sounds: [
			{ ...old.sounds[0], startMs: 2000, fromMs: 0, toMs: 1000, volume: 1, fadeInMs: 0, fadeOutMs: 0, duckDb: 0 },
			{ ...old.sounds[0], id: 2, startMs: 3000, fromMs: 81000, toMs: 82000, volume: 1, fadeInMs: 0, fadeOutMs: 0, duckDb: 0 },
		],`)
	played, rendered := playedBy(t, p), mediatest.Samples(t, film)
	const second = mediatest.SampleRate
	for k, name := range []string{"a clip", "a clip that was trimmed without encoding", "an mp3", "an mp3 from its middle, of which only a stretch is decoded,"} {
		got, want := onset(played[0][k*second:(k+1)*second]), onset(rendered[0][k*second:(k+1)*second])
		t.Logf("%s: %.2f ms in the player, %.2f ms in the film", name, got, want)
		if math.Abs(got-want) > 3 {
			t.Errorf("%s begins to beep %.1f ms later than in the film", name, got-want)
		}
	}
}

// onset returns when samples begin to be loud, in milliseconds.
func onset(samples []float64) float64 {
	var peak float64
	for _, v := range samples {
		peak = max(peak, math.Abs(v))
	}
	for i, v := range samples {
		if math.Abs(v) > 0.2*peak {
			return float64(i) * 1000 / mediatest.SampleRate
		}
	}
	return math.NaN()
}

// Whatever fails in the preview comes back, or is said with a way back.
func TestPreviewGoesOn(t *testing.T) {
	t.Parallel()
	address := studio(t)
	p := browsertest.Open(t)
	p.Go(address)
	p.Fill("input[type=text]", "Stay Ing")
	p.Click("form button[type=submit]")
	p.See("credits")
	// Noise, so that no reader has the whole file at once.
	noise := filepath.Join(t.TempDir(), "noise.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=gray:s=640x360:r=30:d=2,noise=alls=100:allf=t", "-c:v", "libx264", "-preset", "ultrafast", "-crf", "8", "-g", "15", noise)
	addClips(p, noise)
	shows := func(frame int) {
		t.Helper()
		p.Eval(fmt.Sprintf(`(() => { const e = document.querySelector('[aria-label=Playhead]'); e.value = '%d'; e.dispatchEvent(new Event('input', { bubbles: true })); })()`, frame))
		p.Until(fmt.Sprintf(`document.querySelector('.stage canvas').dataset.frame === '%d'`, frame))
	}
	opened := `document.querySelector('.stage canvas')?.dataset.frame !== undefined`
	p.Until(`document.querySelector('.studio[data-saved=true]')`)
	assets := map[string]any{"step": "get", "path": "/assets/", "kind": "status"}
	fault := func(more map[string]any) {
		for name, value := range assets {
			more[name] = value
		}
		control(t, "POST", address+"/__control/faults", more)
	}

	// A busy service is asked again, and for a new address if the store says that one has expired. The rule spares
	// the service's own requests, which sign in a header, and the first one to an address, which finds it out.
	fault(map[string]any{"status": 503, "headers": map[string]string{"Retry-After": "1"}, "body": `{"error":"unavailable"}`, "times": 4})
	control(t, "POST", store(t, address)+"/__control/faults",
		map[string]any{"step": "get-object", "path": "X-Amz-Expires", "kind": "status", "status": 403, "nth": 2, "times": 1,
			"headers": map[string]string{"Access-Control-Allow-Origin": "*"}})
	p.Reload()
	p.Until(opened)
	shows(3)
	shows(55)
	for of, host := range map[string]string{"the service": address, "the store": store(t, address)} {
		if calls := get(t, host+"/__control/calls"); !strings.Contains(calls, `"fault":"status"`) {
			t.Errorf("%s never failed: %s", of, calls)
		}
	}

	// The browser's decoder gives up.
	p.Eval(`VideoDecoder.prototype.decode = () => { throw new Error('no more'); }; 0`)
	shows(20)

	// What stays away is said, with a way back.
	fault(map[string]any{"status": 404, "body": `{"error":"not_found"}`})
	p.Reload()
	p.See("One of the clips could not be opened.")
	control(t, "DELETE", address+"/__control/faults", nil)
	p.Click(".player .note button")
	p.Until(opened)
	p.Until(`!document.querySelector('.player .note')`)
	p.Problems() // which were made on purpose
}

func comparePreview(t *testing.T, address string, samples []string, edit string) {
	p := browsertest.Open(t)
	p.Go(address)
	p.Fill("input[type=text]", "Frame Counter "+t.Name())
	p.Click("form button[type=submit]")
	p.See("credits")
	addClips(p, samples...)
	film := renderEdit(t, p, edit)
	times := mediatest.FrameTimes(t, film)
	if got := p.Eval(`Number(document.querySelector('[aria-label=Playhead]').max) + 1`); got != fmt.Sprint(len(times)) {
		t.Fatalf("the player has %s frames, the film %d", got, len(times))
	}
	const compared = 20
	var at []time.Duration
	var chosen []int
	for k := range compared {
		n := k * (len(times) - 1) / (compared - 1)
		chosen = append(chosen, n)
		at = append(at, times[n])
	}
	for k, picture := range mediatest.Frames(t, film, at...) {
		p.Eval(fmt.Sprintf(`(() => { const e = document.querySelector('[aria-label=Playhead]'); e.value = '%d'; e.dispatchEvent(new Event('input', { bubbles: true })); })()`, chosen[k]))
		p.Until(fmt.Sprintf(`document.querySelector('.stage canvas').dataset.frame === '%d'`, chosen[k]))
		for _, at := range points {
			want := int(mediatest.ColorAt(picture, at[0], at[1]).R)
			var got int
			if err := json.Unmarshal([]byte(p.Eval(fmt.Sprintf(`(() => { const c = document.querySelector('.stage canvas');
				return c.getContext('2d').getImageData(Math.floor(c.width * %v), Math.floor(c.height * %v), 1, 1).data[0]; })()`, at[0], at[1]))), &got); err != nil {
				t.Fatal(err)
			}
			// Neighbouring frames are 14 levels apart where they differ least.
			if max(got-want, want-got) > 8 {
				t.Errorf("frame %d of %d at %v: level %d in the player (clip frames %s), %d in the film",
					chosen[k], len(times), at, got, p.Eval(`document.querySelector('.stage canvas').dataset.sources`), want)
			}
		}
	}
}
