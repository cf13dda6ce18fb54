// The look and the time of a segment in the studio, in a real browser: what a finger sets is what the service receives.

package player_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"

	"cutroom/internal/testkit/browsertest"
)

// sentSegment is what a render's request says of a segment.
type sentSegment struct {
	TrimStartMs, TrimEndMs int
	SpeedScale             float64
	Rotate                 int
	Mirror                 bool
	Crop                   map[string]float64
	Moves                  []sentMove
	Adjust                 map[string]float64
	Reverse, Smooth        bool
	SpeedPoints            []sentSpeed
}

type sentMove struct {
	AtMs        int
	Scale, X, Y float64
}

type sentSpeed struct {
	AtMs  int
	Speed float64
}

// record lets the page keep the request of its next render, and sends it only where pass says so.
func record(p *browsertest.Page, pass bool) {
	p.Eval(fmt.Sprintf(`(window.real ??= window.fetch, window.fetch = async (request, ...rest) => {
		const body = request.method === 'POST' && await request.clone().json().catch(() => undefined);
		if (!body?.segments) return window.real(request, ...rest);
		window.sent = body;
		return %v ? window.real(request, ...rest) : Promise.reject(Error('recorded'));
	}, 0)`, pass))
}

// sent returns the segments of the recorded request.
func sent(t *testing.T, p *browsertest.Page) (segments []sentSegment) {
	t.Helper()
	p.Until(`window.sent`)
	if err := json.Unmarshal([]byte(p.Eval(`window.sent.segments`)), &segments); err != nil {
		t.Fatal(err)
	}
	return segments
}

