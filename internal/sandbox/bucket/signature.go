// Verifies AWS signatures, version 4, in a header or a presigned URL, and refuses what the client did not sign.

package bucket

import (
	"crypto/hmac"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"
)

const (
	algorithm    = "AWS4-HMAC-SHA256"
	timeFormat   = "20060102T150405Z"
	maxSkew      = 15 * time.Minute
	maxPresigned = 7 * 24 * time.Hour
)

// unsignedPayload is the value of x-amz-content-sha256 that replaces the hash.
const unsignedPayload = "UNSIGNED-PAYLOAD"

// signature describes how a request was signed.
type signature struct {
	accessKey, date, region string // of the credential scope
	signed                  []string
	value                   string
	at                      time.Time
	expires                 time.Duration // of a presigned URL
	presigned               bool
	payload                 string // x-amz-content-sha256
}

// authorize verifies a request's signature (version 4, header or presigned URL) and returns it.
func (b *Bucket) authorize(r *http.Request) (signature, error) {
	s, err := readSignature(r)
	if err != nil {
		return s, err
	}
	if s.accessKey != b.opts.AccessKeyID {
		return s, &failure{403, "InvalidAccessKeyId", "The access key id does not exist."}
	}
	if s.date != s.at.Format("20060102") {
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
	if want, err := b.sign(r, s); err != nil || !hmac.Equal([]byte(want), []byte(s.value)) {
		return s, errors.Join(err, &failure{403, "SignatureDoesNotMatch",
			"The request signature we calculated does not match the signature you provided."})
	}
	return s, nil
}

// sign computes a request's signature over the headers that the client signed.
func (b *Bucket) sign(r *http.Request, s signature) (string, error) {
	anew := r.Clone(r.Context())
	anew.Header = http.Header{}
	for _, name := range s.signed {
		if values := r.Header.Values(name); len(values) > 0 {
			anew.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if !slices.Contains(s.signed, "content-length") {
		anew.ContentLength = 0 // otherwise the length that the client sends
	}
	query := r.URL.Query()
	query.Del("X-Amz-Signature")
	anew.URL.RawQuery = query.Encode()
	anew.URL.RawPath = httpbinding.EscapePath(r.URL.Path, false) // however the client escaped it
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping, o.DisableHeaderHoisting = true, true })
	as := aws.Credentials{AccessKeyID: s.accessKey, SecretAccessKey: b.opts.SecretAccessKey}
	if !s.presigned {
		err := signer.SignHTTP(r.Context(), as, anew, s.payload, "s3", s.region, s.at)
		_, value, _ := strings.Cut(anew.Header.Get("Authorization"), "Signature=")
		return value, err
	}
	address, _, err := signer.PresignHTTP(r.Context(), as, anew, s.payload, "s3", s.region, s.at)
	_, value, _ := strings.Cut(address, "X-Amz-Signature=")
	return value, err
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
		fields := map[string]string{}
		for field := range strings.SplitSeq(strings.TrimPrefix(header, algorithm+" "), ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
			fields[name] = value
		}
		credential, signed, s.value = fields["Credential"], fields["SignedHeaders"], fields["Signature"]
		at, s.payload = r.Header.Get("X-Amz-Date"), r.Header.Get("X-Amz-Content-Sha256")
		if s.payload == "" {
			return signature{}, &failure{400, "MissingSecurityHeader", "x-amz-content-sha256 is required"}
		}
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
