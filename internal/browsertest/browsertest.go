// Package browsertest lets a test use a web page as a person would, in the
// Chromium that is installed on the machine.
//
// It speaks the DevTools protocol over a pipe, which needs no port and no
// library. It knows nothing of the service.
package browsertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// maxWait bounds every wait for the browser or the page.
const maxWait = 20 * time.Second

// names of the browser's program, the smallest first.
var names = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// Page is a tab. It belongs to one test and one goroutine.
type Page struct {
	t       testing.TB
	conn    *conn
	session string

	mu       sync.Mutex
	problems []string
}

// Open starts a browser with an empty tab, and ends it with the test. Without
// a browser on the machine the test is skipped, and in CI it fails.
func Open(t testing.TB) *Page {
	t.Helper()
	program := find()
	if program == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no Chromium found (on Debian: apt-get install chromium)")
		}
		t.Skip("no Chromium found (on Debian: apt-get install chromium)")
	}
	// --no-sandbox: the browser's own sandbox does not run as root, and it is
	// shown our pages only.
	p := &Page{t: t}
	c, err := start(exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
		"--user-data-dir="+t.TempDir()), p.event)
	if err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	p.conn = c
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Errorf("end %s: %v", program, err)
		}
	})
	var target struct{ TargetID string }
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	p.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.call(domain+".enable", nil, nil)
	}
	p.Size(1280, 900)
	return p
}

func find() string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Size makes the window this large, in CSS pixels.
func (p *Page) Size(width, height int) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// Dark sets whether the reader's device asks for dark pages.
func (p *Page) Dark(on bool) {
	p.t.Helper()
	value := "light"
	if on {
		value = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}}}, nil)
}

// Go loads an address and returns when the document and its scripts are there.
func (p *Page) Go(url string) {
	p.t.Helper()
	var answer struct{ ErrorText string }
	p.call("Page.navigate", map[string]any{"url": url}, &answer)
	if answer.ErrorText != "" {
		p.t.Fatalf("go to %s: %s", url, answer.ErrorText)
	}
	p.Until(fmt.Sprintf(`document.readyState === 'complete' && location.href.startsWith(%s)`, quote(strings.SplitN(url, "#", 2)[0])))
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	p.Eval(`window.stale = true`)
	p.call("Page.reload", nil, nil)
	p.Until(`!window.stale && document.readyState === 'complete'`)
}

// Eval runs a JavaScript expression, waits for it if it is a promise, and
// returns its value: a string as it is, anything else as JSON.
func (p *Page) Eval(expression string) string {
	p.t.Helper()
	v, err := p.eval(expression)
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Until waits for a JavaScript expression to become true, and fails the test
// with what the page shows when it does not in time.
func (p *Page) Until(expression string) {
	p.t.Helper()
	end := time.Now().Add(maxWait)
	for {
		// The page looks itself at every frame. When it is left meanwhile, its
		// answer is lost and the next page is asked.
		left := time.Until(end).Milliseconds()
		v, err := p.eval(fmt.Sprintf(`new Promise(done => {
			const end = Date.now() + %d;
			const look = () => { let is = false; try { is = !!(%s); } catch {} if (is || Date.now() > end) done(is); else setTimeout(look, 16); };
			look();
		})`, max(left, 0), expression))
		if err == nil && v == "true" {
			return
		}
		if err == nil || time.Now().After(end) {
			text, _ := p.eval(`location.href + '\n' + document.body.innerText.slice(0, 2000)`)
			p.t.Fatalf("waited in vain for %s (%v); the page: %s\nproblems: %v", expression, err, text, p.Problems())
		}
	}
}

// See waits until the page shows a text.
func (p *Page) See(text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf(`document.body.innerText.includes(%s)`, quote(text)))
}

// Click clicks the first element that a CSS selector finds, once it is there.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.Until(fmt.Sprintf(`document.querySelector(%s)`, quote(selector)))
	p.Eval(fmt.Sprintf(`document.querySelector(%s).click()`, quote(selector)))
}

// Fill replaces the text of the field that a CSS selector finds, as typing does.
func (p *Page) Fill(selector, text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf(`document.querySelector(%s)`, quote(selector)))
	p.Eval(fmt.Sprintf(`{ const e = document.querySelector(%s); e.focus(); e.select(); }`, quote(selector)))
	if text == "" {
		p.Press("Delete", 46)
		return
	}
	p.call("Input.insertText", map[string]any{"text": text}, nil)
}

// Press presses and releases a key, by its DOM name and Windows key code.
func (p *Page) Press(key string, code int) {
	p.t.Helper()
	down := map[string]any{"type": "rawKeyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
	if key == "Enter" {
		down["type"], down["text"] = "keyDown", "\r"
	}
	p.call("Input.dispatchKeyEvent", down, nil)
	p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

// Screenshot returns the whole page as a PNG picture.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	var shot struct{ Data string }
	p.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.t.Fatalf("screenshot: %v", err)
	}
	return png
}

// Problems returns what the browser complained of since the last call: errors
// of scripts, on the console, of loading, and breaches of the page's policy.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.problems
	p.problems = nil
	return out
}

// event takes note of what the browser tells unasked.
func (p *Page) event(method string, params json.RawMessage) {
	var about struct {
		Type             string // of a console call
		Args             []json.RawMessage
		ExceptionDetails json.RawMessage
		Entry            struct{ Level, Text, URL string }
	}
	if json.Unmarshal(params, &about) != nil {
		return
	}
	var problem string
	switch {
	case method == "Runtime.exceptionThrown":
		problem = "exception: " + string(about.ExceptionDetails)
	case method == "Runtime.consoleAPICalled" && (about.Type == "error" || about.Type == "warning" || about.Type == "assert"):
		problem = fmt.Sprintf("console %s: %s", about.Type, about.Args)
	case method == "Log.entryAdded" && (about.Entry.Level == "error" || about.Entry.Level == "warning"):
		problem = fmt.Sprintf("%s: %s %s", about.Entry.Level, about.Entry.Text, about.Entry.URL)
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, problem)
}

func (p *Page) eval(expression string) (string, error) {
	var answer struct {
		Result struct {
			Type  string
			Value json.RawMessage
		}
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := p.conn.call(p.session, "Runtime.evaluate",
		map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &answer)
	switch {
	case err != nil:
		return "", err
	case answer.ExceptionDetails != nil:
		return "", fmt.Errorf("%s %s", answer.ExceptionDetails.Text, answer.ExceptionDetails.Exception.Description)
	case answer.Result.Type == "string":
		var s string
		err := json.Unmarshal(answer.Result.Value, &s)
		return s, err
	}
	return string(answer.Result.Value), nil
}

func (p *Page) call(method string, params, result any) {
	p.t.Helper()
	if err := p.conn.call(p.session, method, params, result); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

// quote writes a string as JavaScript.
func quote(s string) string {
	b, _ := json.Marshal(s) // a string cannot fail
	return string(b)
}
