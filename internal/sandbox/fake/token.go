package fake

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// CheckToken checks a token by which the app's server authenticates, as vendors do: its algorithm, audience, issuer and
// key, and a lifetime of at most an hour.
func CheckToken(raw, algorithm, audience, issuer, keyID string, key any) (jwt.MapClaims, error) {
	claims := jwt.MapClaims{}
	_, err := jwt.NewParser(
		jwt.WithValidMethods([]string{algorithm}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithAudience(audience), jwt.WithIssuer(issuer), jwt.WithLeeway(5*time.Second),
	).ParseWithClaims(raw, claims, func(t *jwt.Token) (any, error) {
		if t.Header["kid"] != keyID {
			return nil, fmt.Errorf("unknown key %v", t.Header["kid"])
		}
		return key, nil
	})
	if err != nil {
		return nil, err
	}
	issued, err := claims.GetIssuedAt()
	if err != nil || issued == nil {
		return nil, errors.New("no iat")
	}
	if expires, err := claims.GetExpirationTime(); err != nil || expires.Sub(issued.Time) > time.Hour {
		return nil, errors.New("lives longer than an hour")
	}
	return claims, nil
}
