package bucket

import (
	"bufio"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"strconv"
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
	chunks    *chunkReader // nil unless the body is aws-chunked
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
	if trailer := r.Header.Get("X-Amz-Trailer"); trailer != "" {
		names = append(names, strings.ToLower(trailer))
	}
	for _, name := range names {
		if sum := newChecksum(strings.TrimPrefix(name, checksumPrefix)); sum != nil {
			p.checks[name] = sum
		}
	}
	if strings.HasPrefix(s.payload, "STREAMING-") {
		if r.Header.Get("X-Amz-Decoded-Content-Length") == "" {
			return nil, &failure{411, "MissingContentLength", "x-amz-decoded-content-length is required"}
		}
		p.chunks = &chunkReader{in: bufio.NewReaderSize(r.Body, 64<<10), trailer: map[string]string{}}
		switch s.payload {
		case streamingUnsigned:
		case streamingSigned, streamingSignedTrail:
			p.chunks.signer = &chunkSigner{key: b.signingKey(s), sign: s, previous: s.value}
		default:
			return nil, &failure{400, "InvalidRequest", "unknown streaming payload"}
		}
	} else if r.ContentLength < 0 {
		return nil, &failure{411, "MissingContentLength", "You must provide the Content-Length HTTP header."}
	}
	return p, nil
}

// copyTo receives the whole body.
func (p *payload) copyTo(w io.Writer) *failure {
	var in io.Reader = p.r.Body
	if p.chunks != nil {
		in = p.chunks
	}
	writers := []io.Writer{w, p.md5, p.sha256}
	for _, sum := range p.checks {
		writers = append(writers, sum)
	}
	n, err := io.Copy(io.MultiWriter(writers...), in)
	p.sizeBytes = n
	if errors.Is(err, errChunkSignature) {
		return &failure{403, "SignatureDoesNotMatch", "a chunk's signature does not match"}
	}
	if err != nil {
		return &failure{400, "IncompleteBody", err.Error()}
	}
	return p.verify()
}

func (p *payload) verify() *failure {
	if p.chunks != nil {
		if want := p.r.Header.Get("X-Amz-Decoded-Content-Length"); want != strconv.FormatInt(p.sizeBytes, 10) {
			return &failure{400, "IncompleteBody", "the decoded length is not the announced one"}
		}
	} else if p.sign.payload != unsignedPayload && p.sign.payload != hex.EncodeToString(p.sha256.Sum(nil)) {
		return &failure{400, "XAmzContentSHA256Mismatch", "The provided x-amz-content-sha256 does not match what was computed."}
	}
	if want := p.r.Header.Get("Content-Md5"); want != "" && want != base64.StdEncoding.EncodeToString(p.md5.Sum(nil)) {
		return &failure{400, "BadDigest", "The Content-MD5 you specified did not match what we received."}
	}
	for name, sum := range p.checks {
		want := p.r.Header.Get(name)
		if p.chunks != nil && want == "" {
			want = p.chunks.trailer[name]
		}
		if want != base64.StdEncoding.EncodeToString(sum.Sum(nil)) {
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

// chunkReader decodes aws-chunked bodies, with or without chunk signatures.
type chunkReader struct {
	in      *bufio.Reader
	signer  *chunkSigner // nil: chunks are not signed
	trailer map[string]string
	left    int64
	header  string // the current chunk's signature
	content hash.Hash
	done    bool
}

var errChunkSignature = errors.New("chunk signature does not match")

func (c *chunkReader) Read(p []byte) (int, error) {
	for c.left == 0 {
		if c.done {
			return 0, io.EOF
		}
		if err := c.nextChunk(); err != nil {
			return 0, err
		}
	}
	n, err := c.in.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if c.content != nil {
		c.content.Write(p[:n])
	}
	if c.left == 0 && err == nil {
		err = c.endChunk()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (c *chunkReader) nextChunk() error {
	line, err := c.line()
	if err != nil {
		return err
	}
	size, extension, _ := strings.Cut(line, ";")
	if c.left, err = strconv.ParseInt(size, 16, 64); err != nil || c.left < 0 {
		return fmt.Errorf("chunk size %q", size)
	}
	c.header = strings.TrimPrefix(extension, "chunk-signature=")
	if c.signer != nil {
		c.content = sha256.New()
	}
	if c.left > 0 {
		return nil
	}
	c.done = true
	if err := c.checkChunk(); err != nil {
		return err
	}
	return c.readTrailer()
}

// endChunk reads the line break behind a chunk's data.
func (c *chunkReader) endChunk() error {
	line, err := c.line()
	if err == nil && line != "" {
		err = errors.New("chunk is longer than announced")
	}
	if err != nil {
		return err
	}
	return c.checkChunk()
}

func (c *chunkReader) checkChunk() error {
	if c.signer == nil {
		return nil
	}
	return c.signer.check("AWS4-HMAC-SHA256-PAYLOAD", emptyHash+"\n"+hex.EncodeToString(c.content.Sum(nil)), c.header)
}

func (c *chunkReader) readTrailer() error {
	var canonical strings.Builder
	signature := ""
	for {
		line, err := c.line()
		if errors.Is(err, io.EOF) || err == nil && line == "" {
			break
		}
		if err != nil {
			return err
		}
		name, value, _ := strings.Cut(line, ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		if name == "x-amz-trailer-signature" {
			signature = value
			continue
		}
		c.trailer[name] = value
		canonical.WriteString(name + ":" + value + "\n")
	}
	if c.signer == nil || canonical.Len() == 0 {
		return nil
	}
	sum := sha256.Sum256([]byte(canonical.String()))
	return c.signer.check("AWS4-HMAC-SHA256-TRAILER", hex.EncodeToString(sum[:]), signature)
}

// line reads a short line without its end.
func (c *chunkReader) line() (string, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"), nil
}

// chunkSigner follows the chain of chunk signatures.
type chunkSigner struct {
	key      []byte
	sign     signature
	previous string
}

const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func (s *chunkSigner) check(kind, hashes, got string) error {
	text := strings.Join([]string{kind, s.sign.at.Format(timeFormat), s.sign.scope(), s.previous, hashes}, "\n")
	want := hex.EncodeToString(hmacSHA256(s.key, text))
	if !hmac.Equal([]byte(want), []byte(got)) {
		return errChunkSignature
	}
	s.previous = want
	return nil
}
