// Editing in the studio, in a real browser: pieces, touch, two tabs, full storage, voice-over, beats.

package player_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"cutroom/internal/testkit/browsertest"
	"cutroom/internal/testkit/mediatest"
)

// TestEditing does on a phone what an evening of editing does.
func TestEditing(t *testing.T) {
	t.Parallel()
	address := studio(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, string)
	}{
		{"two tabs share the projects", twoTabs},
		{"a full storage is said, and the edits are kept", fullStorage},
		{"projects of earlier versions are taken over", earlierProjects},
		{"what was begun in a project ends in it", endsWhereItBegan},
		{"a double tap removes one piece, the one in sight", removeOnce},
		{"a voice is recorded over the film, moved and trimmed", voiceOver},
		{"cuts go to the beat, and a clip takes the place of another", beatsAndClips},
		{"the line under fingers", fingers},
		{"a segment is turned, cropped, moved, corrected, reversed and bent", looks},
		{"a cut changes no frame of a curve, of moves, and of what plays backwards", cutLooks},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, address) })
	}
}

// enter signs in on a phone.
func enter(p *browsertest.Page, address, name string) {
	p.Size(390, 844)
	p.Go(address)
	p.Fill("input[type=text]", name)
	p.Drag("form button[type=submit]", 0, 0)
	p.Until(`document.querySelector('.studio')`)
	p.Until(`!document.body.innerText.includes('Connecting to the service')`)
	p.Problems() // sign-ins are limited; then the page asks again
}

// clipOf is a clip of three seconds.
func clipOf(t *testing.T, tone float64) string {
	return mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Duration: 3 * time.Second, Tone: tone})
}

// pieces waits for so many pieces on the line.
func pieces(p *browsertest.Page, n int) {
	p.Until(fmt.Sprintf(`document.querySelectorAll('.piece').length === %d && !document.querySelector('.material .going')`, n))
}

// control calls the control interface of the API or of a stand-in.
func control(t *testing.T, method, url string, body any) {
	t.Helper()
	content, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s", method, url, res.Status)
	}
}

