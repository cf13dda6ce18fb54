package test

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"cutroom/internal/testkit/apitest"
)

// span is a span as the test's collector received it.
type span struct{ name, id, parent, trace, text string }

// startTraces runs an OTLP/HTTP collector. It returns its address, and a function that waits for a span of a trace
// whose name has the prefix.
func startTraces(t *testing.T) (address string, wait func(trace, prefix string) span) {
	t.Helper()
	var mu sync.Mutex
	arrived := sync.NewCond(&mu)
	var spans []span
	late := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var batch collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &batch) != nil {
			t.Errorf("%s %s: %d bytes that are not spans", r.Method, r.URL.Path, len(body))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range batch.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					spans = append(spans, span{s.Name, hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId), hex.EncodeToString(s.TraceId), s.String()})
				}
			}
		}
		arrived.Broadcast()
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func(trace, prefix string) span {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		timer := time.AfterFunc(maxWait, func() { mu.Lock(); defer mu.Unlock(); late = true; arrived.Broadcast() })
		defer timer.Stop()
		for {
			for _, s := range spans {
				if s.trace == trace && strings.HasPrefix(s.name, prefix) {
					return s
				}
			}
			if late {
				t.Fatalf("no span %s of trace %s in %d spans", prefix, trace, len(spans))
			}
			arrived.Wait()
		}
	}
}

// One trace connects the client's request with the job's passes, transfers and calls.
func TestTraces(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	address, wait := startTraces(t)
	s := apitest.Start(t, apitest.Bucket(true), apitest.Env("OTEL_EXPORTER_OTLP_ENDPOINT", address), apitest.Env("OTEL_BSP_SCHEDULE_DELAY", "50"))
	u := s.SignIn(t, apitest.Credits(2))
	submit := func(trace, path string, status int, form []apitest.Part) string {
		header := http.Header{"Traceparent": {"00-" + trace + "-00f067aa0ba902b7-01"}}
		return u.Send(t, apitest.Request{Method: http.MethodPost, Path: path, Form: form, Header: header, Valid: true}).Job(status)
	}
	childOf := func(child, parent span) {
		t.Helper()
		if child.parent != parent.id {
			t.Errorf("%s is not a child of %s", child.name, parent.name)
		}
	}
	checkText := func(spans ...span) {
		t.Helper()
		for _, s := range spans {
			for _, secret := range []string{u.Email, u.Sub, "token=", "X-Amz"} {
				if strings.Contains(s.text, secret) {
					t.Errorf("the span %s holds %q: %s", s.name, secret, s.text)
				}
			}
		}
	}

	const film = "4bf92f3577b34da6a3ce929d0e0e4736"
	id := submit(film, "/api/v2/render", 200, []apitest.Part{{Name: "video", Path: redClip(t)}, {Name: "config", Text: `{"videoDurationMs":1000}`}})
	u.WaitRendered(t, id)
	request, attempt, pass := wait(film, "POST /api/v2/render"), wait(film, "render.attempt"), wait(film, "ffmpeg ")
	childOf(attempt, request)
	childOf(pass, attempt)
	checkText(request, attempt, pass)
	childOf(wait(film, "bucket fetch"), attempt)
	if !strings.Contains(s.Logs(), `"trace":"`+film+`"`) {
		t.Error("no log line has the trace id")
	}

	for _, request := range []string{`"POST","path":"/api/v2/render"`, `"GET","path":"/api/v2/render/` + id + `/status"`} {
		line := regexp.MustCompile(`"method":` + request + `.*"user":"` + u.Sub + `".*"job":"` + id + `"`)
		if !line.MatchString(s.Logs()) {
			t.Errorf("no line of a request names user and job: %s", line)
		}
	}

	const separation = "4bf92f3577b34da6a3ce929d0e0e4737"
	id = submit(separation, "/api/v2/separate", 202, apitest.SeparationForm(mixture(t)))
	u.WaitReady(t, id)
	attempt = wait(separation, "separation.attempt")
	childOf(attempt, wait(separation, "POST /api/v2/separate"))
	for _, call := range []string{"upload-token", "upload", "register", "audio-separation", "progress", "project", "download"} {
		childOf(wait(separation, "provider "+call), attempt)
	}

	const bought = "4bf92f3577b34da6a3ce929d0e0e4738"
	u.Send(t, apitest.Request{Method: http.MethodPost, Path: "/api/v2/credits/purchase",
		Header: http.Header{"Traceparent": {"00-" + bought + "-00f067aa0ba902b7-01"}},
		JSON:   M{"platform": "platform_a", "transactionId": "GPA.unknown", "receipt": "unknown", "productId": "credits.10"}}).Expect(400)
	childOf(wait(bought, "store platform_a"), wait(bought, "POST /api/v2/credits/purchase"))
}
