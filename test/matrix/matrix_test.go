// Package matrix makes every step of the separation provider's protocol fail in every way, tests the real service, and
// compares the results with the tables in docs/separation.md.
//
//	go test ./test/matrix -update   rewrites the tables
//
// Without -update, the test fails if the document differs. In both cases every row must obey the rules for all rows.
package matrix

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

var update = flag.Bool("update", false, "write the observed tables into docs/separation.md")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(apitest.Main(m))
}

const document = "../../docs/separation.md"

// result is one row of a table, as observed.
type result struct {
	state, sentence, code string
	refunded              bool
	calls                 int // calls of the step; -1 if the number varies
	projects              int // projects that the provider charged
}

// outcome returns the result as the document states it.
func (r result) outcome() string {
	says := "–"
	if r.sentence != "" {
		says = r.sentence + ", `" + r.code + "`"
	}
	refund, calls := "no", "–"
	if r.refunded {
		refund = "yes"
	}
	if r.calls >= 0 {
		calls = fmt.Sprint(r.calls)
	}
	return fmt.Sprintf("%s | %s | %s | %s | %d", r.state, says, refund, calls, r.projects)
}

func TestFaultMatrix(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	all := scenarios()
	chosen := all
	if apitest.Postgres() && !*update {
		// The provider's behaviour does not depend on the database, so one fault of each step and table is enough.
		chosen = nil
		for _, c := range all {
			if !slices.ContainsFunc(chosen, func(o scenario) bool { return o.table == c.table && o.step == c.step }) {
				chosen = append(chosen, c)
			}
		}
	}
	source := mediatest.Tones(t, 300, 1200)
	results := make([]result, len(chosen))
	// Only the jobs that wait for the deadline have a short one: on a busy machine, others need minutes.
	short, long := make(chan int, len(chosen)), make(chan int, len(chosen))
	for i, c := range chosen {
		if c.untilDeadline {
			short <- i
		} else {
			long <- i
		}
	}
	close(short)
	close(long)
	var lanes sync.WaitGroup
	for lane := range 6 {
		next, minutes := long, "60"
		if lane == 0 {
			next, minutes = short, "1"
		}
		s := apitest.Start(t, apitest.Replicas(1), apitest.Env("HTTP_REQUEST_TIMEOUT_MS", "9000"), apitest.Env("SEPARATION_BUSY_WAIT_MIN", "0"), apitest.Env("HTTP_SOCKET_TIMEOUT_MS", "5000"),
			apitest.Env("PROVIDER_MAX_POLL_MINUTES", minutes))
		s.World.Separator.Configure(func(b *separator.Behaviour) { b.NoSpeakers = false })
		lanes.Go(func() {
			for i := range next {
				results[i] = observe(t, s, source, chosen[i])
			}
		})
	}
	lanes.Wait()
	if t.Failed() {
		return
	}
	if *update {
		write(t, chosen, results)
		return
	}
	documented, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]int{}
	for _, c := range all {
		wanted[c.table]++
	}
	for table, want := range wanted {
		rows := parse(between(t, string(documented), table))
		if len(rows) != want {
			t.Errorf("the table %q in %s has %d faults, want %d", table, filepath.Base(document), len(rows), want)
		}
		for i, c := range chosen {
			if got := rows[[2]string{c.step, c.fault}]; c.table == table && got != results[i].outcome() {
				t.Errorf("%s, %s: %s, but %s has %q (-update rewrites it)", c.step, c.fault, results[i].outcome(), filepath.Base(document), got)
			}
		}
	}
}

// observe runs a new user's job in a scenario.
func observe(t *testing.T, s *apitest.Server, source string, c scenario) result {
	p := s.World.Separator
	plain := p.Behaviour()
	p.Faults.ResetCalls()
	u := s.SignIn(t) // a new user has three credits
	if c.rule != nil {
		s.World.FailSeparator(t, *c.rule)
	}
	if c.behave != nil {
		p.Configure(func(b *separator.Behaviour) { c.behave(b) })
	}
	id := u.Separate(t, source)
	var job apitest.SeparationStatus
	apitest.Eventually(t, 10*time.Minute, func() bool {
		job = u.Separation(t, id)
		return job.Status == "READY" || job.Status == "FAILED"
	}, func() string { return fmt.Sprintf("%s, %s: still %s", c.step, c.fault, job.Status) })
	r := result{state: job.Status, sentence: job.Error, code: job.ErrorCode, calls: p.Faults.Count(c.step)}
	switch balance := u.Balance(t); balance {
	case 3:
		r.refunded = true
	case 2:
	default:
		t.Errorf("%s, %s: balance %d", c.step, c.fault, balance)
	}
	for _, title := range p.Titles() {
		if title == id {
			r.projects++
		}
	}
	s.World.Heal()
	p.Configure(func(b *separator.Behaviour) { *b = plain })
	if leaks := p.KeyLeaks(); leaks > 0 {
		t.Errorf("%s, %s: the API key was sent to a storage host", c.step, c.fault)
	}
	r.checkRules(t, c)
	if c.anyCalls {
		r.calls = -1
	}
	return r
}

