package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"

	"cutroom/internal/events"
)

// eventsFlag adds --failed.
func eventsFlag(fs *flag.FlagSet, v *invocation) { fs.BoolVar(&v.failed, "failed", false, "") }

// listEvents prints the newest events, or all events whose web hook was given up.
func listEvents(ctx context.Context, v *invocation) error {
	limit := int64(shortList)
	if v.failed {
		limit = math.MaxInt32
	}
	list, err := events.List(ctx, v.db, v.failed, limit, 0)
	if err != nil {
		return err
	}
	return v.print(list)
}

func checkEvents(v *invocation) error {
	if (len(v.args) == 1) == !v.since.IsZero() {
		return fmt.Errorf("%w: events retry needs the id of an event or --since", errUsage)
	}
	return nil
}

// retryEvents calls the web hook again for one event, or for all since a time.
func retryEvents(ctx context.Context, v *invocation) error {
	if v.cfg.Webhook.URL == "" {
		return errors.New("WEBHOOK_URL is not set: there is no receiver for events")
	}
	n := int64(1)
	var err error
	if v.since.IsZero() {
		err = events.Resend(ctx, v.db, v.args[0])
	} else {
		n, err = events.ResendSince(ctx, v.db, v.since)
	}
	if err != nil {
		return err
	}
	return v.say(map[string]int64{"events": n}, "%d events will be sent again", n)
}
