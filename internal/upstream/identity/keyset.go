// A provider's published signing keys: cached, fetched again for an unknown key id, at most once a minute, and never
// replaced by a set that has no usable key.

package identity

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"cutroom/internal/base/httpcall"
)

const (
	// keyLifetime is how long a key counts after it was last seen in the set, and so how long a fetched set is used
	// before it is fetched again.
	keyLifetime = 24 * time.Hour
	// refetchInterval is the shortest time between two refetches of a set that we already hold, whatever triggers them.
	refetchInterval = time.Minute

	minModulusBits = 2048
	// maxModulusBits keeps a hostile or mistaken key from slowing every verification.
	maxModulusBits = 8192
)

// keySet caches a provider's published signing keys.
//
// An unknown key id triggers a refetch, at most once a minute. The minute starts at the last refetch that took place:
// forged ids do not postpone the next one, so a key rotation takes effect after a minute at the latest. A failed
// refetch keeps the last good set. A refetched set is merged into it: right after a rotation not every server of the
// provider lists every key, so a missing key still counts for keyLifetime.
type keySet struct {
	address string
	client  *http.Client
	now     func() time.Time

	flights     singleflight.Group
	mu          sync.Mutex
	keys        map[string]heldKey // last good set and the keys that it lacks but still count; nil before the first
	loadedAt    time.Time          // when the last good set arrived
	refetchedAt time.Time          // start of the last refetch of a set we held; the first load does not count
	lastErr     error              // result of the newest fetch
}

// heldKey is a key, and when it was last seen in the provider's set.
type heldKey struct {
	*rsa.PublicKey
	seen time.Time
}

// lookup returns the key with that id, and fetches the set if that may help. ErrRejected means that the provider has no
// such key, ErrUnavailable that the provider did not answer.
func (s *keySet) lookup(ctx context.Context, kid string) (*rsa.PublicKey, error) {
	key, seen := s.fresh(kid)
	if key != nil {
		return key, nil
	}
	// Lookups in the same set share a fetch. It must outlive the lookup that started it, because others wait for it
	// too.
	fetched := s.flights.DoChan(seen.String(), func() (any, error) {
		s.refetch(context.WithoutCancel(ctx), seen)
		return nil, nil
	})
	select {
	case <-fetched:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: wait for key set: %w", ErrUnavailable, context.Cause(ctx))
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	// While the provider does not answer, the last good set serves however old it is.
	if held := s.keys[kid]; held.PublicKey != nil && (held.seen.Equal(s.loadedAt) || s.now().Sub(held.seen) < keyLifetime) {
		return held.PublicKey, nil
	}
	if s.lastErr != nil {
		// The id may be newer than the last good set, so it cannot be rejected.
		return nil, fmt.Errorf("%w: fetch key set: %w", ErrUnavailable, s.lastErr)
	}
	return nil, fmt.Errorf("%w: key id %.80q is not in the set", ErrRejected, kid)
}

// fresh returns the key with that id if it was seen recently enough, and when the cached set arrived.
func (s *keySet) fresh(kid string) (key *rsa.PublicKey, loadedAt time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.keys[kid]; s.now().Sub(held.seen) < keyLifetime {
		key = held.PublicKey
	}
	return key, s.loadedAt
}

// refetch renews the set that arrived at the time seen, unless a set was fetched recently.
func (s *keySet) refetch(ctx context.Context, seen time.Time) {
	if !s.due(seen) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	keys, err := fetchKeys(ctx, s.client, s.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
	if err != nil {
		return
	}
	now := s.now()
	held := make(map[string]heldKey, len(keys))
	for kid, key := range s.keys {
		if now.Sub(key.seen) < keyLifetime {
			held[kid] = key
		}
	}
	for kid, key := range keys {
		held[kid] = heldKey{key, now}
	}
	s.keys, s.loadedAt = held, now
}

// due reports whether a fetch may start, and records its start.
func (s *keySet) due(seen time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		return true
	}
	now := s.now()
	if !s.loadedAt.Equal(seen) || now.Sub(s.refetchedAt) < refetchInterval {
		return false
	}
	s.refetchedAt = now
	return true
}

// fetchKeys returns the usable keys of a published set, at least one.
func fetchKeys(ctx context.Context, client *http.Client, address string) (map[string]*rsa.PublicKey, error) {
	status, body, err := httpcall.Get(ctx, client, address, "")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("status %d", status)
	}
	return parseKeys(body)
}

// webKey holds the members of a JSON Web Key (RFC 7517) that we read.
type webKey struct {
	Type     string `json:"kty"`
	ID       string `json:"kid"`
	Use      string `json:"use"`
	Alg      string `json:"alg"`
	Modulus  string `json:"n"`
	Exponent string `json:"e"`
}

// parseKeys decodes a set and drops keys that cannot sign a token for us. A set without a usable key is an error, so
// that it never replaces a good one. If two keys share an id, the first one wins.
func parseKeys(body []byte) (map[string]*rsa.PublicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("decode key set: %w", err)
	}
	keys := make(map[string]*rsa.PublicKey, len(set.Keys))
	for _, raw := range set.Keys {
		var entry webKey
		// A key of an unknown kind may have any shape; skip it and keep the others.
		if json.Unmarshal(raw, &entry) != nil || keys[entry.ID] != nil {
			continue
		}
		if key := entry.publicKey(); key != nil {
			keys[entry.ID] = key
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("key set holds no usable key")
	}
	return keys, nil
}

// publicKey returns the RSA signing key that the entry describes, or nil. The standard makes use and alg optional; a
// wrong value disqualifies the key.
func (k webKey) publicKey() *rsa.PublicKey {
	if k.ID == "" || k.Type != "RSA" ||
		(k.Use != "" && k.Use != "sig") || (k.Alg != "" && k.Alg != "RS256") {
		return nil
	}
	modulus, nerr := base64.RawURLEncoding.DecodeString(k.Modulus)
	exponent, eerr := base64.RawURLEncoding.DecodeString(k.Exponent)
	if nerr != nil || eerr != nil {
		return nil
	}
	n, e := new(big.Int).SetBytes(modulus), new(big.Int).SetBytes(exponent)
	if n.BitLen() < minModulusBits || n.BitLen() > maxModulusBits || n.Bit(0) == 0 {
		return nil
	}
	// 2^31-1 is the largest exponent that crypto/rsa supports.
	if e.BitLen() < 2 || e.BitLen() > 31 || e.Bit(0) == 0 {
		return nil
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}
}