// get returns the body of an answer.
func get(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// store is the address of the sandbox's object store.
func store(t *testing.T, address string) string {
	t.Helper()
	var servers map[string]string
	if err := json.Unmarshal([]byte(get(t, address+"/__control/servers")), &servers); err != nil {
		t.Fatal(err)
	}
	return servers["object_store"]
}

const names = `[...document.querySelectorAll('[aria-label=Open] option')].map(o => o.text).join()`

func twoTabs(t *testing.T, address string) {
	a := browsertest.Open(t)
	enter(a, address, "Tab Twice")
	b := a.Tab()
	b.Size(390, 844)
	b.Go(address)
	b.Until(`document.querySelector('.projects')`)
	// One tab begins a project. The other one lists it, and what it does loses nothing.
	b.Drag(".projects summary", 0, 0)
	b.Drag(".projects .panel > button", 0, 0)
	b.Until(`document.querySelector('.projects summary').innerText === 'Film 2'`)
	b.Choose(".drop:has([multiple])", clipOf(t, 330))
	pieces(b, 1)
	a.Until(names + ` === 'My first film,Film 2'`)
	a.Eval(`(() => { const e = document.querySelector('.projects input'); e.value = 'Renamed'; e.dispatchEvent(new Event('change', { bubbles: true })); })()`)
	b.Until(names + ` === 'Renamed,Film 2'`)
	reload(b)
	pieces(b, 1)
	// Both tabs show one project: an edit in one is an edit in both, and both can be undone.
	a.Eval(`(() => { const e = document.querySelector('[aria-label=Open]'); e.value = e.options[1].value; e.dispatchEvent(new Event('change', { bubbles: true })); })()`)
	pieces(a, 1)
	a.Click(`[aria-label="Duplicate Segment 1"]`)
	pieces(b, 2)
	b.Click(`[aria-label="Duplicate Segment 1"]`)
	pieces(a, 3)
	a.Click(`[aria-label="Undo the last edit"]`)
	pieces(b, 2)
	// Edits at the same moment are both there.
	a.Eval(`document.querySelector('[aria-label="Duplicate Segment 1"]').click()`)
	b.Eval(`document.querySelector('[aria-label="Duplicate Segment 1"]').click()`)
	pieces(a, 4)
	pieces(b, 4)
	// A separation in one tab is one in both: the other one shows the credits that are left, and asks for none.
	offer := func(p *browsertest.Page) {
		p.Choose(".drop:nth-child(3)", song(t))
		p.Until(`document.querySelector('.ask .primary').innerText === 'Separate for 1 credit'`)
	}
	offer(a)
	offer(b)
	b.Click(".ask .primary")
	a.Until(`document.querySelector('.ask .primary').innerText === 'Use its stems, free' && document.querySelector('.credits summary').innerText === '2 credits'`)
	a.Click(`[aria-label="Remove the speech"]`)
	b.Until(`!document.querySelector('.speech')`)
	// A deleted project leaves both tabs, and can be restored.
	confirm(a, `[aria-label="Delete the project Film 2"]`)
	a.See("Film 2 was deleted.")
	b.Until(`document.querySelector('.projects summary').innerText === 'Renamed'`)
	reload(a)
	a.Until(`document.querySelector('.projects summary').innerText === 'Renamed'`)
	a.Click(".projects summary")
	a.Until(`[...document.querySelectorAll('.projects button')].find(b => b.innerText === 'Restore Film 2')?.click() === undefined && document.querySelectorAll('.piece').length === 4`)
	a.Look("restored")
	a.Quiet("two tabs")
	b.Quiet("two tabs")
}

func fullStorage(t *testing.T, address string) {
	p := browsertest.Open(t)
	p.Go(address)
	p.Quota(address, 1) // a quota that is met later is noticed late
	enter(p, address, "Full House")
	p.See("Not saved: this browser's storage is full.")
	p.Choose(".drop:has([multiple])", clipOf(t, 330))
	pieces(p, 1)
	p.Drag(`[aria-label="Duplicate Segment 1"]`, 0, 0)
	look(t, p, "full")
	p.Size(390, 844)
	// The edit is there, and is stored as soon as there is room.
	pieces(p, 2)
	p.Quota(address, 0)
	p.Drag(".unsaved button", 0, 0)
	p.Until(`!document.querySelector('.unsaved')`)
	reload(p)
	pieces(p, 2)
	// An order that cannot be noted is not sent, and the page says why.
	p.Eval(`Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }`)
	p.Click(".film .primary:not([aria-disabled])")
	p.See("This browser's storage is full, so that nothing was sent.")
	p.Problems() // the browser reports the quota
}

func earlierProjects(t *testing.T, address string) {
	p := browsertest.Open(t)
	enter(p, address, "Old Timer")
	p.Choose(".drop:has([multiple])", clipOf(t, 330))
	pieces(p, 1)
	p.Until(`document.querySelector('.studio[data-saved=true]')`)
	// As the page stored it until now: two projects, one with music and a step to undo.
	p.Eval(`new Promise(done => {
		const ask = indexedDB.open('cutroom-studio');
		ask.onsuccess = () => {
			const work = ask.result.transaction('projects', 'readwrite'), projects = work.objectStore('projects'), found = projects.getAll();
			found.onsuccess = () => {
				const [{ user, draft }] = found.result, old = { clips: draft.clips, segments: draft.segments, quality: 'low', music: { name: 'song.m4a', assetKey: draft.segments[0].assetKey, volume: 0.5 } };
				localStorage['cutroom-projects-' + user] = JSON.stringify({ current: 'b', projects: [{ id: 'a', name: 'Older' }, { id: 'b', name: 'Newer' }] });
				localStorage['cutroom-project-' + user + '-b'] = JSON.stringify({ draft: old, past: [{ segments: [], quality: 'low' }], future: [] });
				projects.clear();
			};
			work.oncomplete = () => (ask.result.close(), sessionStorage.clear(), done());
		};
	})`)
	p.Reload()
	p.Until(`document.querySelector('.projects summary')?.innerText === 'Newer' && ` + names + ` === 'Older,Newer'`)
	pieces(p, 1)
	p.See("song.m4a")
	p.Until(`!Object.keys(localStorage).some(key => key.startsWith('cutroom-project'))`)
	p.Click(`[aria-label=Play]:not([disabled])`)
	p.Click(`[aria-label="Undo the last edit"]`)
	p.Until(`!document.querySelector('.piece, .music, [aria-label=Pause]')`)
	// Nothing is left of its picture.
	p.Until(`(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.every(v => v === 0))(document.querySelector('.stage canvas'))`)
}

func endsWhereItBegan(t *testing.T, address string) {
	p := browsertest.Open(t)
	enter(p, address, "Ida Ends")
	bucket := store(t, address)
	// An upload that hangs is cancelled, and nothing else waits for it.
	control(t, "POST", bucket+"/__control/faults", map[string]any{"step": "*", "kind": "stall", "path": "assets"})
	p.Choose(".drop:has([multiple])", clipOf(t, 330))
	p.Until(`document.querySelector('.task progress')`)
	p.Choose(".drop:nth-child(2)", song(t))
	p.Until(`document.querySelectorAll('.task').length === 2`)
	// A double tap cancels one: the next one moves under the finger.
	p.Eval(`(performance.real = performance.now, performance.now = () => 1e6, 0)`)
	p.Drag(".task button", 0, 0)
	p.Until(`document.querySelectorAll('.task').length === 1`)
	p.Drag(".task button", 0, 0)
	p.Eval(`(performance.now = () => 2e6, 0)`)
	p.Until(`document.querySelectorAll('.task').length === 1`)
	p.Drag(".task button", 0, 0)
	p.Until(`!document.querySelector('.task')`)
	p.Eval(`(performance.now = performance.real, 0)`)
	control(t, "DELETE", bucket+"/__control/faults", nil)
	p.Problems() // the requests that were given up

	// A clip goes to the project in which it was added, and an offer stays there.
	p.Network(true, 50_000)
	p.Choose(".drop:has([multiple])", mediatest.Clip(t, mediatest.Spec{Width: 640, Height: 360, Duration: 4 * time.Second, Tone: 550}))
	p.Until(`document.querySelector('.task progress')?.value > 0`)
	p.Drag(".projects summary", 0, 0)
	p.Drag(".projects .panel > button", 0, 0)
	p.See("in My first film")
	p.Network(true, 0)
	p.Until(`!document.querySelector('.task')`)
	p.Until(`document.querySelector('.empty')?.innerText.startsWith('Add clips above')`)
	open := func(name string) {
		p.Eval(fmt.Sprintf(`(() => { const e = document.querySelector('[aria-label=Open]'); e.value = [...e.options].find(o => o.text === %q).value; e.dispatchEvent(new Event('change', { bubbles: true })); })()`, name))
		p.Until(fmt.Sprintf(`document.querySelector('.projects summary').innerText === %q`, name))
	}
	open("My first film")
	pieces(p, 1)
	p.Click(`[aria-label="Separate sound: Segment 1"]`)
	p.See("Separate for 1 credit")
	open("Film 2")
	p.Until(`!document.querySelector('.ask')`)
	open("My first film")
	// If its state is refused, the film waits for the stems that were paid for.
	p.Eval(`(window.real = window.fetch, window.fetch = async (request, ...rest) => {
		if (!/separate\/sep-[^/]+$/.test(request.url)) return window.real(request, ...rest);
		window.fetch = window.real;
		return new Response('{"error":"unheard_of"}', { status: 403, headers: { 'Content-Type': 'application/json' } });
	}, 0)`)
	p.Click(".ask .primary")
	p.See("The service answered 403.")
	p.See("The stems are not ready yet.")
	p.Click(".speech .wrong button")
	p.Until(`document.querySelectorAll('.stems canvas').length >= 2`)
	// A clip that comes too late to replace another says so.
	p.Network(true, 50_000)
	p.Choose(".card label:has([type=file])", mediatest.Clip(t, mediatest.Spec{Width: 640, Height: 360, Duration: 4 * time.Second, Tone: 660}))
	p.Until(`document.querySelector('.task progress')?.value > 0`)
	p.Click(`[aria-label="Remove Segment 1"]`)
	p.Network(true, 0)
	p.See("was to replace is no longer there. Add it as a clip.")
}

func removeOnce(t *testing.T, address string) {
	p := browsertest.Open(t)
	enter(p, address, "Ron Remover")
	p.Choose(".drop:has([multiple])", clipOf(t, 330), clipOf(t, 440), clipOf(t, 550))
	pieces(p, 3)
	// Nothing is chosen: the card is that of the piece under the playhead.
	p.Until(`!document.querySelector('[aria-label=Playhead]').disabled`)
	p.Eval(`(() => { const e = document.querySelector('[aria-label=Playhead]'); e.value = e.max; e.dispatchEvent(new Event('input', { bubbles: true })); })()`)
	p.See("Segment 3, 3.0 s")
	const remove = `.card .moves button[aria-label^="Remove"]`
	p.Eval(`(performance.real = performance.now, performance.now = () => 1e9, 0)`) // no time passes between two taps
	p.Drag(remove, 0, 0)
	p.Until(`document.querySelectorAll('.piece').length === 2`)
	p.Drag(remove, 0, 0)
	p.Drag(remove, 0, 0)
	if left := p.Eval(`document.querySelectorAll('.piece').length`); left != "2" {
		t.Errorf("a double tap left %s of 3 pieces", left)
	}
	p.See("Segment 3 was removed.")
	p.Eval(`(performance.now = performance.real, 0)`)
	p.Drag(".undo .primary", 0, 0)
	pieces(p, 3)
	// After a split the card is that of the piece at the playhead.
	p.Until(`!document.querySelector('[aria-label=Playhead]').disabled`)
	p.Eval(`(() => { const e = document.querySelector('[aria-label=Playhead]'); e.value = 45; e.dispatchEvent(new Event('input', { bubbles: true })); })()`)
	p.See("Segment 1, 3.0 s")
	p.Until(`!document.querySelector('[aria-label="Split at the playhead"]').disabled`)
	p.Drag(`[aria-label="Split at the playhead"]`, 0, 0)
	pieces(p, 4)
	p.See("Segment 2, 1.5 s")
	p.Until(`!document.querySelector('[aria-label="Split at the playhead"]').disabled`)
	p.Drag(`[aria-label="Split at the playhead"]`, 0, 0)
	p.See("Too close to a cut to split here.")
}

func voiceOver(t *testing.T, address string) {
	p := browsertest.Open(t)
	enter(p, address, "Vic Voice")
	p.Choose(".drop:has([multiple])", clipOf(t, 330))
	pieces(p, 1)
	p.Until(`!document.querySelector('[aria-label=Playhead]').disabled`)
	p.Eval(`(() => { const e = document.querySelector('[aria-label=Playhead]'); e.value = 15; e.dispatchEvent(new Event('input', { bubbles: true })); })()`)
	p.Drag(".sound header button", 0, 0)
	// The picture goes on while one speaks.
	p.Until(`Number(document.querySelector('[aria-label=Playhead]').value) > 45`)
	p.Drag(".sound header button", 0, 0)
	p.Until(`document.querySelector('.bar .name')?.innerText === 'Voice-over 1'`)
	if credits := p.Eval(`document.querySelector('.credits summary').innerText`); credits != "3 credits" {
		t.Errorf("after a voice-over: %s", credits)
	}
	// It begins where the playhead was, is moved by a finger and trimmed at its end.
	at := func() string { return `document.querySelector('.music input[aria-label^="Where in the film"]').value` }
	if got := p.Eval(at()); got != "500" {
		t.Errorf("the voice-over begins at %s ms", got)
	}
	p.Drag(".bar .grip", 30, 0)
	p.Until(at() + ` > 600`)
	p.Drag(".bar .edge.to", -40, 0)
	look(t, p, "voice")
	p.Size(390, 844)
	p.Eval(`(window.real = window.fetch, window.fetch = async (request) => (window.sent = await request.json(), Promise.reject(Error('recorded'))), 0)`)
	p.Click(".film .primary:not([aria-disabled])")
	p.Until(`window.sent?.bgmClips.length === 1 && (([voice]) => voice.voice && voice.startMs > 600 && voice.sourceTrimEndMs > 200 && voice.volume === 1)(window.sent.bgmClips)`)
	p.Eval(`(window.fetch = window.real, 0)`)
	p.Problems() // the request that was only recorded
	reload(p)
	p.Until(`document.querySelector('.bar .name')?.innerText === 'Voice-over 1'`)
	// The service reads what this browser records.
	p.Click(".film .primary:not([aria-disabled])")
	p.Until(`document.querySelector('.film video')?.readyState >= 2`)
	p.Quiet("a voice-over")
}

func beatsAndClips(t *testing.T, address string) {
	p := browsertest.Open(t)
	enter(p, address, "Bea Beat")
	odd := mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Duration: 1300 * time.Millisecond, Tone: 660})
	p.Choose(".drop:has([multiple])", odd, clipOf(t, 440))
	pieces(p, 2)
	p.Choose(".drop:nth-child(2)", song(t), clipOf(t, 330))
	p.Until(`document.querySelectorAll('.bar').length === 2`) // the second one is the sound of a clip
	p.Click(".beats button:not([aria-disabled])")
	p.See("on the beat now.")
	// The song beeps at each second.
	p.Until(`document.querySelector('[aria-label="Edit Segment 1, 1.0 s"]')`)
	p.Drag(".undo .primary", 0, 0)
	p.Until(`document.querySelector('[aria-label="Edit Segment 1, 1.3 s"]')`)
	p.Drag(`[aria-label^="Edit Segment 2"]`, 0, 0)
	p.See("Segment 2, 3.0 s")
	p.Choose(`.card label:has([type=file])`, odd)
	p.Until(`document.querySelector('[aria-label="Edit Segment 2, 1.3 s"]')`)
	pieces(p, 2)
	look(t, p, "sounds")
	p.Quiet("beats")
}

