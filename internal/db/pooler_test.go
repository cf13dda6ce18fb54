package db_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

// LISTEN, prepared statements and session locks need a session; a pooler that
// gives one to each client is as good as none.
func TestAPoolerMustPoolSessions(t *testing.T) {
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			address, user, password := dbtest.Pooler(t, mode)
			d, err := db.Open(t.Context(), db.Options{URL: address, User: user, Password: password, MaxPool: 2})
			if mode == "transaction" {
				if err == nil || !strings.Contains(err.Error(), "pool sessions") {
					t.Fatalf("opened behind a pooler of transactions: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			wake, stop := d.Listen("x")
			defer stop()
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.RunNotifier(ctx, true, true) }()
			for range 2 { // the first tells that somebody listens
				select {
				case <-wake:
				case <-time.After(time.Minute):
					t.Fatal("not rung")
				}
				if err := d.Notify(t.Context(), "x"); err != nil {
					t.Fatal(err)
				}
			}
			end()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
