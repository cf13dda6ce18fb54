package separation

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"cutroom/internal/clock"
	"cutroom/internal/db"
	"cutroom/internal/fault"
)

// signer makes and checks the tokens of stem URLs:
// <expiryEpochSec>.<base64url HMAC-SHA256 over job id, stem id and expiry>.
// A previous secret still verifies, and signs nothing; "" is none.
type signer struct{ secret, previous *signingKey }

// signingKey keeps the HMACs of a secret: to make one takes twice as long as to use it.
type signingKey struct{ made sync.Pool }

func newSigner(secret, previous string) signer {
	s := signer{secret: newSigningKey(secret)}
	if previous != "" {
		s.previous = newSigningKey(previous)
	}
	return s
}

func newSigningKey(secret string) *signingKey {
	return &signingKey{sync.Pool{New: func() any { return hmac.New(sha256.New, []byte(secret)) }}}
}

func (k *signingKey) sign(jobID, stemID string, expiry int64) string {
	h := k.made.Get().(hash.Hash)
	defer k.made.Put(h)
	h.Reset()
	// Ids hold no newline, so the three fields cannot be shifted into each other.
	h.Write([]byte(jobID + "\n" + stemID + "\n" + strconv.FormatInt(expiry, 10)))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func (s signer) token(jobID, stemID string, expires time.Time) string {
	exp := expires.Unix()
	return strconv.FormatInt(exp, 10) + "." + s.secret.sign(jobID, stemID, exp)
}

// The answers to a stem URL that does not open.
var (
	errMissingToken = fault.New(fault.Unauthorized, "missing_token")
	errInvalidToken = fault.New(fault.Forbidden, "invalid_stem_token")
	errExpiredToken = fault.New(fault.Forbidden, "expired_stem_token")
)

func (s signer) check(jobID, stemID, token string, now time.Time) error {
	if token == "" {
		return errMissingToken
	}
	exp, sig, ok := strings.Cut(token, ".")
	if !ok || len(token) > 128 {
		return errInvalidToken
	}
	expiry, err := strconv.ParseInt(exp, 10, 64)
	if err != nil || strconv.FormatInt(expiry, 10) != exp {
		return errInvalidToken
	}
	// The text is compared, not what it decodes to: a decoder passes over line
	// breaks, and one stem would have many tokens.
	if !s.signed(sig, jobID, stemID, expiry) {
		return errInvalidToken
	}
	if now.Unix() >= expiry {
		return errExpiredToken
	}
	return nil
}

func (s signer) signed(sig, jobID, stemID string, expiry int64) bool {
	return hmac.Equal([]byte(sig), []byte(s.secret.sign(jobID, stemID, expiry))) ||
		s.previous != nil && hmac.Equal([]byte(sig), []byte(s.previous.sign(jobID, stemID, expiry)))
}

// stemURL is a fresh absolute URL of a stem.
func (s *Service) stemURL(jobID, stemID string) string {
	return s.PublicBaseURL + "/api/v2/separate/" + jobID + "/stem/" + stemID + "?token=" +
		s.signer.token(jobID, stemID, clock.Now().Add(s.URLLifetime))
}

var stemPath = regexp.MustCompile(`^/api/v2/separate/(sep-[0-9a-f-]{36})/stem/([a-z0-9_]{1,40})$`)

// StemRef names a stored stem.
type StemRef struct {
	JobID, StemID string
	ObjectKey     string
	SHA256        string
}

// errInvalidStemURL answers for every selection that is not a stem of the caller.
var errInvalidStemURL = fault.New(fault.Invalid, "invalid_stem_url")

// ResolveStemURL turns a stem URL that this service signed into the stored stem.
// It must be absolute with the service's own address or path-only, carry a
// valid token, and belong to a READY separation of the owner; anything else is
// invalid_stem_url, with a detail where only the token's time is over. Nothing
// is fetched.
func (s *Service) ResolveStemURL(ctx context.Context, owner, raw string) (StemRef, error) {
	jobID, stemID, token, ok := s.parseStemURL(raw)
	if !ok {
		return StemRef{}, errInvalidStemURL
	}
	refused := s.signer.check(jobID, stemID, token, clock.Now())
	if refused != nil && refused != errExpiredToken {
		return StemRef{}, errInvalidStemURL
	}
	ref, err := s.ResolveStem(ctx, owner, jobID, stemID)
	if err == nil && refused != nil {
		return StemRef{}, errInvalidStemURL.WithDetail("expired")
	}
	return ref, err
}

// ResolveStem finds a stem of a READY separation of the owner by its name;
// anything else is invalid_stem_url.
func (s *Service) ResolveStem(ctx context.Context, owner, jobID, stemID string) (StemRef, error) {
	ref := StemRef{JobID: jobID, StemID: stemID}
	err := s.db.QueryRow(ctx, `SELECT t.object_key, t.sha256 FROM separation_stems t
		JOIN separation_jobs j ON j.id = t.job_id
		WHERE t.job_id = $1 AND t.stem_id = $2 AND j.user_id = $3 AND j.state = 'READY'`, jobID, stemID, owner).
		Scan(&ref.ObjectKey, &ref.SHA256)
	if db.IsNoRows(err) {
		return StemRef{}, errInvalidStemURL
	}
	if err != nil {
		return StemRef{}, fmt.Errorf("look for stem: %w", err)
	}
	return ref, nil
}

func (s *Service) parseStemURL(raw string) (jobID, stemID, token string, ok bool) {
	if len(raw) > 2048 {
		return "", "", "", false
	}
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return "", "", "", false
	}
	base, err := url.Parse(s.PublicBaseURL)
	if err != nil {
		return "", "", "", false
	}
	path, based := strings.CutPrefix(u.Path, base.Path)
	if (u.IsAbs() || u.Host != "") && !(based && strings.EqualFold(u.Host, base.Host) && strings.EqualFold(u.Scheme, base.Scheme)) {
		return "", "", "", false
	}
	m := stemPath.FindStringSubmatch(path)
	if m == nil || u.RawPath != "" {
		return "", "", "", false
	}
	return m[1], m[2], u.Query().Get("token"), true
}
