// Package events notifies the operator's web hook and the owner's devices when a job has ended. It owns the outbox
// (tables events and event_deliveries) and the table devices.
//
//	Record ──▶ events ──fan out──▶ event_deliveries: PENDING ──▶ DELIVERED
//	                                    ▲  │ retry           └──▶ FAILED
//	                                    └──┘                 └──▶ row deleted: a push that was sent or dropped
//
// An event is recorded in the transaction that ends the job. One replica's [Dispatcher] delivers it at least once: if
// the process dies during an attempt, the delivery becomes due again. Every step drops the events of deleted jobs and
// accounts.
package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/work/user"
)

// Type is the kind of an event. Apps and receivers see it.
type Type string

// The types of events.
const (
	RenderCompleted  Type = "render.completed"
	RenderFailed     Type = "render.failed"
	SeparationReady  Type = "separation.ready"
	SeparationFailed Type = "separation.failed"
)

// status is the job's status after the event, as the API shows it.
func (t Type) status() string {
	switch t {
	case RenderCompleted:
		return "COMPLETED"
	case SeparationReady:
		return "READY"
	}
	return "FAILED"
}

// Event is the end of a job.
type Event struct {
	Type          Type
	JobID, UserID string
	ErrorCode     string // the error code of a failed job, else ""
}

// Record stores an event in the transaction that ends the job.
func Record(ctx context.Context, tx *db.Tx, e Event) error {
	_, err := tx.Exec(ctx, `INSERT INTO events (id, type, job_id, user_id, error_code, created_at)
		VALUES ($1, $2, $3, $4, NULLIF($5, ''), now_ms())`, "evt-"+uuid.NewString(), string(e.Type), e.JobID, e.UserID, e.ErrorCode)
	if err != nil {
		return fmt.Errorf("record event: %w", err)
	}
	return nil
}

// Drop deletes a job's events in the transaction that deletes the job.
func Drop(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM events WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("drop events: %w", err)
	}
	return nil
}

// Forget deletes a user's events and devices in the transaction that begins the account's deletion.
func Forget(ctx context.Context, tx *db.Tx, userID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM events WHERE user_id = $1`, userID); err != nil {
		return fmt.Errorf("drop events: %w", err)
	}
	return ForgetDevices(ctx, tx, userID)
}

// lifetime is how long an event is kept, so that it can be resent.
const lifetime = 30 * 24 * time.Hour

// Sweep removes events that are older than lifetime.
func Sweep(ctx context.Context, d *db.DB) error {
	if _, err := d.Exec(ctx, `DELETE FROM events WHERE created_at < now_ms() - $1`, lifetime.Milliseconds()); err != nil {
		return fmt.Errorf("sweep events: %w", err)
	}
	return nil
}

// errUnknown means that no event has the given id.
var errUnknown = errors.New("there is no such event; events are kept for 30 days")

// Entry is an event and the state of its web hook, for operators.
type Entry struct {
	ID        string     `json:"id"`
	Type      string     `json:"type"`
	JobID     string     `json:"jobId"`
	UserID    string     `json:"userId"`
	ErrorCode *string    `json:"errorCode"`
	CreatedAt time.Time  `json:"createdAt"`
	Webhook   string     `json:"webhook"` // NEW, PENDING, DELIVERED, FAILED, or NONE if no web hook is configured
	Attempts  int        `json:"attempts"`
	NextTry   *time.Time `json:"nextTry"` // while PENDING
	LastError *string    `json:"lastError"`
}

// listed selects the events that an operator sees: all, or only those whose web hook was given up.
func listed(failed bool) string {
	from := `FROM events e LEFT JOIN event_deliveries d ON d.event_id = e.id AND d.channel = '` + webhookName + `'
		WHERE ` + user.Exists("e.user_id")
	if failed {
		from += ` AND d.state = 'FAILED'`
	}
	return from
}

// Count is the length of the list that [List] pages through.
func Count(ctx context.Context, q db.Querier, failed bool) (n int64, err error) {
	if err := q.QueryRow(ctx, `SELECT COUNT(*) `+listed(failed)).Scan(&n); err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	return n, nil
}

// List returns events, newest first: all, or only those whose web hook was given up.
func List(ctx context.Context, q db.Querier, failed bool, limit, offset int64) ([]Entry, error) {
	out, err := db.All(ctx, q, scanEntry, `SELECT e.id, e.type, e.job_id, e.user_id, e.error_code, e.created_at,
			COALESCE(d.state, CASE WHEN e.fanned_out_at IS NULL THEN 'NEW' ELSE 'NONE' END), COALESCE(d.attempts, 0),
			CASE WHEN d.state = 'PENDING' THEN d.due_at END, d.last_error
		`+listed(failed)+` ORDER BY e.created_at DESC, e.id LIMIT $1 OFFSET $2`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return out, nil
}

func scanEntry(row db.Scanner) (e Entry, err error) {
	var created int64
	var next *int64
	err = row.Scan(&e.ID, &e.Type, &e.JobID, &e.UserID, &e.ErrorCode, &created, &e.Webhook, &e.Attempts, &next, &e.LastError)
	e.CreatedAt = time.UnixMilli(created).UTC()
	if next != nil {
		at := time.UnixMilli(*next).UTC()
		e.NextTry = &at
	}
	return e, err
}

// Resend calls the web hook again for an event, delivered or not.
func Resend(ctx context.Context, d *db.DB, id string) error {
	n, err := resend(ctx, d, `id = $1`, id)
	if err == nil && n == 0 {
		return errUnknown
	}
	return err
}

// ResendSince calls the web hook again for all events since a time and returns their number.
func ResendSince(ctx context.Context, d *db.DB, since time.Time) (int64, error) {
	return resend(ctx, d, `created_at >= $1`, since.UnixMilli())
}

func resend(ctx context.Context, d *db.DB, which string, arg any) (int64, error) {
	n, err := d.Exec(ctx, `INSERT INTO event_deliveries (id, event_id, channel, state, attempts, queued_at, due_at)
		SELECT id || '/`+webhookName+`', id, '`+webhookName+`', 'PENDING', 0, now_ms(), now_ms() FROM events WHERE `+which+`
		ON CONFLICT (id) DO UPDATE SET state = 'PENDING', attempts = 0, queued_at = excluded.queued_at,
			due_at = excluded.due_at, ended_at = NULL, last_error = NULL`, arg)
	if err != nil {
		return 0, fmt.Errorf("resend events: %w", err)
	}
	return n, nil
}
