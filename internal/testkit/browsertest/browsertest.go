// Package browsertest lets a test use a web page as a user would, in the installed Chromium. It does not depend on the
// service.
package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// maxWait bounds every wait for the browser or the page. It is long because the machine may be busy.
const maxWait = 4 * time.Minute

// names are the programs that may be installed, smallest first.
var names = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// Page is a tab. It belongs to one test and one goroutine.
type Page struct {
	t   testing.TB
	ctx context.Context // the tab's life

	mu       sync.Mutex
	problems []string

	dialogs chan cdp.BackendNodeID // inputs that opened a dialog to choose files
}

// shared is the browser of this test process.
var shared struct {
	once sync.Once
	ctx  context.Context // the browser's life
	end  context.CancelFunc
	err  error
}

// Open opens an empty tab until the test ends. It shares no cookies and no storage with other tabs, but all tabs of a
// test process share a browser, which takes seconds of processor time to start. If the machine has no browser, Open
// skips the test, or in CI fails it.
func Open(t testing.TB) *Page {
	t.Helper()
	program := find()
	if program == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no Chromium found (on Debian: apt-get install chromium)")
		}
		t.Skip("no Chromium found (on Debian: apt-get install chromium)")
	}
	if shared.once.Do(func() { start(program) }); shared.err != nil {
		t.Fatal(shared.err)
	}
	return open(t, shared.ctx, chromedp.WithNewBrowserContext())
}

// Tab opens another empty tab until the test ends. It shares cookies and storage with this one.
func (p *Page) Tab() *Page {
	p.t.Helper()
	return open(p.t, p.ctx)
}

func open(t testing.TB, parent context.Context, opts ...chromedp.ContextOption) *Page {
	t.Helper()
	p := &Page{t: t, dialogs: make(chan cdp.BackendNodeID, 1)}
	ctx, end := chromedp.NewContext(parent, append(opts, chromedp.WithListener(p.event))...)
	t.Cleanup(end)
	p.ctx = ctx
	// The tab lives as long as the context of the first call.
	starting := time.AfterFunc(maxWait, end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	starting.Stop()
	p.Size(1440, 900)
	return p
}

// start starts the browser. Scrollbars take up space, as on a desktop, and its microphone is a generator of beeps that
// every page may use. As root, the library runs the browser without its sandbox, which is safe because it only loads
// our own pages.
func start(program string) {
	shared.ctx, shared.end = chromedp.NewContext(context.Background(), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(program), chromedp.DisableGPU,
		chromedp.Flag("hide-scrollbars", false), chromedp.Flag("force-prefers-reduced-motion", true),
		chromedp.Flag("use-fake-device-for-media-stream", true), chromedp.Flag("use-fake-ui-for-media-stream", true)))
	// The browser lives as long as the context of the first call.
	starting := time.AfterFunc(maxWait, shared.end)
	if err := chromedp.Do(shared.ctx); err != nil {
		shared.err = fmt.Errorf("start %s: %w", program, err)
	}
	starting.Stop()
}

// Close stops the browser, if a test has started one. TestMain calls it after the tests.
func Close() {
	if shared.end != nil {
		shared.end()
	}
}

func find() string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Size sets the size of the window in CSS pixels. Narrow windows are phones.
func (p *Page) Size(width, height int64) {
	p.t.Helper()
	var opts []chromedp.EmulateViewportOption
	if width < 600 {
		opts = append(opts, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	do(p, chromedp.EmulateViewport(width, height, opts...))
}

// Dark sets whether the device prefers dark pages.
func (p *Page) Dark(on bool) {
	p.t.Helper()
	do(p, command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: map[bool]string{false: "light", true: "dark"}[on]}}}))
}

// Go loads an address, and returns when the document and its scripts are loaded.
func (p *Page) Go(url string) {
	p.t.Helper()
	do(p, chromedp.Navigate(url))
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	do(p, chromedp.Reload())
}

// Eval runs a JavaScript expression, waits for it if it is a promise, and returns its value: a string as it is,
// anything else as JSON.
func (p *Page) Eval(expression string) string {
	p.t.Helper()
	v, err := p.eval(expression)
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (p *Page) eval(expression string) (string, error) {
	raw, err := try(p, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise, func(e *runtime.EvaluateParams) {
		gesture := true // counts as a user gesture, so sound may play
		e.UserGesture = &gesture
	}))
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	return text, err
}

// Until waits for a JavaScript expression to become true. After maxWait it ends the test and prints what the page
// shows. It does not use the library's own wait, which stops when the page changes, and evaluates text as code, which
// the page's policy forbids. It polls less and less often, because each poll costs the browser and the test more than a
// millisecond of processor time.
func (p *Page) Until(expression string) {
	p.t.Helper()
	pause := 16 * time.Millisecond
	for end := time.Now().Add(maxWait); ; time.Sleep(pause) {
		pause = min(pause*5/4, 150*time.Millisecond)
		is, err := p.eval(`(() => { try { return !!(` + expression + `); } catch { return false; } })()`)
		if is == "true" {
			return
		}
		if time.Now().After(end) || p.ctx.Err() != nil {
			text, _ := p.eval(`location.href + '\n' + document.body.innerText.slice(0, 2000)`)
			p.t.Fatalf("%s did not become true (%v); the page: %s\nproblems: %v", expression, err, text, p.Problems())
		}
	}
}

