package db_test

import (
	"context"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
)

// A statement that waits for another's lock is a span of its trace, on either database.
func TestWaitsAreTraced(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		spans := tracetest.NewSpanRecorder()
		traced, request := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "request")
		const update = `UPDATE leases SET fence = 2 WHERE id = 'test'`
		dbtest.Exec(t, d, `INSERT INTO leases (id, lease_owner, lease_until, fence) VALUES ('test', '', 0, 1)`)
		err := d.InTx(t.Context(), func(tx *db.Tx) error {
			if _, err := tx.Exec(t.Context(), update); err != nil {
				return err
			}
			var one int // over a second connection, which the next statement then finds open
			if err := d.QueryRow(t.Context(), `SELECT 1`).Scan(&one); err != nil {
				return err
			}
			brief, cancel := context.WithTimeout(traced, 200*time.Millisecond)
			defer cancel()
			if _, err := d.Exec(brief, update); err == nil {
				t.Error("the lock holds nobody up")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := spans.Ended()
		if len(ended) != 1 || !strings.HasPrefix(ended[0].Name(), "db ") || ended[0].Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("spans %v", ended)
		}
	})
}
