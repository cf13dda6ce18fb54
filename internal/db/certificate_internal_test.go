package db

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The server's certificate expires while the service runs: what the next connection finds.
func TestRefusedCertificateIsRecorded(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer web.Close()
	cfg, err := pgx.ParseConfig("postgres://user:password@" + serveTLS(t, web.TLS.Certificates[0]) + "/x?sslmode=verify-full")
	if err != nil {
		t.Fatal(err)
	}
	notAfter := web.Certificate().NotAfter
	trusted := web.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	var seen observer
	cfg.Tracer = &tracer{&seen}
	cfg.TLSConfig = &tls.Config{RootCAs: trusted, ServerName: "example.com", Time: func() time.Time { return notAfter.Add(time.Hour) }}
	if _, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
		t.Fatal("it connects")
	}
	if !seen.refused || !seen.chain[0].NotAfter.Equal(notAfter) {
		t.Errorf("%+v, want refused, until %v", seen, notAfter)
	}
}

type observer struct {
	chain   []*x509.Certificate
	refused bool
}

func (*observer) Failed() {}

func (o *observer) SawCertificate(chain []*x509.Certificate, refused bool) {
	o.chain, o.refused = chain, refused
}

// serveTLS starts a server that takes PostgreSQL's request for TLS, shows the certificate, and
// hangs up.
func serveTLS(t *testing.T, certificate tls.Certificate) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, c, 8); err == nil {
				_, _ = c.Write([]byte("S"))
				_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}}).HandshakeContext(context.Background())
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}
