// The studio in a real browser, from sign-in to the finished film: on a phone, without a network, with every refusal,
// audited for accessibility.

package player_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/player"
	"cutroom/internal/sandbox/system"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/browsertest"
	"cutroom/internal/testkit/mediatest"
)

// axePath is where npm puts axe-core, without which the page is not audited.
const axePath = "../../../web/node_modules/axe-core/axe.min.js"

func TestMain(m *testing.M) {
	status := apitest.Main(m)
	browsertest.Close()
	os.Exit(status)
}

// long skips a test that takes minutes, except in make test-long.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("CUTROOM_TEST_STUDIO") == "" {
		t.Skip("takes minutes; make test-long sets CUTROOM_TEST_STUDIO")
	}
}

// studio is the address of a whole sandbox with the page in it.
func studio(t *testing.T) string {
	t.Helper()
	binary, err := apitest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s, err := system.Start(t.Context(), system.Options{Cutroom: binary, World: sandbox.Options{DataDir: dir, Bucket: true, Fast: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	samples := filepath.Join(dir, "samples")
	material(t, samples)
	s.Mount(player.Prefix, player.New(s.World.Servers, samples))
	return s.BaseURL
}

// material stands in for the samples, which take long to generate.
func material(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"dusk.mp4":   mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Duration: 3 * time.Second, Tone: 330}),
		"aurora.mp4": mediatest.Clip(t, mediatest.Spec{Width: 180, Height: 320, Duration: 2 * time.Second, Tone: 550}),
		"odd.mp4":    mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Duration: 2 * time.Second, VideoCodec: "mpeg4"}), // Chromium has no decoder for it
		"song.m4a":   song(t),
		"speech.m4a": mediatest.Clip(t, mediatest.Spec{Duration: 3 * time.Second, Tone: 880, Container: "m4a"}),
	} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// song is a tone with a beep at each second.
func song(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "song.m4a")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "sine=frequency=220:beep_factor=6:duration=3", "-c:a", "aac", path)
	return path
}

// look checks the page in its current state on a desktop and on a phone.
func look(t *testing.T, p *browsertest.Page, name string) {
	t.Helper()
	for _, width := range []int64{390, 1440} {
		p.Size(width, 870)
		audit(t, p, name)
		p.Look(fmt.Sprintf("%s-%d", name, width))
	}
}

// audit fails the test for issues that axe-core calls serious.
func audit(t *testing.T, p *browsertest.Page, name string) {
	t.Helper()
	axe, err := os.ReadFile(axePath)
	if err != nil {
		t.Log("not audited: npm ci in web/ brings axe-core")
		return
	}
	p.Eval(string(axe) + "; 0")
	var found []struct {
		ID, Impact string
		Nodes      []struct{ HTML string }
	}
	answer := p.Eval(`axe.run({ resultTypes: ['violations'] }).then(r => JSON.stringify(r.violations))`)
	if err := json.Unmarshal([]byte(answer), &found); err != nil {
		t.Fatalf("%v in %s", err, answer)
	}
	for _, v := range found {
		if v.Impact == "serious" || v.Impact == "critical" {
			t.Errorf("%s: %s: %s %v", name, v.Impact, v.ID, v.Nodes)
		}
	}
}

// reload loads the page again once its projects are stored.
func reload(p *browsertest.Page) {
	p.Until(`document.querySelector('.studio[data-saved=true]') || document.querySelector('.signin')`)
	p.Reload()
}

// tab presses Tab until the focus is on the element of a selector, or Shift and Tab while the element is above the
// focus.
func tab(t *testing.T, p *browsertest.Page, selector string) {
	t.Helper()
	p.Until(fmt.Sprintf(`document.querySelector(%q)`, selector))
	for range 120 {
		// The page may draw itself anew, so the way is looked for at each step.
		switch p.Eval(fmt.Sprintf(`(() => { const goal = document.querySelector(%q), e = document.activeElement ?? document.body;
			return e.matches(%[1]q) ? 'there' : e !== document.body && goal && e.compareDocumentPosition(goal) & Node.DOCUMENT_POSITION_PRECEDING ? 'back' : 'on'; })()`,
			selector)) {
		case "there":
			return
		case "back":
			p.Press(kb.Tab, chromedp.ModifierShift)
		default:
			p.Press(kb.Tab)
		}
	}
	t.Fatalf("no way to %s by the keyboard", selector)
}