// looks turns, crops, moves, corrects, reverses and bends a segment by touch.
func looks(t *testing.T, address string) {
	p := browsertest.Open(t)
	enter(p, address, "Lou Look")
	p.Choose(".drop:has([multiple])", clipOf(t, 330))
	pieces(p, 1)
	tap := func(selector string) { t.Helper(); p.Drag(selector, 0, 0) }
	slide := func(selector string, value float64) {
		p.Eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.value = '%v'; e.dispatchEvent(new Event('input', { bubbles: true })); })()`, selector, value))
	}

	tap(`[aria-label="Crop: Segment 1"]`)
	tap(`[aria-label="Mirror Segment 1"]`)
	p.Until(`document.querySelector('[aria-label="Mirror Segment 1"][aria-pressed=true]')`)
	tap(`[aria-label="Turn Segment 1 to the right"]`)
	// A mirrored picture that is seen to turn to the right is turned to the left before it is mirrored.
	p.See("(270°)")
	p.Until(`(box => box.height > box.width)(document.querySelector('.cropper').getBoundingClientRect())`)
	p.Drag(`[aria-label^="Crop from the top left"]`, 30, 40)
	p.Until(`document.querySelector('[aria-label="Whole picture of Segment 1"]:not([aria-disabled])')`)
	p.Until(`document.querySelector('.kept').style.left !== '0%' && document.querySelector('.kept').style.top !== '0%'`)
	look(t, p, "crop")
	p.Size(390, 844)
	// The corners follow the finger, and go with the picture as it turns.
	tap(`[aria-label="Turn Segment 1 to the right"]`)
	p.See("(180°)")
	// The line shows the pictures turned and cropped as well.
	p.Until(`(([w, h], kept) => Math.abs(w / 24 / h - kept.width / kept.height) < .1)(
		getComputedStyle(document.querySelector('.filmstrip > span')).backgroundSize.match(/[\d.]+/g).map(Number), document.querySelector('.kept').getBoundingClientRect())`)
	p.Until(`document.querySelector('.kept').style.left === '0%' && document.querySelector('.kept').style.right !== '0%'`)

	tap(`[aria-label="Move: Segment 1"]`)
	p.Until(`[...document.querySelectorAll('.pane button')].find(b => b.innerText === 'Zoom in')`)
	tap(`.pane button:nth-child(2)`)
	p.Until(`document.querySelector('.pane input[type=range]')`)

	tap(`[aria-label="Light: Segment 1"]`)
	p.Until(`document.querySelector('[aria-label="Warmth of Segment 1"]')`)
	slide(`[aria-label="Exposure of Segment 1"]`, 0.25)
	p.See("+25")
	slide(`[aria-label="Contrast of Segment 1"]`, 0.5)
	p.See("+50")
	slide(`[aria-label="Warmth of Segment 1"]`, -0.4)
	p.See("-40")
	p.Eval(`document.querySelector('[aria-label="Contrast of Segment 1"]').dispatchEvent(new MouseEvent('dblclick', { bubbles: true }))`)
	p.Until(`document.querySelector('[aria-label="Contrast of Segment 1"]').value === '0'`)
	p.Look("light")

	tap(`[aria-label="Time: Segment 1"]`)
	tap(`label:has([aria-label="Play Segment 1 backwards"])`)
	p.Until(`document.querySelector('[aria-label="Play Segment 1 backwards"]').checked`)
	tap(`label:has([aria-label="Smooth slow motion of Segment 1"])`)
	p.Until(`document.querySelector('[aria-label="Smooth slow motion of Segment 1"]').checked`)
	tap(`[aria-label="Speed curve of Segment 1"] button:nth-child(4)`)
	p.Until(`document.querySelectorAll('.curve .point').length === 4`)
	// A dragged point changes the curve, and an undo gives it back.
	p.Drag(`.curve .point:nth-of-type(2)`, 0, -30)
	p.Until(`document.querySelector('.curve .point:nth-of-type(2)').getAttribute('aria-label').includes('0.40×') === false`)
	tap(`[aria-label="Undo the last edit"]`)
	p.Until(`document.querySelector('.curve .point:nth-of-type(2)').getAttribute('aria-label').includes('0.40×')`)
	look(t, p, "curve")
	p.Size(390, 844)
	p.Size(360, 740)
	if wide := p.Eval(`document.documentElement.scrollWidth > innerWidth`); wide != "false" {
		t.Error("the page is wider than a phone of 360 pixels")
	}

	// All of it outlives a reload.
	reload(p)
	record(p, true)
	p.Click(".film .primary:not([aria-disabled])")
	all := sent(t, p)
	got := all[0]
	played := float64(got.TrimEndMs - got.TrimStartMs)
	atMs := func(share float64) int { return int(math.Round(share * played)) }
	// The integral of the clip's time over the speed: twice a ramp between 2 and 0.4, and a fifth of the clip at 0.4.
	length := 2*0.4*played*math.Log(5)/1.6 + 0.2*played/0.4
	want := sentSegment{
		TrimEndMs: got.TrimEndMs, SpeedScale: 1, Rotate: 180, Mirror: true, Crop: got.Crop,
		Moves:   []sentMove{{AtMs: 0, Scale: 1, X: 0.5, Y: 0.5}, {AtMs: int(math.Round(length)), Scale: 1.25, X: 0.5, Y: 0.5}},
		Adjust:  map[string]float64{"exposure": 0.25, "warmth": -0.4},
		Reverse: true, Smooth: true,
		SpeedPoints: []sentSpeed{{0, 2}, {atMs(0.4), 0.4}, {atMs(0.6), 0.4}, {atMs(1), 2}},
	}
	if len(got.Moves) == 2 && max(got.Moves[1].AtMs-want.Moves[1].AtMs, want.Moves[1].AtMs-got.Moves[1].AtMs) <= 2 {
		want.Moves[1].AtMs = got.Moves[1].AtMs // the points of the curve are whole milliseconds
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the service received\n%+v, want\n%+v", got, want)
	}
	if c := got.Crop; len(c) != 4 || c["left"] != 0 || c["bottom"] != 0 || c["right"] < 0.05 || c["right"] > 0.8 || c["top"] < 0.05 || c["top"] > 0.8 {
		t.Errorf("crop: %v, want a part of the top and of the right", c)
	}
	p.Until(`document.querySelector('.film video')?.readyState >= 2`)
	var film struct{ Width, Height, Duration float64 }
	if err := json.Unmarshal([]byte(p.Eval(`(v => ({ width: v.videoWidth, height: v.videoHeight, duration: v.duration }))(document.querySelector('.film video'))`)), &film); err != nil {
		t.Fatal(err)
	}
	const frame = 1. / 30
	if math.Abs(film.Duration-length/1000) > frame+0.025 { // the last packet of AAC
		t.Errorf("the film lasts %.3f s, want %.3f s", film.Duration, length/1000)
	}
	width, height := 320*(1-got.Crop["right"]), 180*(1-got.Crop["top"])
	if math.Abs(film.Width-width) > 1.5 || math.Abs(film.Height-height) > 1.5 {
		t.Errorf("the film has %v x %v pixels, want %.0f x %.0f", film.Width, film.Height, width, height)
	}
	p.Quiet("looks")
}

// cutLooks splits segments that play backwards, move and change their speed. Each of them plays 500..2500 ms of its
// clip.
func cutLooks(t *testing.T, address string) {
	p := browsertest.Open(t)
	enter(p, address, "Cora Cut")
	p.Choose(".drop:has([multiple])", clipOf(t, 330))
	pieces(p, 1)
	curve := `[{ atMs: 0, speed: 1 }, { atMs: 2000, speed: 2 }]`
	segments := []string{
		`reverse: true`,
		`moves: [{ atMs: 0, scale: 1, x: 0.5, y: 0.5 }, { atMs: 2000, scale: 4, x: 0, y: 1 }]`,
		`reverse: true, speed: 2`,
		`speedPoints: ` + curve,
		`reverse: true, speedPoints: ` + curve,
	}
	draft := ""
	for i, fields := range segments {
		draft += fmt.Sprintf(`{ id: %d, assetKey: one, fromMs: 500, toMs: 2500, speed: 1, volume: 1, %s }, `, i+1, fields)
	}
	editDraft(p, `const [one] = old.clips.map(c => c.assetKey); return { ...old, segments: [`+draft+`] };`)
	// The first curve begins at 5 s, the second one 2 ln 2 s later; each cut is a frame of the film at 30 a second.
	for i, frame := range []int{30, 90, 135, 168, 210} {
		pieces(p, len(segments)+i)
		p.Until(`!document.querySelector('[aria-label=Playhead]').disabled`)
		p.Eval(fmt.Sprintf(`(() => { const e = document.querySelector('[aria-label=Playhead]'); e.value = '%d'; e.dispatchEvent(new Event('input', { bubbles: true })); })()`, frame))
		p.Until(fmt.Sprintf(`document.querySelector('[aria-label=Playhead]').value === '%d' && !document.querySelector('[aria-label="Split at the playhead"]').disabled`, frame))
		p.Click(`[aria-label="Split at the playhead"]`)
	}
	pieces(p, 2*len(segments))
	record(p, false)
	p.Click(".film .primary:not([aria-disabled])")
	piece := func(from, to int, s sentSegment) sentSegment {
		s.TrimStartMs, s.TrimEndMs = from, to
		if s.SpeedScale == 0 {
			s.SpeedScale = 1
		}
		return s
	}
	// 600 ms after its begin the first curve has played 2000 (e^0.3 - 1) = 700 ms, the second one after 613.7 ms 718
	// ms.
	first := []sentSpeed{{0, 1}, {700, 1.35}}
	second := []sentSpeed{{0, 1.35}, {1300, 2}}
	want := []sentSegment{
		piece(1500, 2500, sentSegment{Reverse: true}), piece(500, 1500, sentSegment{Reverse: true}),
		piece(500, 1500, sentSegment{Moves: []sentMove{{0, 1, 0.5, 0.5}, {2000, 4, 0, 1}}}),
		piece(1500, 2500, sentSegment{Moves: []sentMove{{0, 2, 0.25, 0.75}, {1000, 4, 0, 1}}}),
		piece(1500, 2500, sentSegment{Reverse: true, SpeedScale: 2}), piece(500, 1500, sentSegment{Reverse: true, SpeedScale: 2}),
		piece(500, 1200, sentSegment{SpeedPoints: first}), piece(1200, 2500, sentSegment{SpeedPoints: second}),
		piece(1782, 2500, sentSegment{Reverse: true, SpeedPoints: []sentSpeed{{0, 1}, {718, 1.359}}}),
		piece(500, 1782, sentSegment{Reverse: true, SpeedPoints: []sentSpeed{{0, 1.359}, {1282, 2}}}),
	}
	got := sent(t, p)
	for i := range got {
		for k := range got[i].SpeedPoints {
			got[i].SpeedPoints[k].Speed = math.Round(got[i].SpeedPoints[k].Speed*1e9) / 1e9
		}
	}
	for i := range min(len(got), len(want)) {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("piece %d: %+v, want %+v", i+1, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d pieces, want %d", len(got), len(want))
	}
	p.Problems() // the request that was only recorded
}
