package db

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"cutroom/internal/base/fault"
)

// ForWorkers is the prefix of topics for workers. All other topics are for clients; they are far more frequent and wake
// only replicas that serve clients.
const ForWorkers = "work/"

// The PostgreSQL notification channels for clients and for workers; the payload is the topic.
const channel, workChannel = "cutroom", "cutroom_work"

func channelOf(topic string) string {
	if strings.HasPrefix(topic, ForWorkers) {
		return workChannel
	}
	return channel
}

// notifier forwards wake-ups to the listeners in this process.
type notifier struct {
	mu        sync.Mutex
	listeners map[string]map[chan struct{}]struct{}
}

func (b *notifier) notify(topic string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.listeners[topic] {
		select {
		case ch <- struct{}{}:
		default: // the listener has not handled the last wake-up yet
		}
	}
}

func (b *notifier) notifyAll() {
	b.mu.Lock()
	topics := slices.Collect(maps.Keys(b.listeners))
	b.mu.Unlock()
	for _, t := range topics {
		b.notify(t)
	}
}

// Listen returns a channel that receives after any replica commits a [Tx.Notify] of one of the topics, and a function
// that stops listening. Several wake-ups may arrive as one, so a receiver must look for all work. Wake-ups are only
// hints: a lost connection loses notifications, so listeners must poll as well. A reconnect wakes every listener.
func (d *DB) Listen(topics ...string) (wake <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	b := d.notifier
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = map[string]map[chan struct{}]struct{}{}
	}
	for _, topic := range topics {
		if b.listeners[topic] == nil {
			b.listeners[topic] = map[chan struct{}]struct{}{}
		}
		b.listeners[topic][ch] = struct{}{}
	}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, topic := range topics {
			delete(b.listeners[topic], ch)
			if len(b.listeners[topic]) == 0 {
				delete(b.listeners, topic)
			}
		}
	}
}

// ExecNotify is [DB.Exec], followed by [Tx.Notify] if the statement affected a row, in one transaction.
func (d *DB) ExecNotify(ctx context.Context, topic, query string, args ...any) (n int64, err error) {
	err = d.InTx(ctx, func(tx *Tx) error {
		if n, err = tx.Exec(ctx, query, args...); err != nil || n == 0 {
			return err
		}
		return tx.Notify(ctx, topic)
	})
	return n, err
}

// RunNotifier receives PostgreSQL's notifications for clients, for workers, or for both, on a connection outside the
// pool, until ctx ends. It reconnects automatically. With SQLite, which serves a single process, it only waits for ctx.
func (d *DB) RunNotifier(ctx context.Context, clients, workers bool) error {
	listen := ""
	if clients {
		listen += "LISTEN " + channel + ";"
	}
	if workers {
		listen += "LISTEN " + workChannel + ";"
	}
	if !d.postgres || listen == "" {
		<-ctx.Done()
		return nil
	}
	var outage fault.Outage
	for ctx.Err() == nil {
		err := d.receive(ctx, listen)
		if ctx.Err() != nil {
			return nil
		}
		outage.Log(d.log, slog.LevelWarn, "", "database notifications interrupted", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (d *DB) receive(ctx context.Context, listen string) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// The server drops the session anyway; ctx may have ended.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if err := conn.PgConn().Exec(ctx, listen).Close(); err != nil {
		return err
	}
	d.notifier.notifyAll() // for notifications missed while disconnected
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		d.notifier.notify(n.Payload)
	}
}
