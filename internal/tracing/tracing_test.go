package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

const (
	remoteTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled     = "00-" + remoteTrace + "-00f067aa0ba902b7-01"
	unsampled   = "00-" + remoteTrace + "-00f067aa0ba902b7-00"
)

func recorded() (*Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return newTracer(sdktrace.WithSpanProcessor(spans)), spans
}

// A request continues the client's trace, and the attempt at the job that it
// submitted continues the request's, in another process.
func TestOneTraceFromRequestToPass(t *testing.T) {
	tracer, spans := recorded()
	ctx, end := tracer.Request(t.Context(), "POST", http.Header{"Traceparent": {sampled}})
	stored := Parent(ctx)
	end("POST /api/v2/render", 200)

	elsewhere, otherSpans := recorded()
	ctx, ended := elsewhere.Attempt(t.Context(), "render.attempt", stored, "rnd-1", "replica-2")
	_, passed := Start(ctx, "ffmpeg mix", attribute.Int("n", 1))
	passed(errors.New("/home/somebody/film.mp4 is broken"))
	ended(nil)

	request := spans.Ended()[0]
	if request.Name() != "POST /api/v2/render" || request.SpanContext().TraceID().String() != remoteTrace {
		t.Errorf("the request is %s of trace %s", request.Name(), request.SpanContext().TraceID())
	}
	pass, attempt := otherSpans.Ended()[0], otherSpans.Ended()[1]
	if attempt.Parent().SpanID() != request.SpanContext().SpanID() || attempt.SpanContext().TraceID().String() != remoteTrace {
		t.Error("the attempt is not a child of the request")
	}
	if pass.Parent().SpanID() != attempt.SpanContext().SpanID() || pass.Name() != "ffmpeg mix" {
		t.Errorf("%s is not a child of the attempt", pass.Name())
	}
	if pass.Status().Code != codes.Error || strings.Contains(pass.Status().Description, "somebody") {
		t.Errorf("the failed pass has status %+v", pass.Status())
	}
}

func TestWhatIsNotSampledIsNotRecorded(t *testing.T) {
	tracer, spans := recorded()
	ctx, end := tracer.Request(t.Context(), "GET", http.Header{"Traceparent": {unsampled}})
	_, ended := Start(ctx, "bucket fetch")
	ended(nil)
	end("GET /api/v2/credits", 200)
	if parent := Parent(ctx); parent != "" {
		t.Errorf("a job of it would carry %q", parent)
	}
	_, ended = tracer.Attempt(t.Context(), "render.attempt", "", "rnd-1", "replica-2")
	ended(nil)
	if n := len(spans.Ended()); n != 0 {
		t.Errorf("%d spans were recorded", n)
	}
}

func TestATracerThatIsOff(t *testing.T) {
	var off *Tracer
	ctx, end := off.Request(t.Context(), "GET", http.Header{"Traceparent": {sampled}})
	end("GET /x", 200)
	_, ended := off.Attempt(ctx, "render.attempt", sampled, "rnd-1", "replica-2")
	ended(nil)
	if Parent(ctx) != "" || off.Shutdown(t.Context()) != nil {
		t.Error("it does something")
	}
	if n := testing.AllocsPerRun(100, func() {
		_, end := Start(context.Background(), "bucket fetch")
		end(nil)
	}); n != 0 {
		t.Errorf("a span that is not recorded costs %v allocations", n)
	}
}

func TestLogsCarryTheTrace(t *testing.T) {
	tracer, _ := recorded()
	ctx, end := tracer.Request(t.Context(), "GET", http.Header{"Traceparent": {sampled}})
	defer end("GET /x", 200)
	var out bytes.Buffer
	log := slog.New(LogHandler(slog.NewJSONHandler(&out, nil)))
	log.With("a", 1).InfoContext(ctx, "traced")
	log.Info("not traced")
	lines := strings.Split(out.String(), "\n")
	if !strings.Contains(lines[0], `"trace":"`+remoteTrace+`"`) || strings.Contains(lines[1], "trace\":") {
		t.Error(out.String())
	}
}
