// The dispatcher of the outbox: fans events out to the configured channels, claims what is due, makes one attempt each,
// and decides when to try again.

package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"cutroom/internal/base/clock"
	"cutroom/internal/base/db"
	"cutroom/internal/base/rescue"
	"cutroom/internal/upstream/push"
	"cutroom/internal/work/job"
	"cutroom/internal/work/user"
)

const (
	// pollEvery is how often the dispatcher looks for new events and due deliveries.
	pollEvery = time.Second
	// AttemptTimeout bounds one attempt, from its connection to the end of the answer.
	AttemptTimeout = 15 * time.Second
	// claimLife is how long a claim lasts. If its process dies, the delivery is due again afterwards. It is longer than
	// an attempt plus the write of its outcome.
	claimLife = 35 * time.Second
	// settleTimeout bounds the write of an attempt's outcome.
	settleTimeout = 10 * time.Second
	// inFlight is how many attempts of one channel may run at the same time. A hanging receiver blocks each of them for
	// AttemptTimeout.
	inFlight = 64
	// fanOutBatch is how many events one transaction fans out.
	fanOutBatch = 100
	// pushLife is how long after a job's end a push may still arrive.
	pushLife = 24 * time.Hour
	// maxRetryAfter bounds a platform's Retry-After.
	maxRetryAfter = 24 * time.Hour
)

// The pause after each failed attempt. If the attempt after the last pause fails, the dispatcher gives up.
var (
	webhookPauses = []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour}
	pushPauses = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute}
)

// The outcomes of an attempt.
const (
	delivered = "delivered"
	retried   = "failed"   // another attempt follows
	givenUp   = "given_up" // none follows
	removed   = "device_removed"
)

// Channels and Outcomes are the arguments that [Options.Observe] may get.
var (
	Channels = []string{webhookName, PlatformA, PlatformB}
	Outcomes = []string{delivered, retried, givenUp, removed}
)

// Pusher sends to the devices of one platform.
type Pusher interface {
	Send(ctx context.Context, m push.Message) error
}

// Options configures a Dispatcher.
type Options struct {
	DB      *db.DB
	Webhook *Webhook          // nil: none is configured
	Push    map[string]Pusher // by platform; a platform that is not configured has none
	// Observe counts an attempt.
	Observe func(channel, outcome string)
	Log     *slog.Logger
}

// Dispatcher delivers events. One replica runs it. Two may run briefly while a lease changes hands, which is
// harmless.
type Dispatcher struct {
	Options
	channels []*channel
}

// channel is one way to deliver. Each has its own slots, so a hanging receiver blocks only its own channel.
type channel struct {
	name   string
	pauses []time.Duration
	slots  chan struct{}
	send   func(ctx context.Context, m message) error
}

// New returns a Dispatcher.
func New(o Options) *Dispatcher {
	d := &Dispatcher{Options: o}
	if o.Webhook != nil {
		d.add(webhookName, webhookPauses, o.Webhook.send)
	}
	for _, platform := range []string{PlatformA, PlatformB} {
		if p := o.Push[platform]; p != nil {
			d.add(platform, pushPauses, func(ctx context.Context, m message) error {
				return p.Send(ctx, push.Message{Token: m.token, Registered: m.registered, Type: string(m.kind), JobID: m.jobID,
					Expires: m.created.Add(pushLife)})
			})
		}
	}
	return d
}

func (d *Dispatcher) add(name string, pauses []time.Duration, send func(context.Context, message) error) {
	d.channels = append(d.channels, &channel{name: name, pauses: pauses, slots: make(chan struct{}, inFlight), send: send})
}

// Run delivers until ctx ends, and then waits for the attempts in progress.
func (d *Dispatcher) Run(ctx context.Context) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	if err := d.forgetUnconfigured(ctx); err != nil && ctx.Err() == nil {
		d.Log.Warn("deliveries of channels that are not configured were left", "err", err)
	}
	job.Poll(ctx, d.Log, "events", nil, pollEvery, func(ctx context.Context) (bool, error) {
		return d.step(ctx, &attempts)
	})
}

// step fans out new events and starts due deliveries. It reports whether there may be more to do at once.
func (d *Dispatcher) step(ctx context.Context, attempts *sync.WaitGroup) (more bool, err error) {
	more, err = d.fanOut(ctx)
	for _, c := range d.channels {
		ids, claimErr := d.claim(ctx, c, cap(c.slots)-len(c.slots))
		err = errors.Join(err, claimErr)
		for _, id := range ids {
			c.slots <- struct{}{}
			attempts.Go(func() {
				defer func() { <-c.slots }()
				d.attempt(context.WithoutCancel(ctx), c, id)
			})
		}
	}
	return more, err
}

