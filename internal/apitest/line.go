package apitest

import (
	"context"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Line is the network between a service and one server, which a test can break.
type Line struct {
	Addr string // in place of the server's address

	t     testing.TB
	proxy *toxiproxy.Proxy
}

// HalfOpen are the toxics of a network that lets connections be made and nothing pass.
var HalfOpen = []string{`{"type":"timeout","stream":"upstream"}`, `{"type":"timeout","stream":"downstream"}`}

// NewLine connects a new address with a server's until the test ends.
func NewLine(t testing.TB, server string) *Line {
	t.Helper()
	toxics := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	l := &Line{t: t, proxy: toxiproxy.NewProxy(toxics, server, "127.0.0.1:0", server)}
	l.Connect()
	l.Addr = l.proxy.Listen
	t.Cleanup(l.Cut)
	return l
}

// Connect accepts connections again, at the same address as before.
func (l *Line) Connect() {
	l.t.Helper()
	if err := l.proxy.Start(); err != nil {
		l.t.Fatal(err)
	}
}

// Cut refuses connections and ends those there are.
func (l *Line) Cut() { l.proxy.Stop() }

// Poison breaks the network by toxics, in toxiproxy's JSON, until Heal removes them.
func (l *Line) Poison(toxics ...string) {
	l.t.Helper()
	for _, toxic := range toxics {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			l.t.Fatal(err)
		}
	}
}

// Heal removes the toxics. Connections that nothing passed end.
func (l *Line) Heal() { l.proxy.Toxics.ResetToxics(context.Background()) }
