package httpapi

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"cutroom/internal/api/httpserve"
	"cutroom/internal/base/fault"
	"cutroom/internal/work/ratelimit"
)

// The API's limits. Those on submits apply per user.
var (
	limitLogin    = ratelimit.Limit{Name: "login", PerMinute: 10}
	limitRenew    = ratelimit.Limit{Name: "renew", PerMinute: 10}
	limitRender   = ratelimit.Limit{Name: "render", PerMinute: 10}
	limitSeparate = ratelimit.Limit{Name: "separate", PerMinute: 20}
	limitAssets   = ratelimit.Limit{Name: "assets", PerMinute: 120}

	limitDevices     = ratelimit.Limit{Name: "devices", PerMinute: 60}
	limitDeleteAsset = ratelimit.Limit{Name: "delete-asset", PerMinute: 60}
	limitSignOut     = ratelimit.Limit{Name: "sign-out", PerMinute: 60}
)

// limitedByAddress limits the requests of each address. A request that fails because something else is down does not
// count: the client has learned nothing from it, and the user must try again.
func (s *Server) limitedByAddress(limit ratelimit.Limit, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		key := s.address(r)
		taken, err := limit.Reserve(r.Context(), s.o.DB, key)
		if err != nil {
			return err
		}
		err = h(w, r)
		if othersFault(err) {
			if gerr := limit.Return(context.WithoutCancel(r.Context()), s.o.DB, key, taken); gerr != nil {
				s.o.Log.Debug("a sign-in that failed counts for the limit", "err", gerr) // the database may be down
			}
		}
		return err
	}
}

// othersFault reports whether a request failed because a dependency or a vendor is down.
func othersFault(err error) bool {
	if f := fault.As(err); f != nil {
		return f.Kind == fault.BadGateway || f.Kind == fault.Unavailable
	}
	return err != nil && dependency(err) != ""
}

// address is the key of the client's address in limits.
func (s *Server) address(r *http.Request) string { return "ip:" + httpserve.Holder(s.clientIP(r)) }

// clientIP returns the client's address. It trusts X-Forwarded-For only from a trusted peer, and uses the entry at the
// configured position from the right, or the leftmost if there are too few. A trusted proxy may identify clients by
// something other than an address: a short printable name is used as it is, and anything else is replaced by the peer's
// address.
func (s *Server) clientIP(r *http.Request) string {
	peer, forwarded := peerOf(r), r.Header.Values("X-Forwarded-For")
	if len(forwarded) == 0 {
		return peer.String()
	}
	if !s.fromProxy(r) {
		s.strangers.warn(s.o.Log, peer)
		return peer.String()
	}
	entries := strings.Split(strings.Join(forwarded, ","), ",")
	entry := strings.TrimSpace(entries[max(0, len(entries)-1-s.o.ProxyHops)])
	if ap, err := netip.ParseAddrPort(entry); err == nil {
		return httpserve.Plain(ap.Addr()).String()
	}
	if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		return httpserve.Plain(addr).String()
	}
	if entry == "" || len(entry) > maxClientName || strings.ContainsFunc(entry, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
		return peer.String()
	}
	return entry
}

// strangers remembers which peers outside TRUSTED_PROXIES were warned about.
type strangers struct {
	mu   sync.Mutex
	when map[netip.Addr]time.Time
}

const (
	warnEvery    = time.Hour
	maxStrangers = 1000
)

// warn warns once an hour about a peer that sends X-Forwarded-For although it is not trusted: if a proxy is missing
// from TRUSTED_PROXIES, all its clients count as one address. Anybody can send the header, so warn remembers a bounded
// number of peers, and logs nothing about others.
func (s *strangers) warn(log *slog.Logger, peer netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if at, known := s.when[peer]; known && now.Sub(at) < warnEvery {
		return
	}
	if len(s.when) >= maxStrangers {
		maps.DeleteFunc(s.when, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) >= warnEvery })
	}
	if len(s.when) >= maxStrangers {
		return
	}
	if s.when == nil {
		s.when = map[netip.Addr]time.Time{}
	}
	s.when[peer] = now
	log.Warn("a peer outside TRUSTED_PROXIES sends X-Forwarded-For, which is ignored: if it is your proxy, add it to TRUSTED_PROXIES",
		"peer", peer.String())
}

// peerOf returns the address of a connection's peer.
func peerOf(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // net/http writes it
	return httpserve.Plain(peer.Addr())
}

// fromProxy reports whether the peer of the connection is a trusted proxy.
func (s *Server) fromProxy(r *http.Request) bool {
	return httpserve.Contains(s.o.TrustedProxies, peerOf(r))
}

// maxClientName bounds a client name that is not an address, in bytes.
const maxClientName = 64