func fingers(t *testing.T, address string) {
	p := browsertest.Open(t)
	enter(p, address, "Finn Ger")
	p.Choose(".drop:has([multiple])", clipOf(t, 330), clipOf(t, 440))
	pieces(p, 2)
	// The menu of the projects is on the screen, also in an empty project.
	p.Drag(".projects summary", 0, 0)
	p.Drag(".projects .panel > button", 0, 0)
	p.Until(`document.querySelector('.projects summary').innerText === 'Film 2' && document.querySelector('.material header .primary')`)
	p.Drag(".projects summary", 0, 0)
	p.Until(`(box => box.left >= 0 && box.right <= innerWidth && box.width > 200)(document.querySelector('.projects .panel').getBoundingClientRect())`)
	p.Look("menu")
	p.Eval(`(() => { const e = document.querySelector('[aria-label=Open]'); e.value = e.options[0].value; e.dispatchEvent(new Event('change', { bubbles: true })); })()`)
	pieces(p, 2)
	p.Until(`!document.querySelector('[aria-label=Playhead]').disabled`)
	// The trimmed end stays under the finger.
	p.Eval(`document.querySelector('.trim.to').addEventListener('pointermove', e => (window.beside = Math.abs(e.clientX - (b => b.x + b.width / 2)(e.target.getBoundingClientRect()))))`)
	p.Drag(".trim.to", -60, 0)
	p.Until(`parseFloat(document.querySelector('.card .face small').innerText.split(',')[1]) < 2.7`)
	p.Until(`window.beside < 20`)
	// Two fingers enlarge the line and not the page, and the playhead stays in sight.
	p.Eval(`(() => { const e = document.querySelector('[aria-label=Playhead]'); e.value = e.max; e.dispatchEvent(new Event('input', { bubbles: true })); })()`)
	p.Eval(`document.querySelector('.timeline').scrollIntoView({ block: 'center' })`)
	p.Pinch(".pieces", 200)
	p.Until(`document.querySelector('.rail').clientWidth > 2 * document.querySelector('.scroll').clientWidth`)
	if scale := p.Eval(`visualViewport.scale`); scale != "1" {
		t.Errorf("a pinch of the timeline enlarges the page to %s", scale)
	}
	inSight := `(x => x >= 0 && x <= innerWidth)(document.querySelector('.playhead').getBoundingClientRect().x)`
	p.Until(inSight)
	p.Eval(`(() => { const e = document.querySelector('[aria-label=Playhead]'); e.value = 0; e.dispatchEvent(new Event('input', { bubbles: true })); })()`)
	p.Until(inSight + ` && document.querySelector('.scroll').scrollLeft < 50`)
	// A finger at the edge scrolls the line.
	p.Eval(`document.querySelector('.ruler').addEventListener('pointerdown', () => (window.before = document.querySelector('.scroll').scrollLeft))`)
	p.Drag(".ruler", 185, 0)
	p.Until(`document.querySelector('.scroll').scrollLeft > window.before`)
	// The player stays in sight on a phone on its side, and on a desktop.
	for _, size := range [][2]int64{{844, 390}, {1440, 900}} {
		p.Size(size[0], size[1])
		p.Look(fmt.Sprintf("wide-%d", size[0]))
		p.Eval(`document.querySelector('.cut').scrollIntoView({ block: 'end' })`)
		p.Until(`(box => box.top >= 0 && box.bottom <= innerHeight)(document.querySelector('.stage canvas').getBoundingClientRect())`)
	}
}