// forgetUnconfigured deletes pending deliveries of channels that are no longer configured.
func (d *Dispatcher) forgetUnconfigured(ctx context.Context) error {
	_, err := d.DB.Exec(ctx, `DELETE FROM event_deliveries WHERE state = 'PENDING' AND channel NOT IN (`+d.names()+`)`)
	if err != nil {
		return fmt.Errorf("forget deliveries: %w", err)
	}
	return nil
}

// names returns the names of the configured channels for IN, plus a name that no channel has, so that the list is not
// empty.
func (d *Dispatcher) names() string {
	names := `''`
	for _, c := range d.channels {
		names += `, '` + c.name + `'`
	}
	return names
}

// fanOut creates the deliveries of new events. If no channel is configured, it deletes all events.
func (d *Dispatcher) fanOut(ctx context.Context) (more bool, err error) {
	if len(d.channels) == 0 {
		if _, err := d.DB.Exec(ctx, `DELETE FROM events`); err != nil {
			return false, fmt.Errorf("drop events: %w", err)
		}
		return false, nil
	}
	var ids []string
	err = d.DB.InTx(ctx, func(tx *db.Tx) (err error) {
		ids, err = db.Texts(tx.Query(ctx, `UPDATE events SET fanned_out_at = now_ms() WHERE fanned_out_at IS NULL AND id IN (
			SELECT id FROM events WHERE fanned_out_at IS NULL ORDER BY created_at, id
			LIMIT $1`+d.DB.SkipLockedOf("events")+`) RETURNING id`, fanOutBatch))
		for _, id := range ids {
			err = errors.Join(err, d.deliver(ctx, tx, id))
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("fan out events: %w", err)
	}
	return len(ids) == fanOutBatch, nil
}

// deliver creates the deliveries of one event.
func (d *Dispatcher) deliver(ctx context.Context, tx *db.Tx, id string) error {
	const insert = `INSERT INTO event_deliveries (id, event_id, channel, device_id, state, attempts, queued_at, due_at) `
	if d.channels[0].name == webhookName {
		// An operator's resend may have created it already.
		if _, err := tx.Exec(ctx, insert+`VALUES ($1, $2, $3, NULL, 'PENDING', 0, now_ms(), now_ms()) ON CONFLICT (id) DO NOTHING`,
			id+"/"+webhookName, id, webhookName); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, insert+`SELECT e.id || '/' || v.id, e.id, v.platform, v.id, 'PENDING', 0, now_ms(), now_ms()
		FROM events e JOIN devices v ON v.user_id = e.user_id
		WHERE e.id = $1 AND v.platform IN (`+d.names()+`) AND `+user.Exists("e.user_id"), id)
	return err
}

// dueSQL finds $2 deliveries of channel $1 that are due.
const dueSQL = `SELECT d.id FROM event_deliveries d WHERE d.state = 'PENDING' AND d.channel = $1 AND d.due_at <= (SELECT now_ms())
	ORDER BY d.attempts, d.due_at LIMIT $2`

// claim takes up to n due deliveries, those with the fewest attempts first: repeated failures do not delay new events.
func (d *Dispatcher) claim(ctx context.Context, c *channel, n int) ([]string, error) {
	if n == 0 {
		return nil, nil
	}
	ids, err := d.DB.ExecTexts(ctx, `UPDATE event_deliveries SET due_at = now_ms() + $3 WHERE state = 'PENDING'
		AND due_at <= now_ms() AND id IN (`+dueSQL+d.DB.SkipLockedOf("d")+`) RETURNING id`, c.name, n, claimLife.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("claim deliveries: %w", err)
	}
	return ids, nil
}

// message is the content of one delivery, and its receiver.
type message struct {
	eventID       string
	kind          Type
	jobID, userID string
	errorCode     *string
	created       time.Time
	attempts      int // before this one
	token         string
	registered    time.Time // when the app registered token last
}

// attempt makes one attempt at a claimed delivery and records its outcome.
func (d *Dispatcher) attempt(ctx context.Context, c *channel, id string) {
	try, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	m, err := d.load(try, id)
	switch {
	case db.IsNoRows(err):
		err = d.write(ctx, `DELETE FROM event_deliveries WHERE id = $1 AND state = 'PENDING'`, id)
	case err == nil:
		err = d.settle(ctx, c, id, m, rescue.Do(func() error { return c.send(try, m) }))
	}
	if err != nil {
		d.Log.Warn("event delivery not settled; it is attempted again", "delivery", id, "err", err)
	}
}

// load reads a delivery. It finds no row if the account, job or device was deleted, or if the device now belongs to
// another account.
func (d *Dispatcher) load(ctx context.Context, id string) (m message, err error) {
	var created, registered int64
	err = d.DB.QueryRow(ctx, `SELECT e.id, e.type, e.job_id, e.user_id, e.error_code, e.created_at, d.attempts,
			COALESCE(v.token, ''), COALESCE(v.registered_at, 0)
		FROM event_deliveries d JOIN events e ON e.id = d.event_id LEFT JOIN devices v ON v.id = d.device_id AND v.user_id = e.user_id
		WHERE d.id = $1 AND d.state = 'PENDING' AND (d.device_id IS NULL OR v.id IS NOT NULL) AND `+user.Exists("e.user_id"), id).
		Scan(&m.eventID, &m.kind, &m.jobID, &m.userID, &m.errorCode, &created, &m.attempts, &m.token, &registered)
	m.created, m.registered = time.UnixMilli(created), time.UnixMilli(registered)
	if err != nil && !db.IsNoRows(err) {
		err = fmt.Errorf("read delivery: %w", err)
	}
	return m, err
}

// settle records the outcome of an attempt.
func (d *Dispatcher) settle(ctx context.Context, c *channel, id string, m message, failure error) error {
	outcome, after := d.judge(c, m, failure)
	d.Observe(c.name, outcome)
	if failure != nil {
		d.Log.Log(ctx, levelOf(outcome), "event delivery "+strings.ReplaceAll(outcome, "_", " "), "event", m.eventID, "channel", c.name,
			"type", string(m.kind), "job", m.jobID, "attempt", m.attempts+1, "err", failure)
	}
	const unchanged = ` WHERE id = $1 AND state = 'PENDING' AND attempts = $2`
	switch {
	case outcome == retried:
		return d.write(ctx, `UPDATE event_deliveries SET attempts = attempts + 1, due_at = now_ms() + $3, last_error = $4`+unchanged,
			id, m.attempts, after.Milliseconds(), text(failure))
	case outcome == removed:
		// A device that its app has registered again in the meantime stays; only this delivery is dropped.
		return errors.Join(
			d.write(ctx, `DELETE FROM devices WHERE user_id = $2 AND registered_at = $3
				AND id IN (SELECT device_id FROM event_deliveries WHERE id = $1)`, id, m.userID, m.registered.UnixMilli()),
			d.write(ctx, `DELETE FROM event_deliveries`+unchanged, id, m.attempts))
	case c.name != webhookName: // only web hooks can be resent
		return d.write(ctx, `DELETE FROM event_deliveries`+unchanged, id, m.attempts)
	case outcome == delivered:
		return d.write(ctx, `UPDATE event_deliveries SET state = 'DELIVERED', attempts = attempts + 1,
			ended_at = now_ms(), last_error = NULL`+unchanged,
			id, m.attempts)
	}
	return d.write(ctx, `UPDATE event_deliveries SET state = 'FAILED', attempts = attempts + 1,
		ended_at = now_ms(), last_error = $3`+unchanged,
		id, m.attempts, text(failure))
}

func levelOf(outcome string) slog.Level {
	if outcome == givenUp {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// judge returns the outcome of an attempt and the pause before the next one.
func (d *Dispatcher) judge(c *channel, m message, failure error) (outcome string, after time.Duration) {
	temporary := (*push.TemporaryError)(nil)
	switch {
	case failure == nil:
		return delivered, 0
	case errors.Is(failure, push.ErrUnregistered):
		return removed, 0
	case m.attempts >= len(c.pauses), c.name != webhookName && !errors.As(failure, &temporary):
		return givenUp, 0
	}
	after = c.pauses[m.attempts]
	if temporary != nil {
		after = max(after, min(temporary.After, maxRetryAfter))
	}
	// Up to a tenth more, so that deliveries that failed together are not retried together.
	return retried, after + clock.Jitter(after/10)
}

// write runs a statement even during shutdown.
func (d *Dispatcher) write(ctx context.Context, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_, err := d.DB.Exec(ctx, query, args...)
	return err
}

// maxErrorText bounds the stored text of an error, in runes.
const maxErrorText = 200

func text(err error) string { return db.Clean(err.Error(), maxErrorText) }