func TestStudio(t *testing.T) {
	t.Parallel()
	address := studio(t)
	t.Run("a person makes a film", func(t *testing.T) { makeFilm(t, address) })
	t.Run("a person makes a film by touch", func(t *testing.T) { makeFilmByTouch(t, address) })
	t.Run("the network goes and comes back", func(t *testing.T) { loseNetwork(t, address) })
	t.Run("the other provider, and the end of a session", func(t *testing.T) { signInAndOut(t, address) })
}

func makeFilm(t *testing.T, address string) {
	p := browsertest.Open(t)
	p.Go(address)
	p.See("Continue with provider A")
	look(t, p, "sign-in")
	p.Fill("input[type=text]", "Pat Player")
	p.Press(kb.Enter)
	p.See("3 credits")
	look(t, p, "empty")

	// Buy credits with the keyboard. The shop asks before it takes money.
	buy := func() {
		p.Until(`document.querySelectorAll('.credits .panel > button').length === 3`)
		p.Click(".credits .panel > button")
		p.Click(".credits .primary:not([aria-disabled])")
	}
	tab(t, p, ".credits summary")
	p.Press(kb.Enter)
	p.Until(`document.querySelectorAll('.credits .panel > button').length === 3`)
	tab(t, p, ".credits .panel > button")
	p.Press(kb.Enter)
	p.See("10 credits for 0.00?")
	p.Until(`document.querySelector('.credits .primary:not([aria-disabled])')`)
	tab(t, p, ".credits .primary")
	p.Press(kb.Enter)
	p.See("13 credits")
	// If the answer to a purchase is lost, the page presents the same purchase again.
	p.Eval(`{ const real = window.fetch; window.fetch = async (...call) => {
		const answer = await real(...call);
		if (!call[0].url?.endsWith('/credits/purchase')) return answer;
		window.fetch = real;
		throw Error('lost');
	}; }`)
	buy()
	p.See("Your purchase has been credited.")
	p.See("23 credits")
	// A double tap buys nothing, two clicks on Buy buy once, and Escape closes the shop.
	p.Eval(`(() => { const product = document.querySelector('.credits .panel > button'); product.click(); product.click(); })()`)
	p.See("10 credits for 0.00?")
	p.Until(`document.querySelector('.credits .primary:not([aria-disabled])')`)
	p.Eval(`(() => { const buy = document.querySelector('.credits .primary'); buy.click(); buy.click(); })()`)
	p.See("33 credits")
	p.See("10 credits bought.")
	p.Press(kb.Escape)
	p.Until(`!document.querySelector('.credits').open && document.activeElement.matches('.credits summary')`)

	p.Click(".material header .primary")
	p.See("Separate for 1 credit")
	p.Until(`document.querySelectorAll('.piece').length === 2`)
	// The film can be watched before it is rendered.
	p.Until(`document.querySelector('.stage canvas').dataset.sources === '0:0'`)
	tab(t, p, `[aria-label="Playhead"]`)
	p.Press(kb.ArrowRight)
	p.Until(`document.querySelector('.stage canvas').dataset.sources === '0:1'`)
	p.Press(kb.End)
	p.Until(`document.querySelector('.stage canvas').dataset.sources?.startsWith('1:')`)
	p.Press(kb.Home + " ")
	p.Until(`document.querySelector('[aria-label=Pause]') && Number(document.querySelector('.stage canvas').dataset.frame) > 5`)
	p.Press(" ")
	p.Until(`document.querySelector('[aria-label=Play]')`)
	tab(t, p, ".ask .primary")
	p.Press(kb.Enter)
	p.See("Your stems are ready.")
	p.Until(`document.querySelectorAll('.stems canvas').length >= 2 && [...document.querySelectorAll('.stems canvas')].every(c => c.dataset.points > 50)`)
	p.See("32 credits")

	// A cut, a speed, an order, a volume: the first three with the keyboard.
	tab(t, p, `[aria-label="End of Segment 1"]`)
	for range 10 {
		p.Press(kb.ArrowLeft)
	}
	p.See("Segment 1, 2.0 s")
	p.Click(`[aria-label^="Edit Segment 2"]`)
	p.Eval(`(() => { const e = document.querySelector('[aria-label="Speed of Segment 2"]'); e.value = '2'; e.dispatchEvent(new Event('change', { bubbles: true })); })()`)
	p.See("Segment 2, 1.0 s")
	tab(t, p, `[aria-label^="Move Segment 2"]`)
	p.Press(kb.ArrowLeft)
	p.Until(`document.body.innerText.includes('Segment 1, 1.0 s') && document.activeElement.matches('[aria-label^="Move Segment 1"]')`)
	// A removed item can be restored, and the focus moves to the button for that.
	p.Click(`[aria-label^="Edit Segment 2"]`)
	tab(t, p, `[aria-label="Remove Segment 2"]`)
	p.Press(kb.Enter)
	p.Until(`document.querySelectorAll('.piece').length === 1 && document.activeElement.matches('.undo .primary')`)
	p.Press(kb.Enter)
	p.Until(`document.querySelectorAll('.piece').length === 2`)
	// A segment is split at the playhead. Every edit can be undone and done again, also after a reload.
	p.Until(`!document.querySelector('[aria-label="Playhead"]').disabled`)
	tab(t, p, `[aria-label="Playhead"]`)
	p.Press(kb.Home)
	p.Press(kb.ArrowRight, chromedp.ModifierShift) // a second
	p.Press(strings.Repeat(kb.ArrowRight, 20))
	p.Until(`document.querySelector('.stage canvas').dataset.frame === '50'`)
	p.Press("s")
	p.Until(`document.querySelectorAll('.piece').length === 3`)
	reload(p)
	p.Until(`document.querySelectorAll('.piece').length === 3`)
	p.Press("z", chromedp.ModifierCtrl)
	p.Until(`document.querySelectorAll('.piece').length === 2`)
	p.Press("Z", chromedp.ModifierCtrl, chromedp.ModifierShift)
	p.Until(`document.querySelectorAll('.piece').length === 3`)
	tab(t, p, `[aria-label="Undo the last edit"]`)
	p.Press(kb.Enter)
	p.Until(`document.querySelectorAll('.piece').length === 2 && document.querySelectorAll('.stems canvas').length >= 2`)
	// The line is enlarged and reduced.
	tab(t, p, `[aria-label="Zoom in"]`)
	p.Press(kb.Enter)
	p.Until(`document.querySelector('.rail').clientWidth > 1.5 * document.querySelector('.scroll').clientWidth`)
	p.Press(kb.Tab, chromedp.ModifierShift)
	p.Press(kb.Enter)
	p.Until(`document.querySelector('.rail').clientWidth <= document.querySelector('.scroll').clientWidth`)
	p.Click(`[aria-label="Remove the speech"]`)
	p.See("Separated before (1)")
	p.Click(".undo .primary")
	p.Until(`document.querySelectorAll('.stems canvas').length >= 2`)
	tab(t, p, `[aria-label="Volume of Background audio"]`)
	p.Press(kb.Home)
	p.Until(`document.querySelector('.stems li:last-child').className === 'mute'`)
	// A press outside closes the panel of a join.
	p.Click(".join summary")
	p.Until(`document.querySelector('.join[open] select')`)
	p.Eval(`document.body.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true }))`)
	p.Until(`!document.querySelector('.join[open]')`)
	// A click on the waveform sets a volume point there, and a double click removes it.
	p.Until(`document.querySelector('.lane .level')`)
	p.Eval(`(() => { const lane = document.querySelector('.lane svg'), box = lane.getBoundingClientRect();
		lane.dispatchEvent(new MouseEvent('click', { bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height * .75 })); })()`)
	p.Until(`(() => { const box = document.querySelector('.lane svg').getBoundingClientRect(), point = document.querySelector('.point').getBoundingClientRect();
		return Math.abs(point.y + point.height / 2 - box.y - box.height * .75) < 2; })()`)
	p.Eval(`document.querySelector('.point').dispatchEvent(new MouseEvent('dblclick', { bubbles: true }))`)
	p.Until(`!document.querySelector('.point')`)
	// The same with the keyboard.
	p.Click(".hint .plain")
	tab(t, p, ".point")
	p.Press(kb.ArrowUp + kb.ArrowLeft)
	p.Until(`document.querySelector('.point[aria-label^="Volume point at 1.4 s, 105 %"]')`)
	p.Press(kb.Delete)
	p.Until(`!document.querySelector('.point')`)
	// If cuts snap to the music, arrow keys go from onset to onset.
	p.Click(`[aria-label^="Edit Segment 2"]`)
	p.Click(".beats .check input")
	tab(t, p, `[aria-label="End of Segment 2"]`)
	p.Until(`(document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft', bubbles: true })), document.body.innerText.includes('Segment 2, 1.0 s'))`)
	p.Press(kb.ArrowRight)
	p.See("Segment 2, 3.0 s")
	p.Click(".beats .check input")
	p.Press(strings.Repeat(kb.ArrowLeft, 10))
	p.See("Segment 2, 2.0 s")
	look(t, p, "studio")

	tab(t, p, ".film .primary")
	p.Press(kb.Enter)
	p.See("Your film is ready.")
	p.Until(`document.querySelector('.film video')?.readyState >= 2 && Math.abs(document.querySelector('.film video').duration - 3) < .1`)
	p.Until(`document.querySelector('.films img')?.naturalWidth > 0`)
	p.Eval(`document.querySelector('.film video').play()`)
	p.Until(`document.querySelector('.film video').currentTime > .3`)
	p.Eval(`document.querySelector('.film video').pause()`)
	p.Eval(`document.querySelector('.stems button').click()`) // the stems play
	p.Until(`document.querySelector('.stems small').innerText !== '0.0 s'`)
	p.Eval(`document.querySelector('.stems button').click()`)
	look(t, p, "film")

	// Everything is restored.
	reload(p)
	p.Until(`document.querySelectorAll('.films li').length === 1 && document.querySelectorAll('.stems canvas').length >= 2`)
	p.Until(`document.querySelector('[aria-label="Edit Segment 2, 2.0 s"]')`)
	p.Click(".films .poster")
	p.Until(`document.querySelector('.film video')?.readyState >= 2`)
	// The dropped file was uploaded before, so it is only referenced.
	drop := func(sample, name string) {
		p.Eval(fmt.Sprintf(`fetch('samples/%s').then(r => r.blob()).then(blob => {
			const dataTransfer = new DataTransfer();
			dataTransfer.items.add(new File([blob], '%s', { type: 'video/mp4' }));
			document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer }));
		})`, sample, name))
	}
	drop("dusk.mp4", "again.mp4")
	p.Until(`document.querySelector('[aria-label="Edit Segment 3, 3.0 s"]')`)
	// If this browser cannot read a file, the service measures it, and it has no thumbnail.
	drop("odd.mp4", "phone.mp4")
	p.Until(`document.querySelector('[aria-label="Edit Segment 4, 2.0 s"]')`)
	drop("song.m4a", "song.mp4")
	p.See("song.mp4 holds no video.")
	// Escape takes back the question whether to delete.
	p.Click(".films .plain")
	p.See("of film are gone for good.")
	p.Press(kb.Escape)
	p.Until(`!document.querySelector('dialog')`)
	confirm(p, ".films .plain")
	p.See("Films that you render are kept here")
	look(t, p, "again")

	// Stems of a clip's own sound stay in sync if its segment is cut afterwards.
	p.Click(`[aria-label="Remove the speech"]`)
	p.Until(`!document.querySelector('.speech')`)
	p.Click(`[aria-label^="Edit Segment 3"]`)
	p.Click(`[aria-label="Separate sound: Segment 3"]`)
	p.Click(".ask .primary")
	p.See("Silence the clip's own sound")
	tab(t, p, `[aria-label="Start of Segment 3"]`)
	p.Press(strings.Repeat(kb.ArrowRight, 10))
	p.See("Segment 3, 2.0 s")
	// A copy of the segment has the stems as well, and the last copy takes them along when it goes.
	p.Click(`[aria-label="Duplicate Segment 3"]`)
	p.Eval(`window.fetch = async (request) => (window.sent = await request.json(), Promise.reject(Error('recorded')))`)
	p.Click(".film .primary:not([aria-disabled])")
	p.Until(`window.sent?.separationDirectives.length === 2`)
	got := p.Eval(`window.sent.separationDirectives.map(d => [d.rangeStartMs, d.rangeEndMs, d.sourceOffsetMs])`)
	if got != "[[3000,5000,1000],[5000,7000,1000]]" {
		t.Errorf("ranges and offsets of the stems: %s", got)
	}
	p.Click(`[aria-label="Remove Segment 3"]`)
	p.See("Segment 3 was removed.")
	p.Click(`[aria-label^="Edit Segment 3"]`)
	p.Until(`(document.querySelector('[aria-label="Remove Segment 3"]')?.click(), !document.querySelector('.speech'))`)
	p.Click(".undo .primary")
	p.Until(`document.querySelector('.speech') && !document.querySelector('.undo')`)
	// Without an answer there are no stems, and a film would lack them.
	p.See("The service does not answer. The page keeps trying")
	p.See("The stems are not ready yet.")
	p.Click(`[aria-label="Remove the speech"]`)
	p.Click(".earlier summary")
	p.Until(`document.querySelector('.earlier li').innerText.startsWith('again.mp4')`)
	refusals(t, p)
}

