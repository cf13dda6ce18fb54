package bucket

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	algorithm    = "AWS4-HMAC-SHA256"
	timeFormat   = "20060102T150405Z"
	maxSkew      = 15 * time.Minute
	maxPresigned = 7 * 24 * time.Hour
)

// unsignedPayload is the x-amz-content-sha256 that is no hash.
const unsignedPayload = "UNSIGNED-PAYLOAD"

// signature is what a request says about how it was signed.
type signature struct {
	accessKey, date, region string // of the credential scope
	signed                  []string
	value                   string
	at                      time.Time
	expires                 time.Duration // of a presigned URL
	presigned               bool
	payload                 string // x-amz-content-sha256
}

func (s signature) scope() string { return s.date + "/" + s.region + "/s3/aws4_request" }

// authorize verifies a request's signature (version 4, header or presigned
// URL) and returns it.
func (b *Bucket) authorize(r *http.Request) (signature, error) {
	s, err := readSignature(r)
	if err != nil {
		return s, err
	}
	if s.accessKey != b.opts.AccessKeyID {
		return s, &failure{403, "InvalidAccessKeyId", "The access key id does not exist."}
	}
	if b.opts.Region != "" && s.region != b.opts.Region || s.date != s.at.Format("20060102") {
		return s, &failure{403, "SignatureDoesNotMatch", "The credential scope is wrong."}
	}
	if err := b.checkTime(s); err != nil {
		return s, err
	}
	if !slices.Contains(s.signed, "host") {
		return s, &failure{403, "AccessDenied", "The host header must be signed."}
	}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-amz-") && !slices.Contains(s.signed, lower) {
			return s, &failure{403, "AccessDenied", "There were headers present in the request which were not signed: " + lower}
		}
	}
	want := hex.EncodeToString(hmacSHA256(b.signingKey(s), stringToSign(r, s)))
	if !hmac.Equal([]byte(want), []byte(s.value)) {
		return s, &failure{403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."}
	}
	return s, nil
}

func (b *Bucket) checkTime(s signature) error {
	now := time.Now()
	if s.presigned {
		b.mu.Lock()
		now = now.Add(b.clockOffset)
		b.mu.Unlock()
		if now.After(s.at.Add(s.expires)) {
			return &failure{403, "AccessDenied", "Request has expired"}
		}
		if s.at.After(now.Add(maxSkew)) {
			return &failure{403, "AccessDenied", "Request is not yet valid"}
		}
		return nil
	}
	if skew := now.Sub(s.at); skew > maxSkew || skew < -maxSkew {
		return &failure{403, "RequestTimeTooSkewed", "The difference between the request time and the server's time is too large."}
	}
	return nil
}

func readSignature(r *http.Request) (signature, error) {
	malformed := func(what string) (signature, error) {
		return signature{}, &failure{400, "AuthorizationHeaderMalformed", what}
	}
	var s signature
	var credential, signed, at string
	query := r.URL.Query()
	switch header := r.Header.Get("Authorization"); {
	case header != "" && query.Get("X-Amz-Algorithm") != "":
		return signature{}, &failure{400, "InvalidArgument", "Only one auth mechanism allowed"}
	case query.Get("X-Amz-Algorithm") == algorithm:
		s.presigned = true
		credential, signed, s.value = query.Get("X-Amz-Credential"), query.Get("X-Amz-SignedHeaders"), query.Get("X-Amz-Signature")
		at, s.payload = query.Get("X-Amz-Date"), unsignedPayload
		seconds, err := strconv.Atoi(query.Get("X-Amz-Expires"))
		s.expires = time.Duration(seconds) * time.Second
		if err != nil || seconds < 1 || s.expires > maxPresigned {
			return signature{}, &failure{400, "AuthorizationQueryParametersError", "X-Amz-Expires must be between 1 and 604800 seconds"}
		}
	case strings.HasPrefix(header, algorithm+" "):
		for _, field := range strings.Split(strings.TrimPrefix(header, algorithm+" "), ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
			switch name {
			case "Credential":
				credential = value
			case "SignedHeaders":
				signed = value
			case "Signature":
				s.value = value
			}
		}
		at, s.payload = r.Header.Get("X-Amz-Date"), r.Header.Get("X-Amz-Content-Sha256")
		if s.payload == "" {
			return signature{}, &failure{400, "MissingSecurityHeader", "x-amz-content-sha256 is required"}
		}
	case header != "":
		return signature{}, &failure{400, "InvalidRequest", "Unsupported authorization type"}
	default:
		return signature{}, &failure{403, "AccessDenied", "Access Denied"}
	}
	scope := strings.Split(credential, "/")
	if len(scope) != 5 || scope[3] != "s3" || scope[4] != "aws4_request" {
		return malformed("the credential scope is malformed")
	}
	s.accessKey, s.date, s.region = scope[0], scope[1], scope[2]
	s.signed = strings.Split(signed, ";")
	if !slices.IsSorted(s.signed) {
		return malformed("the signed headers are not in order")
	}
	var err error
	if s.at, err = time.Parse(timeFormat, at); err != nil {
		return malformed("the date is malformed")
	}
	return s, nil
}

func stringToSign(r *http.Request, s signature) string {
	sum := sha256.Sum256([]byte(canonicalRequest(r, s)))
	return strings.Join([]string{algorithm, s.at.Format(timeFormat), s.scope(), hex.EncodeToString(sum[:])}, "\n")
}

func canonicalRequest(r *http.Request, s signature) string {
	var headers strings.Builder
	for _, name := range s.signed {
		headers.WriteString(name + ":" + canonicalHeader(r, name) + "\n")
	}
	return strings.Join([]string{r.Method, escape(r.URL.Path, true), canonicalQuery(r.URL.Query()),
		headers.String(), strings.Join(s.signed, ";"), s.payload}, "\n")
}

func canonicalHeader(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		// What the client really sends; -1 (chunked) never matches a signature.
		return strconv.FormatInt(r.ContentLength, 10)
	}
	values := make([]string, 0, 1)
	for _, v := range r.Header.Values(name) {
		values = append(values, strings.Join(strings.Fields(v), " "))
	}
	return strings.Join(values, ",")
}

func canonicalQuery(query url.Values) string {
	pairs := make([]string, 0, len(query))
	for name, values := range query {
		if name == "X-Amz-Signature" {
			continue
		}
		for _, v := range values {
			pairs = append(pairs, escape(name, false)+"="+escape(v, false))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// escape is the signature's own percent-encoding: everything but unreserved
// characters, and slashes only where they separate path segments.
func escape(s string, keepSlash bool) string {
	const upperHex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.~", c) >= 0, keepSlash && c == '/':
			out.WriteByte(c)
		default:
			out.WriteByte('%')
			out.WriteByte(upperHex[c>>4])
			out.WriteByte(upperHex[c&15])
		}
	}
	return out.String()
}

func (b *Bucket) signingKey(s signature) []byte {
	key := hmacSHA256([]byte("AWS4"+b.opts.SecretAccessKey), s.date)
	for _, part := range []string{s.region, "s3", "aws4_request"} {
		key = hmacSHA256(key, part)
	}
	return key
}

func hmacSHA256(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