// sentences are what a client may read about the provider.
var sentences = []string{"Authentication failed with the provider", "Insufficient provider quota",
	"Provider rate limit exceeded, please try again later", "Invalid request to the provider", "Provider service unavailable"}

// checkRules checks a row against the rules for all rows.
func (r result) checkRules(t *testing.T, c scenario) {
	bad := func(format string, args ...any) {
		t.Errorf("%s, %s: %s (%+v)", c.step, c.fault, fmt.Sprintf(format, args...), r)
	}
	if r.refunded != (r.state == "FAILED") {
		bad("refunded unless FAILED, or FAILED without a refund")
	}
	if (r.code == "") != (r.sentence == "") || r.code == "internal" {
		bad("wrong error code")
	}
	if r.state == "FAILED" && !slices.Contains(sentences, r.sentence) || r.state == "READY" && r.sentence != "" {
		bad("unexpected sentence for the client")
	}
	if c.table == once && c.step != separator.StepSubmit && r.state != "READY" {
		bad("failed, although the fault passed")
	}
	if c.step == separator.StepSubmit && (r.state != "FAILED" || r.calls != 1) {
		bad("want FAILED after one call, because a repeat could cause a duplicate charge")
	}
	if r.projects > 1 || r.state == "READY" && r.projects != 1 {
		bad("the provider was paid %d times", r.projects)
	}
}

const head = `| Step | Faults | State | Client reads | Refund | Calls of the step | Projects paid for |
|---|---|---|---|---|---|---|
`

func marks(table string) (begin, end string) {
	return "<!-- table: " + table + " -->\n", "<!-- end of table: " + table + " -->\n"
}

func between(t *testing.T, text, table string) string {
	t.Helper()
	begin, end := marks(table)
	_, rest, ok := strings.Cut(text, begin)
	inside, _, found := strings.Cut(rest, end)
	if !ok || !found {
		t.Fatalf("%s has no place for the table %q", filepath.Base(document), table)
	}
	return inside
}

// parse reads a table and returns the outcomes by step and fault.
func parse(table string) map[[2]string]string {
	out := map[[2]string]string{}
	for line := range strings.Lines(strings.TrimPrefix(table, head)) {
		cells := strings.SplitN(strings.Trim(line, "| \n"), " | ", 3)
		for fault := range strings.SplitSeq(cells[1], "; ") {
			out[[2]string{cells[0], fault}] = cells[2]
		}
	}
	return out
}

// write writes the results into the document, one line for each step and outcome with all faults that cause the
// outcome.
func write(t *testing.T, all []scenario, results []result) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	tables, faults := map[string][][2]string{}, map[[2]string][]string{}
	for i, c := range all {
		line := [2]string{c.step, results[i].outcome()}
		if !slices.Contains(tables[c.table], line) {
			tables[c.table] = append(tables[c.table], line)
		}
		faults[[2]string{c.table + c.step, line[1]}] = append(faults[[2]string{c.table + c.step, line[1]}], c.fault)
	}
	for table, lines := range tables {
		var rows strings.Builder
		for _, line := range lines {
			fmt.Fprintf(&rows, "| %s | %s | %s |\n", line[0], strings.Join(faults[[2]string{table + line[0], line[1]}], "; "), line[1])
		}
		begin, _ := marks(table)
		old := []byte(begin + between(t, string(text), table))
		text = bytes.Replace(text, old, []byte(begin+head+rows.String()), 1)
	}
	if err := os.WriteFile(document, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// rule returns a pointer to r.
func rule(r fake.Rule) *fake.Rule { return &r }
