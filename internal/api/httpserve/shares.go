package httpserve

import (
	"net/netip"
	"slices"
	"sync"
)

// Shares counts, and limits, what each holder has at the same time. It is safe for concurrent use.
type Shares struct {
	limit int

	mu   sync.Mutex
	held map[string]int
}

// NewShares returns Shares that allow each holder at most limit at the same time.
func NewShares(limit int) *Shares { return &Shares{limit: limit, held: map[string]int{}} }

// Take counts one more for the holder. It reports false, and counts nothing, if the holder already has its share.
func (s *Shares) Take(holder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[holder] >= s.limit {
		return false
	}
	s.held[holder]++
	return true
}

// Give undoes one Take. It does nothing for a holder that has none.
func (s *Shares) Give(holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[holder]--; s.held[holder] <= 0 {
		delete(s.held, holder)
	}
}

// Holder returns the range of addresses that one client probably has: an IPv4 address, or the /64 of an IPv6
// address. It returns any other text unchanged.
func Holder(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Is4() {
		return address
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}

// Plain returns an address in its only form: an IPv4 address is never mapped to IPv6, and no address has a zone.
func Plain(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }

// Contains reports whether a plain address is in one of the ranges.
func Contains(ranges []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(address) })
}