// See waits until the page shows a text.
func (p *Page) See(text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf(`document.body.innerText.includes(%s)`, quote(text)))
}

// Click waits for an element that matches a CSS selector, and clicks the first one.
func (p *Page) Click(selector string) {
	p.t.Helper()
	// In one step, because the page may change between finding the element and clicking it.
	p.Until(fmt.Sprintf(`(e => e && (e.click(), true))(document.querySelector(%s))`, quote(selector)))
}

// Fill replaces the text of the field that matches a CSS selector, as if typed.
func (p *Page) Fill(selector, text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf(`document.querySelector(%s)`, quote(selector)))
	p.Eval(fmt.Sprintf(`{ const e = document.querySelector(%s); e.focus(); e.select(); }`, quote(selector)))
	if text == "" {
		p.Press(kb.Delete)
		return
	}
	do(p, command(input.InsertText, input.InsertTextParams{Text: text}))
}

// Drag touches the middle of the element that matches a CSS selector, moves the finger by dx and dy CSS pixels in
// steps, and lifts it. The page must have the size of a phone. Without a distance it is a tap.
func (p *Page) Drag(selector string, dx, dy float64) {
	p.t.Helper()
	p.Until(fmt.Sprintf(`document.querySelector(%s)`, quote(selector)))
	p.Eval(fmt.Sprintf(`document.querySelector(%s).scrollIntoView({ block: 'center', inline: 'center' })`, quote(selector)))
	x, y := p.middle(selector)
	p.touch("touchStart", &input.TouchPoint{X: x, Y: y})
	const steps = 5
	for i := 1.; i <= steps && (dx != 0 || dy != 0); i++ {
		p.touch("touchMove", &input.TouchPoint{X: x + dx*i/steps, Y: y + dy*i/steps})
	}
	if dx != 0 || dy != 0 {
		// A finger that is lifted while it moves flings the page, and the next tap would only stop the fling.
		p.Eval(`new Promise(done => setTimeout(done, 100))`)
	}
	p.touch("touchEnd")
}

// Pinch puts two fingers on the element that matches a CSS selector, 40 CSS pixels apart, and moves them until they are
// apart CSS pixels apart. The page must have the size of a phone.
func (p *Page) Pinch(selector string, apart float64) {
	p.t.Helper()
	x, y := p.middle(selector)
	fingers := func(apart float64) []*input.TouchPoint {
		left, right := 1., 2.
		return []*input.TouchPoint{{X: x - apart/2, Y: y, ID: &left}, {X: x + apart/2, Y: y, ID: &right}}
	}
	p.touch("touchStart", fingers(40)...)
	const steps = 8
	for i := 1.; i <= steps; i++ {
		p.touch("touchMove", fingers(40+(apart-40)*i/steps)...)
	}
	p.touch("touchEnd")
}

// middle returns the middle of an element, in CSS pixels of the window.
func (p *Page) middle(selector string) (x, y float64) {
	p.t.Helper()
	var at [2]float64
	text := p.Eval(fmt.Sprintf(`(() => { const b = document.querySelector(%s).getBoundingClientRect();
		return [b.x + b.width / 2, b.y + b.height / 2]; })()`, quote(selector)))
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		p.t.Fatalf("%s: %v", text, err)
	}
	return at[0], at[1]
}

func (p *Page) touch(kind input.DispatchTouchEventType, at ...*input.TouchPoint) {
	p.t.Helper()
	do(p, command(input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: append([]*input.TouchPoint{}, at...)}))
}

// Quota bounds what the pages of an origin may store, in bytes; 0 removes the limit.
func (p *Page) Quota(origin string, bytes float64) {
	p.t.Helper()
	params := storage.OverrideQuotaForOriginParams{Origin: origin}
	if bytes > 0 {
		params.QuotaSize = &bytes
	}
	do(p, command(storage.OverrideQuotaForOrigin, params))
}

// Choose taps the element that matches a CSS selector, and chooses files in the dialog that it opens.
func (p *Page) Choose(selector string, paths ...string) {
	p.t.Helper()
	do(p, command(page.SetInterceptFileChooserDialog, page.SetInterceptFileChooserDialogParams{Enabled: true}))
	p.Drag(selector, 0, 0)
	select {
	case input := <-p.dialogs:
		do(p, command(dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: paths, BackendNodeID: input}))
	case <-time.After(maxWait):
		p.t.Fatalf("%s opened no dialog", selector)
	}
}

