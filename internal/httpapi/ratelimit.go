package httpapi

import (
	"net/http"
	"net/netip"
	"strings"

	"cutroom/internal/httpserve"
	"cutroom/internal/ratelimit"
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

// limitedByAddress limits the requests of each address.
func (s *Server) limitedByAddress(limit ratelimit.Limit, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := limit.Take(r.Context(), s.o.DB, s.address(r)); err != nil {
			return err
		}
		return h(w, r)
	}
}

// address is the key of the client's address in limits.
func (s *Server) address(r *http.Request) string { return "ip:" + httpserve.Holder(s.clientIP(r)) }

// clientIP returns the client's address. It trusts X-Forwarded-For only from a trusted peer, and uses the entry
// at the configured position from the right, or the leftmost if there are too few. A trusted proxy may identify
// clients by something other than an address: a short printable name is used as it is, and anything else is
// replaced by the peer's address.
func (s *Server) clientIP(r *http.Request) string {
	peer, forwarded := peerOf(r), r.Header.Values("X-Forwarded-For")
	if len(forwarded) == 0 || !s.fromProxy(r) {
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
