package dbtest

import (
	"io"
	"net"
	"net/url"
	"testing"

	"cutroom/internal/db"
)

// Lossy opens one PostgreSQL database twice: directly, and over connections that break
// instead of delivering an answer of the server for which lose returns true. The server
// has done by then what it was asked. lose may be called concurrently.
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

// relay connects a client to a server until one of them closes, or an answer is lost.
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
