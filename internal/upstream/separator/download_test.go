// Which files become which stems, and flags and links that come late.

package separator

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	hasVoice      = `"hasOriginalVoiceOnly":true`
	hasBackground = `"hasOriginalBackground":true`
	hasSub        = `"hasOriginalSubBackground":true`
	hasSpeakers   = `"hasOriginalSpeakerAudioCollection":true`
	paths         = `"originalVoicePath":"/perso-storage/voice","originalBackgroundPath":"/perso-storage/background"`
	subPath       = `"originalSubBackgroundPath":"/perso-storage/sub"`
)

func projectWith(path string, flags ...string) string {
	return fmt.Sprintf(`{"downloadInfo":{%s},"downloadPathInfo":{%s}}`, strings.Join(flags, ","), path)
}

// TestStems checks which files give which stems, and the effect of a missing file.
func TestStems(t *testing.T) {
	gone := func(paths ...string) func(*provider) {
		return func(p *provider) {
			for _, path := range paths {
				delete(p.files, "/perso-storage/"+path)
			}
		}
	}
	for _, test := range []struct {
		name              string
		project           string
		change            func(*provider)
		voice, background string
		speakers          string
		status            int // of the error when there is no voice at all
	}{
		{name: "all", project: projectWith(paths, hasVoice, hasBackground, hasSpeakers), voice: "voice", background: "background", speakers: "two ten"},
		{name: "bare paths without flags", project: projectWith(paths)},
		{name: "flags without paths", project: projectWith("", hasVoice, hasBackground)},
		{name: "null paths", project: projectWith(`"originalVoicePath":null`, hasVoice)},
		{name: "no path info", project: `{"downloadInfo":{` + hasVoice + `}}`},
		{name: "null path info, speakers", project: `{"downloadInfo":{` + hasSpeakers + `},"downloadPathInfo":null}`, speakers: "two ten"},
		{name: "voice only", project: projectWith(paths, hasVoice), voice: "voice"},
		{name: "no speakers", project: projectWith(paths, hasVoice, hasBackground), voice: "voice", background: "background"},
		{name: "speakers only", project: projectWith(paths, hasSpeakers, hasBackground), background: "background", speakers: "two ten"},
		{name: "background only", project: projectWith(paths, hasBackground)},
		{name: "sub-background by look-up", project: projectWith(paths, hasVoice, hasSub), voice: "voice", background: "sub"},
		{name: "sub-background by path", project: projectWith(paths+","+subPath, hasVoice, hasSub), voice: "voice", background: "sub"},
		{name: "background never appears", project: projectWith(paths, hasVoice, hasBackground, hasSub), change: gone("background"), voice: "voice", background: "sub"},
		{name: "background and speakers are empty", project: projectWith(paths, hasVoice, hasBackground, hasSpeakers), voice: "voice", change: func(p *provider) {
			p.files["/perso-storage/background"], p.files["/perso-storage/speakers.tar"] = nil, nil
		}},
		{name: "no background appears", project: projectWith(paths, hasVoice, hasBackground, hasSub), change: gone("background", "sub"), voice: "voice"},
		{name: "voice never appears", project: projectWith(paths, hasVoice, hasSpeakers), change: gone("voice"), speakers: "two ten"},
		{name: "archive never appears", project: projectWith(paths, hasVoice, hasSpeakers), change: gone("speakers.tar"), voice: "voice"},
		{name: "no voice appears", project: projectWith(paths, hasVoice, hasSpeakers), change: gone("voice", "speakers.tar"), status: 404},
		{name: "archive without audio", project: projectWith(paths, hasVoice, hasSpeakers), voice: "voice", change: func(p *provider) {
			p.files["/perso-storage/speakers.tar"] = tarOf(p.t, file("readme.txt", []byte("hello")))
		}},
		{name: "only an archive without audio", project: projectWith(paths, hasSpeakers), change: func(p *provider) {
			p.files["/perso-storage/speakers.tar"] = tarOf(p.t, file("readme.txt", []byte("hello")))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProvider(t)
			p.project = test.project
			if test.change != nil {
				test.change(p)
			}
			dir := t.TempDir()
			got, err := p.client().Download(t.Context(), 99, dir)
			if test.voice == "" && test.speakers == "" {
				var e *Error
				if !errors.As(err, &e) || !errors.Is(err, errNoVoice) || e.Transient || e.Status != test.status {
					t.Errorf("err = %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantStems(t, dir, got, test.voice, test.background, strings.Fields(test.speakers)...)
		})
	}
}

// The flags lag behind: each poll may show more.
func TestWaitsForFlags(t *testing.T) {
	const null = `{"result":{"downloadInfo":null,"downloadPathInfo":null}}`
	voice, voiceAndBackground := projectWith(paths, hasVoice), projectWith(paths, hasVoice, hasBackground)
	all := projectWith(paths, hasVoice, hasBackground, hasSpeakers)
	for _, test := range []struct {
		name   string
		states []string // project answers of successive polls; the last one repeats
		looks  int
		waited time.Duration
		failed bool
	}{
		{"there at once", []string{all}, 1, 0, false},
		{"late", []string{projectWith(""), projectWith(paths), voice, all}, 4, 4 * time.Second, false},
		{"no flags yet", []string{`{}`, `{"result":{}}`, null, `{"downloadPathInfo":{}}`, all}, 5, 6 * time.Second, false},
		{"good enough", []string{voiceAndBackground}, 3, 2 * time.Second, false},
		{"good enough with speakers", []string{projectWith(paths, hasSpeakers, hasBackground)}, 3, 2 * time.Second, false},
		{"speakers last", []string{voiceAndBackground, all}, 2, time.Second, false},
		{"no background", []string{voice}, 5, 6 * time.Second, false},
		{"no background, and a voice without a path", []string{projectWith("", hasVoice, hasSpeakers)}, 5, 6 * time.Second, false},
		{"background late", []string{voice, voice, voice, voice, voiceAndBackground}, 7, 12 * time.Second, false},
		{"voice last", []string{null, null, null, null, null, null, voice}, 7, 12 * time.Second, false},
		{"never", []string{projectWith(paths)}, 7, 12 * time.Second, true},
		{"no voice", []string{projectWith(paths, hasBackground)}, 7, 12 * time.Second, true},
		{"never any flags", []string{`{}`}, 7, 12 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProvider(t)
			p.project = test.states[len(test.states)-1]
			p.faults["project"] = func(w http.ResponseWriter, _ *http.Request, n int) bool {
				if n > len(test.states) {
					return false
				}
				fmt.Fprint(w, test.states[n-1])
				return true
			}
			c := p.client()
			if _, err := c.settledProject(t.Context(), 99); err != nil || p.hits["project"] != test.looks {
				t.Errorf("%d looks, want %d (%v)", p.hits["project"], test.looks, err)
			}
			var waited time.Duration
			for _, d := range p.slept {
				waited += d
			}
			if waited != test.waited {
				t.Errorf("waited %v, want %v", waited, test.waited)
			}
			if _, err := c.Download(t.Context(), 99, t.TempDir()); (err != nil) != test.failed {
				t.Errorf("Download: %v", err)
			}
		})
	}
}

// After a 404 a new link is requested, because the CDN caches the 404 of the old one.
func TestFreshLinkAfter404(t *testing.T) {
	for name, test := range map[string]struct {
		step, answer string // whose link, and the answer with it
		file         string // behind the link
		want         string // the links that were followed
	}{
		"voice": {step: "project", answer: projectWith(strings.ReplaceAll(paths, "/voice", "/voice?n=%d"), hasVoice, hasBackground, hasSpeakers),
			file: "/voice", want: "[n=2 n=3 n=4]"}, // the first answer shows the flags
		"speakers": {step: "download", answer: `{"result":{"audioFile":{"voiceAudioDownloadLink":"/perso-storage/speakers.tar?n=%d"}}}`,
			file: ".tar", want: "[n=1 n=2 n=3]"},
	} {
		p := newProvider(t)
		p.faults[test.step] = func(w http.ResponseWriter, _ *http.Request, n int) bool {
			fmt.Fprintf(w, test.answer, n)
			return true
		}
		var followed []string
		p.faults["file"] = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if !strings.HasSuffix(r.URL.Path, test.file) {
				return false
			}
			if followed = append(followed, r.URL.RawQuery); len(followed) == 3 {
				return false
			}
			http.NotFound(w, r)
			return true
		}
		dir := t.TempDir()
		got, err := p.client().Download(t.Context(), 99, dir)
		if err != nil || fmt.Sprint(followed) != test.want {
			t.Fatalf("%s: followed %v, want %s (%v)", name, followed, test.want, err)
		}
		wantStems(t, dir, got, "voice", "background", "two", "ten")
	}
}

// A failed download leaves nothing behind, and repeating it succeeds.
func TestBrokenDownloadIsRepeatedWhole(t *testing.T) {
	p := newProvider(t)
	p.faults["file"] = func(w http.ResponseWriter, r *http.Request, n int) bool { return n <= 2 && promises("1000")(w, r, n) }
	dir := t.TempDir()
	c := p.client()
	for range 2 { // the second time into the same folder
		got, err := c.Download(t.Context(), 99, dir)
		if err != nil {
			t.Fatal(err)
		}
		wantStems(t, dir, got, "voice", "background", "two", "ten")
	}
	p.faults["file"] = promises("1000")
	empty := t.TempDir()
	if _, err := c.Download(t.Context(), 99, empty); err == nil {
		t.Fatal("no error")
	}
	if left, _ := os.ReadDir(empty); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
