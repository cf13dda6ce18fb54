package db

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"

	"cutroom/internal/base/tracing"
)

// Observer is told what happens between this process and a PostgreSQL server, for metrics. It may be called from any
// goroutine.
type Observer interface {
	// Failed is called for each connection or statement that failed because the server did not answer.
	Failed()
	// SawCertificate is called with the certificates of each connection that uses TLS; chain is not empty.
	SawCertificate(chain []*x509.Certificate, refused bool)
}

// tracer tells an observer about a PostgreSQL pool, and records slow statements.
type tracer struct{ observer Observer } // nil = none

var (
	_ pgx.QueryTracer   = (*tracer)(nil)
	_ pgx.ConnectTracer = (*tracer)(nil)
)

func (t *tracer) count(ctx context.Context, err error) {
	if t.observer != nil && errors.Is(classified(ctx, err), ErrUnavailable) {
		t.observer.Failed()
	}
}

// minWait is the minimum duration of a PostgreSQL statement, or of a wait for SQLite's writer, that is recorded as a
// span. A film's trace would have hundreds of quick ones, which would hide the slow ones.
const minWait = 10 * time.Millisecond

// traceWait records a wait for the database that has just ended.
func traceWait(ctx context.Context, name string, began time.Time, err error, attributes ...attribute.KeyValue) {
	if time.Since(began) >= minWait {
		tracing.Past(ctx, name, began, err, attributes...)
	}
}

// statementKey is the context key of a traced statement.
type statementKey struct{}

type statement struct {
	sql   string // without values: those are sent as parameters
	began time.Time
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !tracing.Recording(ctx) {
		return ctx
	}
	return context.WithValue(ctx, statementKey{}, statement{sql: q.SQL, began: time.Now()})
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	t.count(ctx, q.Err)
	if s, ok := ctx.Value(statementKey{}).(statement); ok {
		verb, _, _ := strings.Cut(strings.TrimSpace(s.sql), " ")
		traceWait(ctx, "db "+strings.TrimSpace(verb), s.began, q.Err, attribute.String("db.query.text", s.sql))
	}
}

// TraceConnectStart implements pgx.ConnectTracer.
func (t *tracer) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

// TraceConnectEnd implements pgx.ConnectTracer.
func (t *tracer) TraceConnectEnd(ctx context.Context, end pgx.TraceConnectEndData) {
	t.count(ctx, end.Err)
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](end.Err); ok {
		t.sawCertificate(refused.UnverifiedCertificates, true)
	}
	if end.Err != nil {
		return
	}
	if c, ok := end.Conn.PgConn().Conn().(*tls.Conn); ok {
		t.sawCertificate(c.ConnectionState().PeerCertificates, false)
	}
}

func (t *tracer) sawCertificate(chain []*x509.Certificate, refused bool) {
	if t.observer != nil && len(chain) > 0 {
		t.observer.SawCertificate(chain, refused)
	}
}
