// Faults that a test or a developer injects into a stand-in (refuse, stall, cut off and others), and the log of its
// calls.

package fake

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// LeakMarker is part of the default body of an injected failure. If a test finds it in an answer of the service,
// upstream text has leaked to a client.
const LeakMarker = "upstream-detail-7f3a"

// AnyStep selects every step of a stand-in, as in an outage.
const AnyStep = "*"

// maxLoggedCalls bounds the memory of the call log. The counts continue beyond it.
const maxLoggedCalls = 20000

// Kind is how a call fails.
type Kind string

// The kinds of fault; kinds describes them.
const (
	KindStatus    Kind = "status"
	KindGarbage   Kind = "garbage"
	KindClose     Kind = "close"
	KindCut       Kind = "cut"
	KindCutUpload Kind = "cut_upload"
	KindStall     Kind = "stall"
	KindSlow      Kind = "slow"
	KindDelay     Kind = "delay"
	KindHuge      Kind = "huge"
	KindLength    Kind = "length"
	KindRedirect  Kind = "redirect"
)

type faultKind struct {
	Kind    Kind   `json:"kind"`
	What    string `json:"what"`
	Example Rule   `json:"example"`
}

// kinds lists all kinds, with their descriptions and the additional fields of their rules.
var kinds = []faultKind{
	{KindStatus, "answers status with headers and body, delayMs later", Rule{Status: 503, Headers: map[string]string{"Retry-After": "2"}}},
	{KindGarbage, "answers 200, or status, with body, by default bytes that are no JSON", Rule{}},
	{KindClose, "closes the connection without an answer; with effect after the request was obeyed, else before its " +
		"body was read", Rule{Effect: true}},
	{KindCut, "closes the connection after sizeBytes of the real answer's body, by default half of it", Rule{SizeBytes: 100}},
	{KindCutUpload, "closes the connection after reading sizeBytes of the request's body, by default half of it", Rule{SizeBytes: 1000}},
	{KindStall, "reads the request and never answers; ends when the client leaves, the rule is cleared, or after delayMs",
		Rule{DelayMs: 60000}},
	{KindSlow, "sends the real answer at bytesPerSec, by default 10", Rule{BytesPerSec: 2000}},
	{KindDelay, "answers as usual, delayMs later", Rule{DelayMs: 3000}},
	{KindHuge, "answers 200 with sizeBytes (by default 256 MiB) of one JSON string", Rule{SizeBytes: 1 << 20}},
	{KindLength, "sends the real answer under a Content-Length that is lengthDelta off, by default 100 too large", Rule{LengthDelta: 100}},
	{KindRedirect, "answers 302, or status, with location", Rule{Location: "http://192.0.2.1/"}},
}

// Rule makes some calls of one step fail. The zero values of Nth and Times mean every call from the next one on, until
// Clear.
type Rule struct {
	Step  string `json:"step"`            // a step of the stand-in, or AnyStep
	Path  string `json:"path,omitempty"`  // only requests whose path and query contain this
	Nth   int    `json:"nth,omitempty"`   // first call that fails, counted from 1 since the rule was added
	Times int    `json:"times,omitempty"` // how many calls fail; 0 = all of them
	Kind  Kind   `json:"kind"`

	Status      int               `json:"status,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"` // e.g. Retry-After
	Body        string            `json:"body,omitempty"`
	Location    string            `json:"location,omitempty"`
	DelayMs     int               `json:"delayMs,omitempty"`
	SizeBytes   int64             `json:"sizeBytes,omitempty"`
	BytesPerSec int               `json:"bytesPerSec,omitempty"`
	LengthDelta int64             `json:"lengthDelta,omitempty"`

	// Effect lets the call take effect at the vendor although the client sees a failure: the project exists, but the
	// answer is lost.
	Effect bool `json:"effect,omitempty"`
}

// Call is one request to the stand-in.
type Call struct {
	Step   string    `json:"step"`
	Method string    `json:"method"`
	Target string    `json:"target"`          // path and query
	Range  string    `json:"range,omitempty"` // the Range header
	Status int       `json:"status"`          // 0: closed without an answer
	Fault  Kind      `json:"fault,omitempty"`
	At     time.Time `json:"at"`
}

// Faults counts the calls of a stand-in and decides which of them fail. It is safe for concurrent use.
type Faults struct {
	mu     sync.Mutex
	steps  map[string]string // routes by step; "" if it depends on more than the route
	counts map[string]int
	log    []Call
	rules  []*activeRule
}

type activeRule struct {
	Rule
	seen    int // calls that matched
	hits    int // calls that failed
	cleared chan struct{}
}

