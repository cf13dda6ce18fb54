package db_test

import (
	"strings"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
)

// LISTEN, prepared statements and session locks need a session; a pooler that gives one to each client is as good as
// none.
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
			t.Cleanup(func() { _ = d.Close() }) // after the notifier
			dbtest.Notifier(t, d, true, true)
			wake, stop := d.Listen("x")
			defer stop()
			dbtest.Notify(t, d, "x")
			<-wake
		})
	}
}