// answerable is the button that answers a question, once the question hears anything.
const answerable = `dialog .primary:not([aria-disabled])`

// confirm does what is asked about first.
func confirm(p *browsertest.Page, selector string) {
	p.Click(selector)
	p.Click(answerable)
}

// deafFor opens a question, and fails the test if presses that follow each other fast answer it.
func deafFor(t *testing.T, p *browsertest.Page, selector string) {
	t.Helper()
	p.Click(selector)
	// Timers are not waited for: in one turn none can end.
	p.Until(`document.querySelector('dialog[open] .primary')`)
	p.Eval(`(() => { window.late = window.setTimeout; window.setTimeout = (f, ms, ...rest) => late(f, ms === 600 ? 3e6 : ms, ...rest); })()`)
	for range 3 {
		p.Eval(`(() => { const yes = document.querySelector('dialog .primary');
			yes.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true })); yes.click(); })()`)
	}
	if p.Eval(`!document.querySelector('dialog[open]')`) == "true" {
		t.Errorf("a double tap on %s is an answer", selector)
	}
	p.Press(kb.Escape)
	p.Eval(`(window.setTimeout = window.late, 0)`)
	p.Click(selector)
}

// mostTaps is how many taps a film of three clips, with music under a voice, may take.
const mostTaps = 24

