package apitest

import (
	"context"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Line is a network connection from a service to one server. A test can break it.
type Line struct {
	Addr string // in place of the server's address

	t     testing.TB
	proxy *toxiproxy.Proxy
}

// HalfOpen are the toxics of a network that accepts connections but drops all data.
var HalfOpen = []string{`{"type":"timeout","stream":"upstream"}`, `{"type":"timeout","stream":"downstream"}`}

// NewLine forwards a new address to a server until the test ends.
func NewLine(t testing.TB, server string) *Line {
	t.Helper()
	toxics := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	l := &Line{t: t, proxy: toxiproxy.NewProxy(toxics, server, "127.0.0.1:0", server)}
	l.Connect()
	l.Addr = l.proxy.Listen
	t.Cleanup(l.Cut)
	return l
}

// Connect accepts connections again, at the same address.
func (l *Line) Connect() {
	l.t.Helper()
	if err := l.proxy.Start(); err != nil {
		l.t.Fatal(err)
	}
}

// Cut closes all connections and refuses new ones.
func (l *Line) Cut() { l.proxy.Stop() }

// Poison adds toxics, in toxiproxy's JSON. They last until Heal.
func (l *Line) Poison(toxics ...string) {
	l.t.Helper()
	for _, toxic := range toxics {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			l.t.Fatal(err)
		}
	}
}

// Heal removes the toxics. Connections whose data was dropped close.
func (l *Line) Heal() { l.proxy.Toxics.ResetToxics(context.Background()) }
