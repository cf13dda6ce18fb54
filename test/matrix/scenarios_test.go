// The provider's failures that the matrix runs: every step with every fault, single faults, and hostile results.

package matrix

import (
	"bytes"
	"fmt"
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
	anyCalls           bool // the number of calls depends on time, and is not printed
	untilDeadline      bool // ends when the provider has had PROVIDER_MAX_POLL_MINUTES
}

func scenarios() []scenario {
	return append(append(lasting(), passing()...), hostile()...)
}

var steps = []string{separator.StepUploadToken, separator.StepUpload, separator.StepRegister, separator.StepSubmit,
	separator.StepProgress, separator.StepProject, separator.StepDownloadLink, separator.StepDownload}

// fault replaces a normal response of the provider.
type fault struct {
	name string
	rule fake.Rule
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
	{"401", fake.Rule{Kind: fake.KindStatus, Status: 401}},
	{"402", fake.Rule{Kind: fake.KindStatus, Status: 402}},
	{"403", fake.Rule{Kind: fake.KindStatus, Status: 403}},
	{"404", fake.Rule{Kind: fake.KindStatus, Status: 404}},
	{"429 with Retry-After",
		fake.Rule{Kind: fake.KindStatus, Status: 429, Headers: map[string]string{"Retry-After": "120"}}},
	{"500", fake.Rule{Kind: fake.KindStatus, Status: 500}},
	{"503", fake.Rule{Kind: fake.KindStatus, Status: 503}},
	{"garbage for JSON", fake.Rule{Kind: fake.KindGarbage}},
	{"JSON without the fields", fake.Rule{Kind: fake.KindGarbage, Body: `{"result":{}}`}},
	{"connection closed before the answer", fake.Rule{Kind: fake.KindClose}},
	{"connection closed within the answer", fake.Rule{Kind: fake.KindCut}},
	{"no answer until the time-out", fake.Rule{Kind: fake.KindStall}},
	{"a byte a second", fake.Rule{Kind: fake.KindSlow, BytesPerSec: 1}},
	{"an enormous body", fake.Rule{Kind: fake.KindHuge, SizeBytes: 8 << 20}},
	{"Content-Length too large", fake.Rule{Kind: fake.KindLength, LengthDelta: 100}},
}

// lasting combines every step with every fault, from the first call on. After payment, most faults last until the
// time-out, so one is enough.
func lasting() []scenario {
	var out []scenario
	for _, step := range steps {
		for _, f := range faults {
			paid := slices.Contains(afterPayment, step)
			if paid && !f.ends(step) && f.rule.Status != 500 {
				continue
			}
			c := scenario{table: always, step: step, fault: f.name, rule: rule(f.rule)}
			c.rule.Step = step
			// The fault replaces the response after the provider has created the project.
			c.rule.Effect = step == separator.StepSubmit && f.rule.Kind != fake.KindStatus
			downloads := step == separator.StepDownload || step == separator.StepDownloadLink
			c.untilDeadline = paid && !f.ends(step)
			c.anyCalls = c.untilDeadline || downloads && f.rule.Status == 404 // asked for a fresh link, for a while
			out = append(out, c)
		}
	}
	return out
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
			c := scenario{table: once, step: step, fault: f.name + ", four times", rule: rule(f.rule), anyCalls: true}
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
			c := scenario{table: once, step: step, fault: f.name, rule: rule(f.rule), anyCalls: true}
			c.rule.Step, c.rule.Times, c.anyCalls = step, 1, step != separator.StepSubmit
			out = append(out, c)
		}
	}
	return append(out,
		scenario{table: once, step: separator.StepSubmit, fault: "carried out, but the answer is lost, once",
			rule: rule(fake.Rule{Step: separator.StepSubmit, Kind: fake.KindClose, Effect: true, Times: 1})},
		scenario{table: once, step: separator.StepDownload, fault: "404 on the first link, then a fresh one", anyCalls: true,
			behave: func(b *separator.Behaviour) { b.StaleLinks = 1 }},
		scenario{table: once, step: separator.StepProject, fault: "flags appear two polls late", anyCalls: true,
			behave: func(b *separator.Behaviour) { b.FlagsLagCalls = 2 }},
		scenario{table: once, step: separator.StepProject, fault: "no flags in two polls", anyCalls: true,
			rule: rule(fake.Rule{Step: separator.StepProject, Kind: fake.KindGarbage, Times: 2,
				Body: `{"result":{"downloadInfo":null,"downloadPathInfo":null}}`})},
		scenario{table: once, step: separator.StepProgress, fault: "a reason and no number, twice", anyCalls: true,
			rule: rule(fake.Rule{Step: separator.StepProgress, Kind: fake.KindGarbage, Times: 2, Body: `{"result":{"progressReason":"Mixing"}}`})},
	)
}

// hostile lists hostile and unusual results. The tests of the provider's client have every link, redirect and archive
// that is refused; one of each shows what becomes of the job.
func hostile() []scenario {
	var out []scenario
	add := func(fault string, behave func(b *separator.Behaviour)) {
		out = append(out, scenario{table: links, step: separator.StepDownload, fault: fault, behave: behave, anyCalls: true})
	}
	add("link to a host that is not allowed", func(b *separator.Behaviour) {
		b.Links = map[string]string{separator.ResultVoice: "https://evil.example/voice.wav"}
	})
	out = append(out, scenario{table: links, step: separator.StepDownload, fault: "redirect to itself without end", anyCalls: true,
		rule: rule(fake.Rule{Step: separator.StepDownload, Kind: fake.KindRedirect, Location: "?again"})})
	for _, a := range []struct {
		name, result string
		content      []byte
	}{
		{"not an archive", separator.ResultSpeakers, bytes.Repeat([]byte("not a tar "), 200)},
		{"archive without audio", separator.ResultSpeakers, make([]byte, 1024)},
		{"stem that is no audio", separator.ResultVoice, []byte("<html>not found</html>")},
		{"stem cut off in its header", separator.ResultVoice, silent()[:20]},
		{"voice of no samples", separator.ResultVoice, silent()},
		{"background of no samples", separator.ResultBackground, silent()},
	} {
		add(a.name, func(b *separator.Behaviour) { b.Bytes = map[string][]byte{a.result: a.content} })
	}
	for _, n := range []int{1, 20} {
		add(fmt.Sprintf("%d speakers", n), func(b *separator.Behaviour) { b.Speakers = &n })
	}
	add("no voice, but speakers", func(b *separator.Behaviour) { b.NoVoice = true })
	add("no background at all", func(b *separator.Behaviour) { b.NoBackground, b.NoSubBackground = true, true })
	add("neither voice nor speakers", func(b *separator.Behaviour) { b.NoVoice, b.NoSpeakers = true, true })
	out = append(out,
		scenario{table: links, step: separator.StepProgress, fault: "hasFailed",
			behave: func(b *separator.Behaviour) { b.FailAtPercent = 1 }, anyCalls: true},
		scenario{table: links, step: separator.StepProgress, fault: "progressReason Failed",
			behave: func(b *separator.Behaviour) { b.FailAtPercent, b.FailByReason = 1, true }, anyCalls: true})
	return out
}

// silent returns a WAV file without samples.
func silent() []byte {
	return []byte("RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00")
}
