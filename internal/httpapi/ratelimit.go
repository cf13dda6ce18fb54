package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/fault"
)

// limit is one of the rate limits: at most max requests in any window that
// begins with a request.
type limit struct {
	scope string
	max   int64
}

const rateWindow = time.Minute

// The limits of the API. Those on submits are kept per user.
var (
	limitLogin    = limit{"login", 10}
	limitRender   = limit{"render", 10}
	limitSeparate = limit{"separate", 20}
)

// limiter counts requests in the database, so that all replicas share one
// count and none is lost with a process.
type limiter struct{ db *db.DB }

// allow counts a request and reports how long to wait when it is one too many.
func (l limiter) allow(ctx context.Context, lim limit, key string) (wait time.Duration, err error) {
	var hits, left int64
	err = l.db.InTx(ctx, func(tx *db.Tx) error {
		return tx.QueryRow(ctx, `INSERT INTO rate_limits (bucket, window_start, hits) VALUES ($1, now_ms(), 1)
			ON CONFLICT (bucket) DO UPDATE SET
				hits = CASE WHEN rate_limits.window_start <= excluded.window_start - $2 THEN 1 ELSE rate_limits.hits + 1 END,
				window_start = CASE WHEN rate_limits.window_start <= excluded.window_start - $2
					THEN excluded.window_start ELSE rate_limits.window_start END
			RETURNING hits, window_start + $2 - now_ms()`, lim.scope+":"+key, rateWindow.Milliseconds()).Scan(&hits, &left)
	})
	if err != nil {
		return 0, fmt.Errorf("count request: %w", err)
	}
	if hits <= lim.max {
		return 0, nil
	}
	return max(time.Second, time.Duration(left)*time.Millisecond), nil
}

// SweepRateLimits forgets windows that have passed.
func SweepRateLimits(ctx context.Context, d *db.DB) error {
	_, err := d.Exec(ctx, `DELETE FROM rate_limits WHERE window_start <= now_ms() - $1`, rateWindow.Milliseconds())
	if err != nil {
		return fmt.Errorf("sweep rate limits: %w", err)
	}
	return nil
}

func (s *Server) limited(lim limit, key func(*http.Request) string, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		wait, err := s.limiter.allow(r.Context(), lim, key(r))
		if err != nil {
			return err
		}
		if wait > 0 {
			f := fault.New(fault.RateLimited, "rate_limited")
			f.RetryAfter = wait
			return f
		}
		return h(w, r)
	}
}

// byIP keys a limit by the client's address.
func (s *Server) byIP(r *http.Request) string { return "ip:" + s.clientIP(r) }

// byUser keys a limit by the user of a valid token, else by the address.
func (s *Server) byUser(r *http.Request) string {
	if p, err := s.principal(r); err == nil {
		return "user:" + p.UserID
	}
	return s.byIP(r)
}

// clientIP is the address of the client. X-Forwarded-For is believed only from
// a trusted peer; the entry at the configured position from the right counts,
// the leftmost when there are too few. A trusted proxy may name its clients by
// something else than an address; that is used as it is where it is short and
// printable, and else the peer's own address counts.
func (s *Server) clientIP(r *http.Request) string {
	return clientIP(r.RemoteAddr, r.Header.Values("X-Forwarded-For"), s.o.TrustedProxies, s.o.ProxyHops)
}

func clientIP(remote string, forwarded []string, trusted []netip.Prefix, hops int) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	peer, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	peer = peer.Unmap().WithZone("")
	if len(forwarded) == 0 || !inAny(peer, trusted) {
		return peer.String()
	}
	entries := strings.Split(strings.Join(forwarded, ","), ",")
	i := max(0, len(entries)-1-hops)
	entry := strings.TrimSpace(entries[i])
	if ap, err := netip.ParseAddrPort(entry); err == nil {
		return ap.Addr().Unmap().WithZone("").String()
	}
	if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	if entry == "" || len(entry) > maxClientName || strings.ContainsFunc(entry, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
		return peer.String()
	}
	return entry
}

// maxClientName is the longest name of a client that is no address, in bytes.
const maxClientName = 64

func inAny(a netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
