package db

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"

	"cutroom/internal/tracing"
)

// tracer counts failures of a PostgreSQL pool for metrics, and records slow statements.
type tracer struct {
	failures atomic.Int64
	expiry   atomic.Int64 // Unix seconds, 0 while no connection used TLS
	refused  atomic.Bool  // the certificate that the server showed last
}

var (
	_ pgx.QueryTracer   = (*tracer)(nil)
	_ pgx.ConnectTracer = (*tracer)(nil)
)

// Failures returns how many connections and statements failed because the database did not answer. It is 0 for
// SQLite, which runs in the process.
func (d *DB) Failures() int64 { return d.tracer.failures.Load() }

// CertificateExpiry returns when the server's latest certificate expires, or the zero time without TLS.
func (d *DB) CertificateExpiry() time.Time {
	if s := d.tracer.expiry.Load(); s != 0 {
		return time.Unix(s, 0)
	}
	return time.Time{}
}

// CertificateRefused reports whether the server's latest certificate was refused.
func (d *DB) CertificateRefused() bool { return d.tracer.refused.Load() }

func (t *tracer) count(ctx context.Context, err error) {
	if err = classified(ctx, err); errors.Is(err, ErrUnavailable) {
		t.failures.Add(1)
	}
}

// minWait is the minimum duration of a PostgreSQL statement, or of a wait for SQLite's writer, that is recorded
// as a span. A film's trace has hundreds of quick ones, which would hide the slow ones.
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
	if len(chain) > 0 {
		t.expiry.Store(chain[0].NotAfter.Unix())
		t.refused.Store(refused)
	}
}
