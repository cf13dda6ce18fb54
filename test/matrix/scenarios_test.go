package matrix

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
)

// The tables of the document.
const (
	always = "faults that stay"
	once   = "faults that pass"
	links  = "links and archives"
)

// scenario is one failure of the provider.
type scenario struct {
	table, step, fault string
	rule               *fake.Rule
	behave             func(b *separator.Behaviour)
	want, sentence     string // required; "" accepts anything
	calls              int    // required; 0 accepts any number
	anyCalls           bool   // the number depends on time, and is not printed
}

func scenarios() []scenario {
	return append(append(lasting(), passing()...), hostile()...)
}

var steps = []string{separator.StepUploadToken, separator.StepUpload, separator.StepRegister, separator.StepSubmit,
	separator.StepProgress, separator.StepProject, separator.StepDownloadLink, separator.StepDownload}

// fault replaces a normal response of the provider.
type fault struct {
	name, sentence string
	rule           fake.Rule
}

// afterPayment are the steps after the project is paid for. The service repeats them until a refusal.
var afterPayment = []string{separator.StepProgress, separator.StepProject, separator.StepDownloadLink, separator.StepDownload}

// ends reports whether a fault at a step after payment ends the job at once.
func (f fault) ends(step string) bool {
	if step == separator.StepDownload { // another download of a file that is not audio would not help
		return f.rule.Kind == fake.KindStatus && f.rule.Status < 500 || f.rule.Kind == fake.KindGarbage || f.rule.Kind == fake.KindHuge
	}
	return f.rule.Kind == fake.KindStatus && f.rule.Status < 500 && f.rule.Status != 429
}

var faults = []fault{
	{"401", badKey, fake.Rule{Kind: fake.KindStatus, Status: 401}},
	{"402", noQuota, fake.Rule{Kind: fake.KindStatus, Status: 402}},
	{"403", badRequest, fake.Rule{Kind: fake.KindStatus, Status: 403}},
	{"404", badRequest, fake.Rule{Kind: fake.KindStatus, Status: 404}},
	{"429 with Retry-After", rateLimited,
		fake.Rule{Kind: fake.KindStatus, Status: 429, Headers: map[string]string{"Retry-After": "120"}}},
	{"500", "", fake.Rule{Kind: fake.KindStatus, Status: 500}},
	{"503", "", fake.Rule{Kind: fake.KindStatus, Status: 503}},
	{"garbage for JSON", "", fake.Rule{Kind: fake.KindGarbage}},
	{"JSON without the fields", "", fake.Rule{Kind: fake.KindGarbage, Body: `{"result":{}}`}},
	{"connection closed before the answer", "", fake.Rule{Kind: fake.KindClose}},
	{"connection closed within the answer", "", fake.Rule{Kind: fake.KindCut}},
	{"no answer until the time-out", "", fake.Rule{Kind: fake.KindStall}},
	{"a byte a second", "", fake.Rule{Kind: fake.KindSlow, BytesPerSec: 1}},
	{"an enormous body", "", fake.Rule{Kind: fake.KindHuge, SizeBytes: 8 << 20}},
	{"Content-Length too large", "", fake.Rule{Kind: fake.KindLength, LengthDelta: 100}},
}

// lasting combines every step with every fault, from the first call on. After payment, most faults
// last until the time-out, so one is enough.
func lasting() []scenario {
	var out []scenario
	for _, step := range steps {
		for _, f := range faults {
			paid := slices.Contains(afterPayment, step)
			if paid && !f.ends(step) && f.rule.Status != 500 {
				continue
			}
			c := scenario{table: always, step: step, fault: f.name, sentence: f.sentence}
			c.rule = rule(f.rule)
			c.rule.Step = step
			// The fault replaces the response after the provider has created the project.
			c.rule.Effect = step == separator.StepSubmit && f.rule.Kind != fake.KindStatus
			c.require()
			if paid && !f.ends(step) {
				c.want, c.sentence, c.calls, c.anyCalls = "FAILED", unavailable, 0, true
			}
			out = append(out, c)
		}
	}
	return out
}

// require sets the outcome that the contract requires for a permanent fault.
func (c *scenario) require() {
	status := c.rule.Status
	switch c.step {
	case separator.StepSubmit:
		c.calls = 1 // a repeat could cause a duplicate charge
		c.want = "FAILED"
	case separator.StepUpload:
		if status == 0 {
			return // the service does not read the blob store's response body, so many faults have no effect
		}
	case separator.StepDownload, separator.StepDownloadLink:
		c.anyCalls = status == 404 // retried until the backoff ends
		if status == 404 {
			c.sentence = ""
			return
		}
		if c.step == separator.StepDownload && (c.fault == "garbage for JSON" || c.fault == "JSON without the fields" || c.fault == "an enormous body") {
			c.want = "FAILED"
			return
		}
	}
	switch {
	case c.calls > 0:
	case status >= 500:
		c.calls, c.sentence = 3, unavailable
	case status >= 400:
		c.calls = 1
	}
	if status >= 400 {
		c.want = "FAILED"
	}
}