// makeFilmByTouch makes a film on a phone, and then cuts it.
func makeFilmByTouch(t *testing.T, address string) {
	p := browsertest.Open(t)
	p.Size(390, 844)
	p.Go(address)
	p.Fill("input[type=text]", "Tina Touch")
	begun, taps := time.Now(), 0
	tap := func(selector string) {
		t.Helper()
		p.Drag(selector, 0, 0)
		taps++
	}
	// The phone's own dialog takes a tap for each file, and another one for a list of several files.
	files := func(selector string, paths ...string) {
		t.Helper()
		p.Choose(selector, paths...)
		if taps += 1 + len(paths); len(paths) > 1 {
			taps++
		}
	}
	// The phone's own list takes a tap to open it and another one to choose.
	choose := func(selector, value string) {
		t.Helper()
		p.Until(fmt.Sprintf(`document.querySelector(%q)`, selector))
		p.Eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.value = %q; e.dispatchEvent(new Event('change', { bubbles: true })); })()`, selector, value))
		taps += 2
	}
	clip := func(width, height int, tone float64) string {
		return mediatest.Clip(t, mediatest.Spec{Width: width, Height: height, Duration: 2 * time.Second, Tone: tone})
	}
	tap("form button[type=submit]")
	files(`.drop:has([multiple])`, clip(320, 180, 330), clip(180, 320, 440), clip(320, 180, 550))
	p.Until(`document.querySelectorAll('.piece').length === 3 && !document.querySelector('.material .going')`)
	files(`.drop:nth-child(2)`, song(t))
	p.Until(`document.querySelector('.music') && !document.querySelector('.material .going')`)
	files(`.drop:nth-child(3)`, mediatest.Clip(t, mediatest.Spec{Duration: 3 * time.Second, Tone: 880, Container: "m4a"}))
	p.See("Separate for 1 credit")
	tap(".ask .primary")
	choose(`[aria-label="Format"]`, "9:16")
	choose(`[aria-label="Fit"]`, "blur")
	tap(`[aria-label="Join of Segments 1 and 2"]`)
	choose(`[aria-label="Kind of Join of Segments 1 and 2"]`, "dissolve")
	tap(".join[open] button")
	// What comes with the stems moves what a finger aims at.
	p.Until(`document.querySelectorAll('.stems canvas').length >= 2 && document.querySelectorAll('.bar').length === 2`)
	tap(`.music .check ~ .check`)
	p.See("Ducked by")
	tap(".film .primary:not([aria-disabled])")
	p.Until(`document.querySelector('.film video')?.readyState >= 2`)
	// Nothing covers the film.
	p.Until(`(() => { const film = document.querySelector('.film video'), box = film.getBoundingClientRect();
		return box.height > 100 && [box.top + 5, box.bottom - 5].every(y => document.elementFromPoint(box.left + box.width / 2, y) === film); })()`)
	p.Eval(`document.querySelector('.film video').play()`)
	taps++
	p.Until(`document.querySelector('.film video').currentTime > .3`)
	t.Logf("%d taps and %.0f s for a film of three clips", taps, time.Since(begun).Seconds())
	if taps > mostTaps {
		t.Errorf("%d taps for a film, at most %d are wanted", taps, mostTaps)
	}
	if film := p.Eval(`(() => { const v = document.querySelector('.film video'); return [v.videoWidth, v.videoHeight, Math.round(v.duration)]; })()`); film != "[180,320,5]" {
		t.Errorf("width, height and length of the film: %s", film)
	}
	// The picture that is seen can be saved as a cover.
	p.Eval(`HTMLAnchorElement.prototype.click = function () { window.saved = this; }`)
	p.Click(".film .cover")
	p.Until(`window.saved`)
	if cover := p.Eval(`fetch(saved.href).then(r => r.blob()).then(createImageBitmap).then(b => [b.width, b.height, saved.download.endsWith('.jpg')])`); cover != "[180,320,true]" {
		t.Errorf("width, height and name of the cover: %s", cover)
	}

	// Everything that a finger has to hit is large enough.
	small := p.Eval(`[...document.querySelectorAll('button, summary, select, a.button, label:has(input), [role=slider]')].filter(e => {
		const box = e.getBoundingClientRect(), reach = getComputedStyle(e, '::before');
		const wide = e.matches('.trim, .edge') ? 40 : box.width, high = Math.max(box.height, parseFloat(reach.height) || 0);
		return box.width && e.checkVisibility() && (wide < 40 || high < 40) && !e.matches('.link, .shot, .point');
	}).map(e => e.outerHTML.slice(0, 90))`)
	if small != "[]" {
		t.Errorf("too small for a finger: %s", small)
	}
	// A finger on the end of a segment trims it. The player shows the frame under the finger, then the film again.
	p.Drag(".trim.to", -60, 0)
	p.Until(`parseFloat(document.querySelector('.card .face small').innerText.split(',')[1]) < 1.6`)
	// Dragging a segment beyond its neighbour changes the order.
	p.Drag(".grip", 130, 0)
	p.Until(`document.querySelector('.shot[aria-pressed=true]').getAttribute('aria-label').startsWith('Edit Segment 2')`)
	p.Drag(`[aria-label="Undo the last edit"]`, 0, 0)
	p.Until(`document.querySelector('.shot[aria-pressed=true]').getAttribute('aria-label').startsWith('Edit Segment 1')`)
	// A tap on a piece moves the playhead there, and the film is split.
	p.Drag(".piece:not(:has(.grip)) .shot", 0, 0)
	p.Drag(`[aria-label="Split at the playhead"]`, 0, 0)
	p.Until(`document.querySelectorAll('.piece').length === 4`)
	p.Drag(`[aria-label="Zoom in"]`, 0, 0)
	p.Until(`document.querySelector('.rail').getBoundingClientRect().width > 500`)
	// The shop lies over the rest of the page.
	p.Drag(".credits summary", 0, 0)
	p.Until(`document.querySelectorAll('.credits .panel > button').length === 3`)
	p.Drag(".credits .panel > button:last-of-type", 0, 0)
	p.See("150 credits for 0.00?")
	look(t, p, "touch")
}

// loseNetwork takes the network away during an upload and during a render. The page says so once and goes on by itself.
func loseNetwork(t *testing.T, address string) {
	p := browsertest.Open(t)
	p.Go(address)
	p.Fill("input[type=text]", "Otto Offline")
	p.Click("form button[type=submit]")
	p.See("3 credits")
	p.Until(`document.querySelector('.drop input:not(:disabled)')`)
	// The page's clock runs twenty times as fast, so that it would give up soon. Time-outs of requests stay: three
	// seconds are too short for a busy machine, and the page would say that the service does not answer.
	p.Eval(`(() => { window.said = [];
		const real = window.setTimeout;
		window.setTimeout = (f, ms, ...rest) => real(f, ms < 45_000 ? ms / 20 : ms, ...rest);
		const look = () => {
			for (const e of document.querySelectorAll('.waiting, .wrong, .pushes p')) if (e.innerText && window.said.at(-1) !== e.innerText) window.said.push(e.innerText);
		};
		new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
	})()`)
	offline := func(when string) {
		t.Helper()
		p.Network(false, 0)
		p.See("You are offline.")
		p.Eval(`new Promise(aMinuteLater => setTimeout(() => setTimeout(aMinuteLater, 30_000), 30_000))`)
		p.Network(true, 0)
		p.Until(`!document.body.innerText.includes('You are offline.')`)
		said := p.Eval(`window.said.splice(0).filter(text => !text.startsWith('Your film'))`)
		if want := `["You are offline. Nothing is lost: the page goes on by itself when the network is back."]`; said != want {
			t.Errorf("%s the page says %s, want %s", when, said, want)
		}
	}
	clip := mediatest.Clip(t, mediatest.Spec{Width: 640, Height: 360, Duration: 4 * time.Second, Tone: 330})
	p.Network(true, 20_000)
	p.Choose(".drop:has([multiple])", clip)
	p.Until(`document.querySelector('.material progress')?.value > 10`)
	offline("during an upload")
	p.Until(`document.querySelectorAll('.piece').length === 1`)
	p.Click(".film .primary:not([aria-disabled])")
	// The second tap of a double tap falls on Cancel, which hears nothing yet.
	p.Until(`document.querySelector('.film progress') && (document.querySelector('.go button:not(.primary)').click(), true)`)
	offline("during a render")
	p.Until(`document.querySelector('.film video')?.readyState >= 2`)
	if said := p.Eval(`window.said.filter(text => !text.startsWith('Your film'))`); said != "[]" {
		t.Errorf("afterwards the page says %s", said)
	}
	p.Problems() // the browser reports each request that failed
}

// refusals checks that the page says what each refusal of a render means.
func refusals(t *testing.T, p *browsertest.Page) {
	for _, refusal := range []struct {
		status     int
		code, says string
	}{
		{503, "paused", "The service takes no new jobs right now."},
		{429, "too_many_jobs", "Too many of your jobs are waiting."},
		{403, "storage_full", "Your storage is full."},
		{403, "unheard_of", "The service answered 403. Try again."},
		{404, "segments[1].sourceAssetKey: the asset does not exist in the object store", "The file of Segment 2 is gone. Add the same file again"},
		{400, "bgmClips[0].fadeInMs must be 0..30000", "The music must be 0..30000"},
	} {
		field, _, _ := strings.Cut(refusal.code, " ")
		p.Eval(fmt.Sprintf(`window.fetch = async () => new Response(JSON.stringify({ error: %q, field: %q }),
			{ status: %d, headers: { 'Content-Type': 'application/json', 'Retry-After': '60' } })`, refusal.code, strings.TrimSuffix(field, ":"), refusal.status))
		p.Click(".film .primary:not([aria-disabled])")
		p.See(refusal.says)
	}
}

func signInAndOut(t *testing.T, address string) {
	p := browsertest.Open(t)
	p.Go(address)
	p.Click("form button[type=button]")
	p.See("3 credits")
	p.Quiet("the sign-in")
	// If the session ended elsewhere, the page returns to the sign-in, and the same name finds the same draft.
	p.Until(`document.querySelector('.options select')`)
	p.Eval(`(() => { const e = document.querySelector('.options select'); e.value = 'high'; e.dispatchEvent(new Event('change', { bubbles: true })); })()`)
	p.Eval(`localStorage.setItem('cutroom.session', localStorage.getItem('cutroom.session').replace(/"accessToken":"[^"]*"/, '"accessToken":"x.y.z"'))`)
	reload(p)
	p.See("Continue with provider A")
	p.See("Your session is over.")
	p.Click("form button[type=button]")
	p.Until(`document.querySelector('.options select').value === 'high'`)
	p.Problems() // the browser complains of each 401

	p.Click(".menu summary")
	p.See("Welcome credits")
	look(t, p, "account")
	p.Click(`[aria-label="Sign out on every device"]`)
	p.Click(answerable)
	p.See("You are signed out on every device.")
	p.Click("form button[type=button]")
	p.Click(".menu summary")
	deafFor(t, p, `[aria-label="Delete the account"]:not([aria-disabled])`)
	p.See("3 credits, 0 films and 0 MB of films, stems and uploads are gone for good")
	p.Click(answerable)
	p.See("Your account, its films and its credits are deleted.")
	p.Click("form button[type=button]")
	p.Until(`document.querySelector('.options select').value === 'medium'`)

	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if policy := res.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
}

// The page, all of it, is small enough for a phone's network.
func TestSize(t *testing.T) {
	const most = 260_000 // bytes, compressed
	var sent bytes.Buffer
	z := gzip.NewWriter(&sent)
	for _, pattern := range []string{"dist/*.html", "dist/assets/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			z.Write(content)
		}
	}
	z.Close()
	if sent.Len() > most {
		t.Errorf("the page has %d bytes, at most %d are wanted", sent.Len(), most)
	}
	t.Logf("%d bytes", sent.Len())
}
