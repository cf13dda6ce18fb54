package player_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/browsertest"
	"cutroom/internal/mediatest"
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

// The player shows the frames of the film that is rendered afterwards, also within joins.
func TestPreviewIsTheFilm(t *testing.T) {
	t.Parallel()
	address := studio(t)
	samples := map[string]string{
		"one.mp4": numbered(t, "320x180", "30", 90),
		"two.mp4": numbered(t, "180x320", "25", 60),
	}
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
		{"upright at 25 with a push and a fade", `
			aspect: '9:16', fit: 'cover', shortSide: 360, frameRate: 25,
			segments: [
				{ id: 1, assetKey: one, fromMs: 0, toMs: 1500, speed: 1, volume: 1 },
				{ id: 2, assetKey: two, fromMs: 0, toMs: 2000, speed: 1, volume: 1, join: { type: 'push', durationMs: 800, direction: 'up' } },
				{ id: 3, assetKey: one, fromMs: 2000, toMs: 3000, speed: 1, volume: 1, join: { type: 'fadeBlack', durationMs: 600 } },
			]`},
	} {
		t.Run(draft.name, func(t *testing.T) { comparePreview(t, address, samples, draft.edit) })
	}
}

// points are the places at which a frame is compared, as shares of its sides.
var points = [][2]float64{{.2, .5}, {.8, .5}, {.4, .2}, {.6, .8}}

func comparePreview(t *testing.T, address string, samples map[string]string, edit string) {
	p := browsertest.Open(t)
	p.Go(address)
	p.Fill("input[type=text]", "Frame Counter "+t.Name())
	p.Click("form button[type=submit]")
	p.See("credits")
	for name, path := range samples {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		encoded, _ := json.Marshal(content) // base64 in quotes
		p.Eval(fmt.Sprintf(`(() => {
			const bytes = Uint8Array.from(atob(%s), c => c.charCodeAt(0));
			const dataTransfer = new DataTransfer();
			dataTransfer.items.add(new File([bytes], '%s', { type: 'video/mp4' }));
			document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer }));
		})()`, encoded, name))
		p.Until(fmt.Sprintf(`Object.keys(localStorage).some(k => k.startsWith('cutroom-project-') && localStorage[k].includes('"name":"%s"'))`, name))
	}
	p.Eval(fmt.Sprintf(`(() => {
		const key = Object.keys(localStorage).find(k => k.startsWith('cutroom-project-') && localStorage[k].includes('one.mp4'));
		const stored = JSON.parse(localStorage[key]);
		const [one, two] = ['one.mp4', 'two.mp4'].map(name => stored.draft.clips.find(c => c.name === name).assetKey);
		localStorage[key] = JSON.stringify({ ...stored, draft: { clips: stored.draft.clips, quality: 'high', %s } });
	})()`, edit))
	p.Reload()
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
