package separation

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/base/clock"
	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
)

// signer makes and checks the tokens of stem URLs: <expiryEpochSec>.<base64url HMAC-SHA256 over job id, stem id and
// expiry>. The previous secret, unless "", verifies tokens but signs none.
type signer struct{ secret, previous string }

func sign(secret, jobID, stemID string, expiry int64) string {
	h := hmac.New(sha256.New, []byte(secret))
	// Ids contain no newline, so the boundaries of the three fields cannot move.
	h.Write([]byte(jobID + "\n" + stemID + "\n" + strconv.FormatInt(expiry, 10)))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func (s signer) token(jobID, stemID string, expires time.Time) string {
	exp := expires.Unix()
	return strconv.FormatInt(exp, 10) + "." + sign(s.secret, jobID, stemID, exp)
}

// The errors of a token.
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
	// Compare the text, not the decoded bytes: decoders skip line breaks, so one stem would have many valid tokens.
	signed := func(secret string) bool { return hmac.Equal([]byte(sig), []byte(sign(secret, jobID, stemID, expiry))) }
	if !signed(s.secret) && (s.previous == "" || !signed(s.previous)) {
		return errInvalidToken
	}
	if now.Unix() >= expiry {
		return errExpiredToken
	}
	return nil
}

// stemURL returns an absolute URL of a stem, whose lifetime begins now.
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

// errInvalidStemURL is the error of every selection that is not a stem of the caller.
var errInvalidStemURL = fault.New(fault.Invalid, "invalid_stem_url")

// ResolveStemURL finds the stored stem of a URL that this service signed. The URL must be path-only or have the
// service's own address, carry a valid token, and belong to a READY separation of the owner. Anything else is
// invalid_stem_url; if only the token has expired, the detail says so. It fetches nothing.
func (s *Service) ResolveStemURL(ctx context.Context, owner, raw string) (StemRef, error) {
	jobID, stemID, token, ok := s.parseStemURL(raw)
	if !ok {
		return StemRef{}, errInvalidStemURL
	}
	tokenErr := s.signer.check(jobID, stemID, token, clock.Now())
	if tokenErr != nil && tokenErr != errExpiredToken {
		return StemRef{}, errInvalidStemURL
	}
	ref, err := s.ResolveStem(ctx, owner, jobID, stemID)
	if err == nil && tokenErr != nil {
		return StemRef{}, errInvalidStemURL.WithDetail("expired")
	}
	return ref, err
}

// ResolveStem finds a stem of a READY separation of the owner by job and stem id. Anything else is
// invalid_stem_url.
func (s *Service) ResolveStem(ctx context.Context, owner, jobID, stemID string) (StemRef, error) {
	ref := StemRef{JobID: jobID, StemID: stemID}
	err := s.DB.QueryRow(ctx, `SELECT t.object_key, t.sha256 FROM separation_stems t
		JOIN jobs j ON j.id = t.job_id
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
	u, err := url.Parse(raw)
	base, baseErr := url.Parse(s.PublicBaseURL)
	if err != nil || baseErr != nil || len(raw) > 2048 || u.User != nil || u.Fragment != "" || u.Opaque != "" || u.RawPath != "" {
		return "", "", "", false
	}
	path, based := strings.CutPrefix(u.Path, base.Path)
	ours := based && strings.EqualFold(u.Host, base.Host) && strings.EqualFold(u.Scheme, base.Scheme)
	m := stemPath.FindStringSubmatch(path)
	if m == nil || (u.IsAbs() || u.Host != "") && !ours {
		return "", "", "", false
	}
	return m[1], m[2], u.Query().Get("token"), true
}