// passing returns a single fault at each step that the service may repeat.
func passing() []scenario {
	var out []scenario
	for _, step := range afterPayment {
		for _, f := range faults {
			if f.ends(step) {
				continue
			}
			// More faults than the attempts of a call before payment.
			c := scenario{table: once, step: step, fault: f.name + ", four times", rule: rule(f.rule), want: "READY", anyCalls: true}
			c.rule.Step, c.rule.Times = step, 4
			if f.rule.Kind == fake.KindStall || f.rule.Kind == fake.KindSlow {
				c.fault, c.rule.Times = f.name+", twice", 2
			}
			out = append(out, c)
		}
	}
	for _, step := range steps {
		if slices.Contains(afterPayment, step) {
			continue
		}
		for _, f := range []struct {
			name string
			rule fake.Rule
		}{
			{"500, once", fake.Rule{Kind: fake.KindStatus, Status: 500}},
			{"connection closed before the answer, once", fake.Rule{Kind: fake.KindClose}},
			{"no answer until the time-out, once", fake.Rule{Kind: fake.KindStall}},
		} {
			c := scenario{table: once, step: step, fault: f.name, rule: rule(f.rule), want: "READY", anyCalls: true}
			c.rule.Step, c.rule.Times = step, 1
			if step == separator.StepSubmit {
				c.want, c.calls, c.anyCalls = "FAILED", 1, false
			}
			out = append(out, c)
		}
	}
	return append(out,
		scenario{table: once, step: separator.StepSubmit, fault: "carried out, but the answer is lost, once", want: "FAILED", calls: 1,
			rule: rule(fake.Rule{Step: separator.StepSubmit, Kind: fake.KindClose, Effect: true, Times: 1})},
		scenario{table: once, step: separator.StepDownload, fault: "404 on the first link, then a fresh one", want: "READY", anyCalls: true,
			behave: func(b *separator.Behaviour) { b.StaleLinks = 1 }},
		scenario{table: once, step: separator.StepProject, fault: "flags appear two polls late", want: "READY", anyCalls: true,
			behave: func(b *separator.Behaviour) { b.FlagsLagCalls = 2 }},
		scenario{table: once, step: separator.StepProject, fault: "no flags in two polls", want: "READY", anyCalls: true,
			rule: rule(fake.Rule{Step: separator.StepProject, Kind: fake.KindGarbage, Times: 2,
				Body: `{"result":{"downloadInfo":null,"downloadPathInfo":null}}`})},
		scenario{table: once, step: separator.StepProgress, fault: "a reason and no number, twice", want: "READY", anyCalls: true,
			rule: rule(fake.Rule{Step: separator.StepProgress, Kind: fake.KindGarbage, Times: 2, Body: `{"result":{"progressReason":"Mixing"}}`})},
	)
}

