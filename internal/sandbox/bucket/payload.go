package bucket

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"strings"
)

// checksums by the name in x-amz-checksum-<name>.
func newChecksum(name string) hash.Hash {
	switch name {
	case "crc32":
		return crc32.NewIEEE()
	case "crc32c":
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case "crc64nvme":
		return crc64.New(crc64.MakeTable(0x9a6c9329ac4bc9b5))
	case "sha1":
		return sha1.New()
	case "sha256":
		return sha256.New()
	}
	return nil
}

const checksumPrefix = "x-amz-checksum-"

// payload is a request body being received: decoded, hashed and finally
// compared with everything the client said about it.
type payload struct {
	r         *http.Request
	sign      signature
	md5       hash.Hash
	sha256    hash.Hash
	checks    map[string]hash.Hash // checksum header or trailer -> running sum
	sizeBytes int64
}

func (b *Bucket) newPayload(r *http.Request, s signature) (*payload, *failure) {
	p := &payload{r: r, sign: s, md5: md5.New(), sha256: sha256.New(), checks: map[string]hash.Hash{}}
	names := []string{}
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, checksumPrefix) {
			names = append(names, lower)
		}
	}
	for _, name := range names {
		if sum := newChecksum(strings.TrimPrefix(name, checksumPrefix)); sum != nil {
			p.checks[name] = sum
		}
	}
	switch {
	case strings.HasPrefix(s.payload, "STREAMING-"):
		return nil, &failure{501, "NotImplemented", "Chunked bodies are not implemented."}
	case r.ContentLength < 0:
		return nil, &failure{411, "MissingContentLength", "You must provide the Content-Length HTTP header."}
	}
	return p, nil
}

// copyTo receives the whole body.
func (p *payload) copyTo(w io.Writer) *failure {
	writers := []io.Writer{w, p.md5, p.sha256}
	for _, sum := range p.checks {
		writers = append(writers, sum)
	}
	n, err := io.Copy(io.MultiWriter(writers...), p.r.Body)
	p.sizeBytes = n
	if err != nil {
		return &failure{400, "IncompleteBody", err.Error()}
	}
	return p.verify()
}

func (p *payload) verify() *failure {
	if p.sign.payload != unsignedPayload && p.sign.payload != hex.EncodeToString(p.sha256.Sum(nil)) {
		return &failure{400, "XAmzContentSHA256Mismatch", "The provided x-amz-content-sha256 does not match what was computed."}
	}
	if want := p.r.Header.Get("Content-Md5"); want != "" && want != base64.StdEncoding.EncodeToString(p.md5.Sum(nil)) {
		return &failure{400, "BadDigest", "The Content-MD5 you specified did not match what we received."}
	}
	for name, sum := range p.checks {
		if p.r.Header.Get(name) != base64.StdEncoding.EncodeToString(sum.Sum(nil)) {
			return &failure{400, "BadDigest", "The " + name + " you specified did not match what we received."}
		}
	}
	return nil
}

// checksumValues are the verified checksums, to be given back with the object.
func (p *payload) checksumValues() map[string]string {
	out := map[string]string{}
	for name, sum := range p.checks {
		out[name] = base64.StdEncoding.EncodeToString(sum.Sum(nil))
	}
	return out
}
