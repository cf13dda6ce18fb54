package httpserve

import (
	"net/netip"
	"sync"
)

// Shares counts what each holder has at the same time, so that none has more than
// its share. Safe for concurrent use.
type Shares struct {
	most int

	mu   sync.Mutex
	held map[string]int
}

// NewShares returns shares of at most so many each.
func NewShares(most int) *Shares { return &Shares{most: most, held: map[string]int{}} }

// Take counts one more, or reports that the holder has its share.
func (s *Shares) Take(holder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[holder] >= s.most {
		return false
	}
	s.held[holder]++
	return true
}

// Give ends what Take counted. It may be called for a holder that was not counted.
func (s *Shares) Give(holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[holder]--; s.held[holder] <= 0 {
		delete(s.held, holder)
	}
}

// Holder is the range of addresses that one client probably has: an IPv4 address, or
// the /64 of an IPv6 address. What is no address stays as it is.
func Holder(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Is4() {
		return address
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}
