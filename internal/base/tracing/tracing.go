// Package tracing sends spans to an OpenTelemetry collector, so that one trace shows a film from the request that
// ordered it to the ffmpeg pass on another replica.
//
// A trace begins with a request. The row of the job that the request submits stores its identity ([Parent]), and every
// attempt at that job, wherever it runs, continues the trace ([Tracer.Attempt]). Everything else is a child of the span
// in its context ([Start]). In a context without a sampled span, Start costs a lookup and records nothing.
//
// Spans contain no personal data: no user, address, query, object key or error text.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const scope = "cutroom"

// Tracer begins traces. A nil Tracer is off: its methods do nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// New returns a Tracer that exports by OTLP over HTTP. The SDK reads the collector's address, the sampler, headers and
// everything else from the standard OTEL_* variables of the environment. Spans wait in a bounded queue in memory. If
// the collector does not answer, spans are lost: an export that fails drops its batch and calls onError, and a full
// queue silently drops new spans.
func New(ctx context.Context, version string, onError func(error)) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	// Later options win: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the defaults.
	self, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "cutroom"), attribute.String("service.version", version)),
		resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(onError))
	return newTracer(sdktrace.WithBatcher(exporter), sdktrace.WithResource(self)), nil
}

func newTracer(options ...sdktrace.TracerProviderOption) *Tracer {
	provider := sdktrace.NewTracerProvider(options...)
	return &Tracer{provider: provider, tracer: provider.Tracer(scope)}
}

// Shutdown sends the queued spans, until ctx ends.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Request begins the span of an HTTP request. It continues the trace that the traceparent header of a trusted peer
// names. The header of any other client becomes a link, so that clients decide neither what is recorded nor under which
// trace. The header tracestate is ignored. The returned function ends the span and names it after the route, a pattern
// without ids ("POST /api/v2/render").
func (t *Tracer) Request(ctx context.Context, method string, header http.Header,
	trusted bool) (context.Context, func(route string, status int)) {
	if t == nil {
		return ctx, func(string, int) {}
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	if text := header.Get(traceparent); text != "" {
		client := remote(text)
		if trusted {
			ctx = trace.ContextWithRemoteSpanContext(ctx, client)
		} else if client.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: client.WithTraceFlags(0)}))
		}
	}
	ctx, span := t.tracer.Start(ctx, method, options...)
	if !span.IsRecording() { // most requests: skip computing the attributes
		return ctx, func(string, int) {}
	}
	return ctx, func(route string, status int) {
		span.SetName(route)
		span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route),
			attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// Attempt begins the span of one attempt at a job. parent is the result of [Parent] when the job was submitted. If that
// request was not sampled, parent is "" and the attempts are not recorded either.
func (t *Tracer) Attempt(ctx context.Context, name, parent, jobID, replica string) (context.Context, func(error)) {
	if t == nil || parent == "" {
		return ctx, func(error) {}
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, remote(parent))
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("cutroom.job.id", jobID), attribute.String("cutroom.replica", replica)))
	return ctx, ender(span)
}

// Start begins a child span of the one in ctx. The returned function ends it. An error only marks it as failed,
// because its text may name a person's file.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, func(error)) {
	if !Recording(ctx) {
		return ctx, func(error) {}
	}
	return start(ctx, name, time.Now(), attributes)
}

// Past records a child span of the one in ctx that began earlier and ends now.
func Past(ctx context.Context, name string, began time.Time, err error, attributes ...attribute.KeyValue) {
	if Recording(ctx) {
		_, end := start(ctx, name, began, attributes)
		end(err)
	}
}

func start(ctx context.Context, name string, at time.Time, attributes []attribute.KeyValue) (context.Context, func(error)) {
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer(scope).Start(ctx, name, trace.WithTimestamp(at),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	return ctx, ender(span)
}

// Recording reports whether the span in ctx, and so any child of it, is recorded.
func Recording(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

func ender(span trace.Span) func(error) {
	return func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "")
			span.SetAttributes(attribute.String("error.type", fmt.Sprintf("%T", err)))
		}
		span.End()
	}
}

const traceparent = "traceparent"

// remote parses a traceparent header. The result is invalid if the header is.
func remote(header string) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: header}))
}

// Parent returns the identity of the span in ctx in the format of a traceparent header (W3C Trace Context), or "" if
// the span is not sampled.
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	header := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, header)
	return header[traceparent]
}

// LogHandler returns a log handler that adds the id of the trace in the context, under "trace", and passes every record
// to next.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if at := trace.SpanContextFromContext(ctx); at.IsSampled() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace", at.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }
