package dbtest

import (
	"io"
	"net"
	"net/url"
	"testing"

	"cutroom/internal/db"
)

// Lossy opens one PostgreSQL database twice: directly, and through a relay. Before the relay
// delivers a response it calls lose, which may run concurrently. If lose returns true, the relay
// drops the response, whose statement has already taken effect, and closes the connection.
func Lossy(t testing.TB, lose func(direct *db.DB) bool) (direct, lossy *db.DB) {
	t.Helper()
	address, user, password := URL(t)
	direct = Open(t, db.Options{URL: address, User: user, Password: password, MaxPool: 8})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go relay(client, server, func() bool { return lose(direct) })
		}
	}()
	u.Host = listener.Addr().String()
	return direct, Open(t, db.Options{URL: u.String(), User: user, Password: password, MaxPool: 4})
}

// relay connects a client to a server until one of them closes the connection or lose returns true.
func relay(client net.Conn, address string, lose func() bool) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client) // ends with either connection
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil || lose() {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
