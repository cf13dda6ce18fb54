package dbtest

import (
	"net/url"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/relaytest"
)

// Lossy opens one PostgreSQL database twice: directly, and through a relay. Before the relay delivers a piece of a
// response it calls lose, which may run concurrently. If lose returns true, the relay drops the response, whose
// statement has already taken effect, and closes the connection.
func Lossy(t testing.TB, lose func(direct *db.DB) bool) (direct, lossy *db.DB) {
	t.Helper()
	address, user, password := URL(t)
	direct = Open(t, db.Options{URL: address, User: user, Password: password, MaxPool: 8})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	relay := relaytest.New(t, u.Host)
	relay.Break(relaytest.Fault{Lose: func() bool { return lose(direct) }})
	u.Host = relay.Addr
	return direct, Open(t, db.Options{URL: u.String(), User: user, Password: password, MaxPool: 4})
}
