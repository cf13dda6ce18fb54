package identity

import (
	"bytes"
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

	"cutroom/internal/httpcall"
)

const (
	// keyLifetime is how long a fetched set is believed without asking again.
	keyLifetime = 24 * time.Hour
	// refetchInterval is the least time between two refetches of a set that we
	// already hold, whether an unknown key or old age asks for them.
	refetchInterval = time.Minute

	minModulusBits = 2048
	// maxModulusBits keeps one hostile or mistaken key from making every
	// verification slow.
	maxModulusBits = 8192
)

// keySet is a cache of a provider's published signing keys.
//
// An unknown key id makes it ask again, but at most once a minute and only as
// counted from a refetch that really took place: forged ids that are turned
// away do not push the next one further out, so a real rotation is seen after a
// minute at the latest. The last good set outlives every failed refetch.
type keySet struct {
	address string
	client  *http.Client
	now     func() time.Time

	flights     singleflight.Group
	mu          sync.Mutex
	keys        map[string]*rsa.PublicKey // the last good set; nil before the first
	loadedAt    time.Time                 // when keys arrived
	refetchedAt time.Time                 // start of the last refetch of a set we held; the first load does not count
	lastErr     error                     // how the newest fetch ended
}

// lookup returns the key of that id, fetching the set where that may help.
// ErrRejected: the provider has no such key. ErrUnavailable: it could not be
// asked, so nobody knows.
func (s *keySet) lookup(ctx context.Context, kid string) (*rsa.PublicKey, error) {
	if key := s.fresh(kid); key != nil {
		return key, nil
	}
	// A fetch outlives the lookup that began it, because others wait for it too.
	fetched := s.flights.DoChan("", func() (any, error) {
		s.refetch(context.WithoutCancel(ctx))
		return nil, nil
	})
	select {
	case <-fetched:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: wait for key set: %w", ErrUnavailable, context.Cause(ctx))
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if key := s.keys[kid]; key != nil {
		return key, nil
	}
	if s.lastErr != nil {
		// The id may be new since the last good set; a rejection would be a guess.
		return nil, fmt.Errorf("%w: fetch key set: %w", ErrUnavailable, s.lastErr)
	}
	return nil, fmt.Errorf("%w: key id %.80q is not in the set", ErrRejected, kid)
}

// fresh returns the key of that id from a set that need not be asked for again.
func (s *keySet) fresh(kid string) *rsa.PublicKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Sub(s.loadedAt) >= keyLifetime {
		return nil
	}
	return s.keys[kid]
}

// refetch fetches the set, unless that was done lately.
func (s *keySet) refetch(ctx context.Context) {
	if !s.due() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	keys, err := fetchKeys(ctx, s.client, s.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
	if err == nil {
		s.keys, s.loadedAt = keys, s.now()
	}
}

// due reports whether a fetch may start, and notes that it does.
func (s *keySet) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		return true
	}
	now := s.now()
	if now.Sub(s.refetchedAt) < refetchInterval {
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

// webKey is one entry of a JSON Web Key set (RFC 7517), as far as we read it.
type webKey struct {
	Type     string `json:"kty"`
	ID       string `json:"kid"`
	Use      string `json:"use"`
	Alg      string `json:"alg"`
	Modulus  string `json:"n"`
	Exponent string `json:"e"`
}

// parseKeys reads a set and drops the keys that cannot have signed a token of
// ours. A set without any usable key is an error, so that it never replaces a
// good one. Of two keys with one id the first counts.
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
		// A key of a kind we do not know may have any shape; it must not cost
		// us the keys that we do know.
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

// publicKey returns the RSA signing key that the entry describes, or nil. The
// members use and alg are optional in the standard; a wrong one disqualifies.
func (k webKey) publicKey() *rsa.PublicKey {
	if k.ID == "" || k.Type != "RSA" ||
		(k.Use != "" && k.Use != "sig") || (k.Alg != "" && k.Alg != "RS256") {
		return nil
	}
	modulus, err := base64.RawURLEncoding.DecodeString(k.Modulus)
	if err != nil {
		return nil
	}
	exponent, err := base64.RawURLEncoding.DecodeString(k.Exponent)
	if err != nil {
		return nil
	}
	exponent = bytes.TrimLeft(exponent, "\x00")
	if len(exponent) == 0 || len(exponent) > 4 {
		return nil
	}
	n := new(big.Int).SetBytes(modulus)
	e := new(big.Int).SetBytes(exponent).Int64()
	if n.BitLen() < minModulusBits || n.BitLen() > maxModulusBits || n.Bit(0) == 0 {
		return nil
	}
	// 2^31-1 is the largest exponent that crypto/rsa works with.
	if e < 3 || e%2 == 0 || e > 1<<31-1 {
		return nil
	}
	return &rsa.PublicKey{N: n, E: int(e)}
}