// hostile lists hostile links, redirects and archives.
func hostile() []scenario {
	var out []scenario
	add := func(fault, want string, behave func(b *separator.Behaviour)) {
		out = append(out, scenario{table: links, step: separator.StepDownload, fault: fault, want: want, behave: behave, anyCalls: true})
	}
	for _, l := range []struct{ name, link string }{
		{"link to a host that is not allowed", "https://evil.example/voice.wav"},
		{"link over http", "http://portal-media.perso.ai/voice.wav"},
		{"link to a private address", "https://10.0.0.1/voice.wav"},
		{"link to the metadata service", "http://169.254.169.254/latest/meta-data"},
		{"link by a name for a loopback address", "https://localhost/voice.wav"},
		{"link with a password", "https://user:secret@portal-media.perso.ai/voice.wav"},
		{"link to a local file", "file:///etc/passwd"},
	} {
		add(l.name, "FAILED", func(b *separator.Behaviour) { b.Links = map[string]string{separator.ResultVoice: l.link} })
	}
	for _, r := range []struct{ name, to string }{
		{"redirect to a host that is not allowed", "https://evil.example/voice.wav"},
		{"redirect to the metadata service", "http://169.254.169.254/"},
		{"redirect to a local file", "file:///etc/passwd"},
		{"redirect to itself without end", "?again"},
		{"redirect to nowhere", ""},
	} {
		out = append(out, scenario{table: links, step: separator.StepDownload, fault: r.name, want: "FAILED", anyCalls: true,
			rule: rule(fake.Rule{Step: separator.StepDownload, Kind: fake.KindRedirect, Location: r.to})})
	}
	for _, a := range []struct {
		name, want string
		archive    []byte
	}{
		{"archive with ../ in a name", "", archive(entry{name: "../../evil.wav"}, entry{name: "1.wav"})},
		{"archive with an absolute name", "", archive(entry{name: "/etc/evil.wav"}, entry{name: "1.wav"})},
		{"archive with a symbolic link", "", archive(entry{name: "1.wav", kind: tar.TypeSymlink, link: "/etc/passwd"}, entry{name: "2.wav"})},
		{"archive with a hard link", "", archive(entry{name: "1.wav", kind: tar.TypeLink, link: "/etc/passwd"}, entry{name: "2.wav"})},
		{"archive with a device", "", archive(entry{name: "1.wav", kind: tar.TypeChar}, entry{name: "2.wav"})},
		{"archive of 5000 entries", "FAILED", archive(many(5000)...)},
		{"archive that claims 8 GB of zeros", "FAILED", claims(8 << 30)},
		{"archive without audio", "", archive(entry{name: "readme.txt", text: "nothing to hear"})},
		{"not an archive", "FAILED", bytes.Repeat([]byte("not a tar "), 200)},
	} {
		add(a.name, a.want, func(b *separator.Behaviour) { b.Bytes = map[string][]byte{separator.ResultSpeakers: a.archive} })
	}
	add("stem that is no audio", "FAILED", func(b *separator.Behaviour) {
		b.Bytes = map[string][]byte{separator.ResultVoice: []byte("<html>not found</html>")}
	})
	add("stem cut off in its header", "FAILED", func(b *separator.Behaviour) {
		b.Bytes = map[string][]byte{separator.ResultVoice: sound()[:20]}
	})
	add("voice of no samples", "FAILED", func(b *separator.Behaviour) {
		b.Bytes = map[string][]byte{separator.ResultVoice: silent()}
	})
	add("background of no samples", "READY", func(b *separator.Behaviour) {
		b.Bytes = map[string][]byte{separator.ResultBackground: silent()}
	})
	for _, n := range []int{1, 20} {
		add(fmt.Sprintf("%d speakers", n), "READY", func(b *separator.Behaviour) { b.Speakers = &n })
	}
	add("no voice, but speakers", "READY", func(b *separator.Behaviour) { b.NoVoice = true })
	add("no background at all", "READY", func(b *separator.Behaviour) { b.NoBackground, b.NoSubBackground = true, true })
	add("neither voice nor speakers", "FAILED", func(b *separator.Behaviour) { b.NoVoice, b.NoSpeakers = true, true })
	out = append(out,
		scenario{table: links, step: separator.StepProgress, fault: "hasFailed", want: "FAILED", sentence: unavailable,
			behave: func(b *separator.Behaviour) { b.FailAtPercent = 1 }, anyCalls: true},
		scenario{table: links, step: separator.StepProgress, fault: "progressReason Failed", want: "FAILED", sentence: unavailable,
			behave: func(b *separator.Behaviour) { b.FailAtPercent, b.FailByReason = 1, true }, anyCalls: true})
	return out
}

// entry is one entry of an archive. A file without text is a WAV file.
type entry struct {
	name, link, text string
	kind             byte
}

func archive(entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		body := []byte(e.text)
		if e.text == "" && e.kind == 0 {
			body = sound()
		}
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Size: int64(len(body)), Mode: 0o644}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		must(w.WriteHeader(h))
		_, err := w.Write(body)
		must(err)
	}
	must(w.Close())
	return b.Bytes()
}

// silent returns a WAV file without samples.
func silent() []byte {
	b := bytes.Clone(sound()[:44])
	binary.LittleEndian.PutUint32(b[4:], 36)
	binary.LittleEndian.PutUint32(b[40:], 0)
	return b
}

func many(n int) []entry {
	out := make([]entry, n)
	for i := range out {
		out[i] = entry{name: fmt.Sprintf("%d.txt", i), text: "x"}
	}
	return out
}

// claims returns an archive whose only entry declares a size larger than its content.
func claims(size int64) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(w.WriteHeader(&tar.Header{Name: "1.wav", Typeflag: tar.TypeReg, Size: size, Mode: 0o644, Format: tar.FormatGNU}))
	b.Write(make([]byte, 1<<16))
	return b.Bytes()
}

// sound returns a WAV file with a tenth of a second of a tone.
func sound() []byte {
	const n = 800
	b := []byte("RIFF\x64\x06\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x40\x06\x00\x00")
	for i := range n {
		v := int16(8000 * math.Sin(2*math.Pi*1200*float64(i)/8000))
		b = append(b, byte(v), byte(v>>8))
	}
	return b
}

func must(err error) {
	if err != nil {
		panic(err) // writing to memory does not fail
	}
}
