package bucket

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestSignedChunks uses the worked example of the protocol's documentation.
func TestSignedChunks(t *testing.T) {
	b := &Bucket{opts: Options{SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}}
	s := signature{date: "20130524", region: "us-east-1", at: time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)}
	const seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
	read := func(body string) (string, error) {
		r := &chunkReader{in: bufio.NewReader(strings.NewReader(body)), trailer: map[string]string{},
			signer: &chunkSigner{key: b.signingKey(s), sign: s, previous: seed}}
		out, err := io.ReadAll(r)
		return string(out), err
	}
	body := "10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n" + strings.Repeat("a", 65536) + "\r\n" +
		"400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n" + strings.Repeat("a", 1024) + "\r\n" +
		"0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n"
	if got, err := read(body); err != nil || got != strings.Repeat("a", 66560) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if _, err := read(strings.Replace(body, "aaaa\r\n400", "aaab\r\n400", 1)); !errors.Is(err, errChunkSignature) {
		t.Errorf("changed chunk: %v", err)
	}
	if _, err := read(body[:66000]); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut body: %v", err)
	}
}
