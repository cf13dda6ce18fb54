// Package job has what the two kinds of jobs, separations and renders, share: the table of jobs with its moves, the
// queue's line, and the lease by which one worker at a time holds a job.
//
// A claim sets lease_owner and lease_until and raises fence by one. The kind's package says which job is next, and
// decides what becomes of a job whose attempt fails; [Queue] claims, and [Table] has the moves. The holder renews its
// lease by [Renewer.KeepAlive], which moves lease_until ahead. When it stops renewing, any worker may claim the job.
// Every write of a holder names its fence, so a holder that was only slow can no longer write.
//
// lease_until is compared with the database's clock alone, so the clocks of replicas need not agree.
package job

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/tracing"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/quota"
)

// The kinds of jobs.
const (
	Render     = "render"
	Separation = "separation"
)

// Kinds lists all of them.
var Kinds = []string{Render, Separation}

// The conditions of partial indexes, word for word: SQLite recognises an index by the text of its condition.
const (
	Waiting = `state IN ('QUEUED', 'PENDING')`
	AtWork  = `state IN ('SUBMITTING', 'PROCESSING')`
)

// What jobs count against the limits of the account $1: how many wait, and the bytes of their files.
var (
	WaitingJobs = `(SELECT COUNT(*) FROM jobs WHERE user_id = $1 AND ` + Waiting + `)`
	StoredBytes = quota.Bytes("stored_bytes", `jobs WHERE user_id = $1 AND stored_bytes > 0`)
)

// Unfinished is the condition that a job has not ended.
const Unfinished = `(` + Waiting + ` OR ` + AtWork + `)`

// Expired is the condition that the lease of job j has run out.
const Expired = `COALESCE(j.lease_until, 0) < now_ms()`

// Table is one kind of job in the table jobs, with the moves that all kinds share.
type Table struct {
	Kind   string // of [Kinds]
	Prefix string // of every id
	// QueueLock, unless "", makes jobs become visible in the order of created_at. Otherwise a job could be claimed
	// before an older one.
	QueueLock string

	DB      *db.DB
	Quota   *quota.Limits // of the owner; nil means no limits
	Renewer *Renewer
	Store   objectstore.Store
	Folder  string // holds the work folders on this disk
	Tracer  *tracing.Tracer
	// Observer counts for metrics; nil counts nothing.
	Observer Observer
	Log      *slog.Logger

	// Ended runs in the transaction that ends a job, whichever way it ends, except when its owner deletes it.
	Ended func(ctx context.Context, tx *db.Tx, e End) error
	// Line, unless nil, keeps the queue's line of owners up to date. It runs at the end of each transaction in which
	// jobs of these owners begin or cease to wait or to be worked on.
	Line func(ctx context.Context, tx *db.Tx, owners []string) error
	// Swept, unless nil, cleans up after each job that [Table.Sweep] has moved.
	Swept func(ctx context.Context, c Claim, r Result)
	// Unknown is the answer for a job that does not exist or has another owner.
	Unknown error
}

// Observer counts jobs for the metrics.
type Observer interface {
	// Stage counts how long a stage took: "wait" until the first attempt, "total" until the job succeeded, and the
	// stages in between that each kind of job names.
	Stage(stage string, took time.Duration)
	// Ended is called in the transaction that ends a job in a state.
	Ended(state string)
}

// Claim is one worker's attempt at a job.
type Claim struct {
	Lease
	UserID   string
	State    string // in which the worker holds the job
	Attempts int    // including this one, which counts once its work has begun
	age      time.Duration
}

// End is how a job ended.
type End struct {
	ID, UserID string
	State      string
	Reason     fault.Reason // "" unless the job failed
	Deleted    bool         // its owner has deleted it
	Asked      bool         // the provider has been asked
}

// details is the table with the kind's own columns.
func (t Table) details() string { return t.Kind + "s" }

// rows is the job j of this kind with its details d.
func (t Table) rows() string {
	return `jobs j JOIN ` + t.details() + ` d ON d.job_id = j.id AND j.kind = '` + t.Kind + `'`
}

// Set writes assignments of the details of a job whose row the transaction has locked.
func (t Table) Set(ctx context.Context, tx *db.Tx, id string, set Fragment) error {
	if set.text == "" {
		return nil
	}
	query, args := statement([]any{id}, `UPDATE `+t.details()+` SET `, set, ` WHERE job_id = $1`)
	if _, err := tx.Exec(ctx, query, args...); err != nil {
		return fmt.Errorf("write details of job: %w", err)
	}
	return nil
}

// CountBytes sets how many bytes the files of a job count against its owner's limit, and locks the job's row. The files
// of a deleted job count nothing.
func CountBytes(ctx context.Context, tx *db.Tx, id string, bytes int64) error {
	_, err := tx.Exec(ctx, `UPDATE jobs SET stored_bytes = CASE WHEN deleted_at IS NULL THEN CAST($2 AS BIGINT) ELSE 0 END
		WHERE id = $1`, id, bytes)
	if err != nil {
		return fmt.Errorf("count bytes of job: %w", err)
	}
	return nil
}

// Announce notifies the clients that wait for a change of a job, and the listeners of the topics.
func Announce(ctx context.Context, tx *db.Tx, id string, topics ...string) error {
	return tx.Notify(ctx, append(topics, Topic(id))...)
}

// Topic announces every change of a job that its owner can see.
func Topic(id string) string { return "job/" + id }

// WorkTopic wakes the workers of every replica, because a job of that kind may be claimed.
func WorkTopic(kind string) string { return db.ForWorkers + kind }

// revoked announces to the worker of a job, on any replica, that the job was taken away for good.
func revoked(id string) string { return db.ForWorkers + "revoked/" + id }
