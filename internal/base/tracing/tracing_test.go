package tracing

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

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

// The text of an error may name a person's file.
func TestFailedSpansHoldNoText(t *testing.T) {
	tracer, spans := recorded()
	ctx, end := tracer.Request(t.Context(), "POST", http.Header{}, true)
	_, passed := Start(ctx, "ffmpeg mix")
	passed(errors.New("/home/somebody/film.mp4 is broken"))
	end("POST /api/v2/render", 200)
	if pass := spans.Ended()[0]; pass.Status().Code != codes.Error || strings.Contains(fmt.Sprint(pass.Status(), pass.Attributes()), "somebody") {
		t.Errorf("the failed pass has status %+v and %v", pass.Status(), pass.Attributes())
	}
}

// A client that is no trusted proxy cannot choose the trace or force its recording, whatever the sampler. Nobody's
// tracestate is exported.
func TestAStrangersTraceIsOnlyALink(t *testing.T) {
	for _, c := range []struct {
		name     string
		sampler  sdktrace.Sampler
		trusted  bool
		recorded int
	}{
		{"a stranger, none sampled", sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0)), false, 0},
		{"a proxy, none sampled", sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0)), true, 1},
		{"a stranger, all sampled", sdktrace.ParentBased(sdktrace.AlwaysSample()), false, 1},
	} {
		spans := tracetest.NewSpanRecorder()
		tracer := newTracer(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(c.sampler))
		header := http.Header{"Traceparent": {sampled}, "Tracestate": {"vendor=secret"}}
		ctx, end := tracer.Request(t.Context(), "GET", header, c.trusted)
		if forced := Parent(ctx) != ""; forced != (c.recorded > 0) {
			t.Errorf("%s: a job would continue the trace: %v", c.name, forced)
		}
		end("GET /healthz", 200)
		if n := len(spans.Ended()); n != c.recorded {
			t.Errorf("%s: %d spans, want %d", c.name, n, c.recorded)
		}
		for _, span := range spans.Ended() {
			if joined := span.SpanContext().TraceID().String() == remoteTrace; joined != c.trusted {
				t.Errorf("%s: in the client's trace: %v", c.name, joined)
			}
			links := span.Links()
			if linked := len(links) == 1 && links[0].SpanContext.TraceID().String() == remoteTrace && !links[0].SpanContext.IsSampled(); linked == c.trusted {
				t.Errorf("%s: links %+v", c.name, links)
			}
			if n := span.SpanContext().TraceState().Len() + span.Parent().TraceState().Len(); n != 0 {
				t.Errorf("%s: the client's tracestate is exported", c.name)
			}
		}
	}
}

func TestWhatIsNotSampledIsNotRecorded(t *testing.T) {
	tracer, spans := recorded()
	ctx, end := tracer.Request(t.Context(), "GET", http.Header{"Traceparent": {unsampled}}, true)
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