// Press presses and releases a key, or several, of package kb, while the modifiers are held.
func (p *Page) Press(keys string, modifiers ...chromedp.Modifier) {
	p.t.Helper()
	do(p, chromedp.KeyEvent(keys, chromedp.KeyModifiers(modifiers...)))
}

// Network connects the device, or disconnects it: requests under way fail as well. bytesPerSecond slows uploads
// down; 0 means no limit.
func (p *Page) Network(on bool, bytesPerSecond float64) {
	p.t.Helper()
	if bytesPerSecond == 0 {
		bytesPerSecond = -1
	}
	conditions := network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: []*network.Conditions{
		{Offline: !on, DownloadThroughput: -1, UploadThroughput: bytesPerSecond}}}
	do(p, command(network.EmulateNetworkConditionsByRule, conditions))
	state := network.OverrideNetworkStateParams{Offline: !on, DownloadThroughput: -1, UploadThroughput: bytesPerSecond}
	do(p, command(network.OverrideNetworkState, state))
}

// Screenshot returns the whole page as a PNG picture.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	return do(p, chromedp.FullScreenshot(100))
}

// wide, unnamed and pale list what must not be on a page: elements beyond the right edge of the window, controls
// without a name for screen readers, and texts whose contrast with their background is below 4.5 to 1 (WCAG 2.2,
// 1.4.3).
const (
	wide    = `((over) => over > 0 ? [over + ' pixels'] : [])(document.documentElement.scrollWidth - document.documentElement.clientWidth)`
	unnamed = `[...document.querySelectorAll('a, button, input, progress, [role=img], [role=region]')]
		.filter(e => e.checkVisibility() && !(e.getAttribute('aria-label') || e.labels?.length || e.innerText?.trim())).map(e => e.outerHTML)`
	pale = `(() => {
		const rgb = c => c.match(/[\d.]+/g).map(Number);
		const light = c => {
			const [r, g, b] = rgb(c).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
			return .2126 * r + .7152 * g + .0722 * b;
		};
		const behind = e => {
			for (; e; e = e.parentElement) {
				const s = getComputedStyle(e), c = s.backgroundImage.match(/rgb\([^)]*\)/)?.[0] ?? s.backgroundColor, v = rgb(c);
				if (v.length < 4 || v[3] > 0) return c;
			}
			return 'rgb(255,255,255)';
		};
		const pale = new Set();
		const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (walk.nextNode()) {
			const e = walk.currentNode.parentElement;
			if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest(':disabled, [aria-disabled=true]')) continue;
			const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
			if ((a + .05) / (b + .05) < 4.5) pale.add(walk.currentNode.data.trim().slice(0, 40));
		}
		return [...pale];
	})()`
)

// Look checks the page in its current state: its width, the names of its controls, the contrast of its texts, and the
// browser's complaints. If CUTROOM_TEST_SHOTS names a folder, it leaves a screenshot there.
func (p *Page) Look(name string) {
	p.t.Helper()
	for what, script := range map[string]string{"is too wide": wide, "has controls without a name": unnamed, "has pale texts": pale} {
		if found := p.Eval(script); found != "[]" {
			p.t.Errorf("%s %s: %s", name, what, found)
		}
	}
	if dir := os.Getenv("CUTROOM_TEST_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), p.Screenshot(), 0o600); err != nil {
			p.t.Error(err)
		}
	}
	p.Quiet(name)
}

// Quiet fails the test if the browser has complained since the last call of Problems.
func (p *Page) Quiet(name string) {
	p.t.Helper()
	for _, problem := range p.Problems() {
		p.t.Errorf("the browser complains at %s: %s", name, problem)
	}
}

// Problems returns the browser's complaints since the last call: errors of scripts, of loading and on the console, and
// violations of the page's policy.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.problems
	p.problems = nil
	return out
}

// event collects problems. The browser sends its events before it answers the next command.
func (p *Page) event(event any) {
	var problem string
	switch e := event.(type) {
	case *page.EventFileChooserOpened:
		p.dialogs <- e.BackendNodeID
		return
	case *runtime.EventExceptionThrown:
		problem = (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error()
	case *runtime.EventConsoleAPICalled:
		if !bad(string(e.Type)) {
			return
		}
		problem = "console " + string(e.Type) + ":"
		for _, arg := range e.Args {
			problem += " " + string(arg.Value) + arg.Description
		}
	case *log.EventEntryAdded:
		if !bad(string(e.Entry.Level)) {
			return
		}
		problem = fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, problem)
}

func bad(level string) bool { return level == "error" || level == "warning" || level == "assert" }

// command wraps a CDP command as a chromedp action.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[R] {
	return func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, c, params) }
}

func try[T any](p *Page, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, maxWait)
	defer cancel()
	return chromedp.Run(ctx, action)
}

// do runs an action in the tab, and ends the test if it fails.
func do[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	v, err := try(p, action)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// quote writes a string as JavaScript.
func quote(s string) string {
	b, _ := json.Marshal(s) // a string cannot fail
	return string(b)
}