// NewFaults returns a Faults without rules.
func NewFaults() *Faults {
	return &Faults{steps: map[string]string{StepUnknown: "any other path"}, counts: map[string]int{}}
}

func (f *Faults) register(step, route string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps[step] = route
}

// Add adds rules. If several match one call, the earliest wins. An unknown step or kind is an error, and then no rule
// is added.
func (f *Faults) Add(rules ...Rule) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, rule := range rules {
		if _, known := f.steps[rule.Step]; rule.Step != AnyStep && !known {
			return fmt.Errorf("unknown step %q", rule.Step)
		}
		if !slices.ContainsFunc(kinds, func(k faultKind) bool { return k.Kind == rule.Kind }) {
			return fmt.Errorf("unknown kind of fault %q", rule.Kind)
		}
		if rule.Kind == KindStatus && (rule.Status < 200 || rule.Status > 599) {
			return fmt.Errorf("fault status %d outside 200..599", rule.Status)
		}
	}
	for _, rule := range rules {
		f.rules = append(f.rules, &activeRule{Rule: rule, cleared: make(chan struct{})})
	}
	return nil
}

// Clear removes all rules and ends stalled calls.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, rule := range f.rules {
		close(rule.cleared)
	}
	f.rules = nil
}

// Count returns the number of calls of a step since the start or ResetCalls, including failed ones. AnyStep counts all.
func (f *Faults) Count(step string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if step != AnyStep {
		return f.counts[step]
	}
	total := 0
	for _, n := range f.counts {
		total += n
	}
	return total
}

// Hits returns, for each rule in force, the number of calls that it has affected.
func (f *Faults) Hits() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hits []int
	for _, rule := range f.rules {
		hits = append(hits, rule.hits)
	}
	return hits
}

// Calls returns the logged calls in the order in which they ended, at most the last 20000.
func (f *Faults) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// ResetCalls clears the counts and the log, but keeps the rules.
func (f *Faults) ResetCalls() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts = map[string]int{}
	f.log = nil
}

// take counts a call and returns the rule that applies to it, if any.
func (f *Faults) take(step string, r *http.Request) *activeRule {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[step]++
	var hit *activeRule
	for _, rule := range f.rules {
		if rule.Step != AnyStep && rule.Step != step || !strings.Contains(r.URL.RequestURI(), rule.Path) {
			continue
		}
		rule.seen++
		first := max(rule.Nth, 1)
		if hit == nil && rule.seen >= first && (rule.Times == 0 || rule.seen < first+rule.Times) {
			hit = rule
			hit.hits++
		}
	}
	return hit
}

func (f *Faults) record(call Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.log) >= maxLoggedCalls {
		f.log = slices.Delete(f.log, 0, maxLoggedCalls/10)
	}
	f.log = append(f.log, call)
}

// wrap counts and logs the calls of one step, and applies faults to them.
func (f *Faults) wrap(step string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rule := f.take(step, r)
		seen := &statusWriter{ResponseWriter: w}
		call := Call{Step: step, Method: r.Method, Target: r.URL.RequestURI(), Range: r.Header.Get("Range"), At: time.Now()}
		defer func() {
			call.Status = seen.status
			f.record(call)
		}()
		if rule == nil {
			next(seen, r)
			return
		}
		call.Fault = rule.Kind
		rule.apply(seen, r, next)
	})
}

// mountFaults adds the control calls for rules and the call log.
func (h *Host) mountFaults() {
	f := h.Faults
	Control(h, "POST", "faults", "make calls of a step fail; of rules that match one call the first added wins",
		Rule{Step: AnyStep, Path: "/nowhere", Nth: 1, Times: 1, Kind: KindStatus, Status: 503}, func(_ context.Context, rule Rule) (any, error) {
			return nil, f.Add(rule)
		})
	h.HandleControl("GET", "faults", "the rules in force", nil, func(*http.Request) (any, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		rules := []Rule{}
		for _, rule := range f.rules {
			rules = append(rules, rule.Rule)
		}
		return rules, nil
	})
	h.HandleControl("DELETE", "faults", "switch all rules off", nil, func(*http.Request) (any, error) {
		f.Clear()
		return nil, nil
	})
	h.HandleControl("GET", "calls", "what was called: counts by step, and the last calls", nil, func(*http.Request) (any, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		counts := map[string]int{}
		for step := range f.steps {
			counts[step] = f.counts[step]
		}
		return map[string]any{"counts": counts, "calls": slices.Clone(f.log)}, nil
	})
	h.HandleControl("DELETE", "calls", "forget counts and calls", nil, func(*http.Request) (any, error) {
		f.ResetCalls()
		return nil, nil
	})
}

// statusWriter records the status that was sent.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
