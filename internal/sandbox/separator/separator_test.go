package separator_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/separator"
)

const (
	key   = "pk_live_test"
	space = 4711
)

func start(t *testing.T) *separator.Provider {
	t.Helper()
	p, err := separator.New(separator.Options{APIKey: key, Space: space, Dir: t.TempDir(), Fast: true, Processing: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

type caller struct {
	t *testing.T
	p *separator.Provider
}

// call makes an API call and decodes a 2xx answer into out.
func (c caller) call(method, path string, body any, out any) int {
	c.t.Helper()
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			c.t.Fatal(err)
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.p.API.URL()+path, payload)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("XP-API-KEY", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode/100 == 2 && out != nil {
		if err := json.NewDecoder(res.Body).Decode(out); err != nil {
			c.t.Fatal(err)
		}
	}
	return res.StatusCode
}

// put uploads bytes to a SAS address.
func (c caller) put(address string, body []byte, header http.Header) int {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), "PUT", address, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

func TestRefusals(t *testing.T) {
	p := start(t)
	c := caller{t, p}
	var token struct{ BlobSasURL string }
	c.call("GET", "/file/api/upload/sas-token?fileName=a.wav", nil, &token)
	plain, _, _ := strings.Cut(token.BlobSasURL, "?")
	block := http.Header{"X-Ms-Blob-Type": {"BlockBlob"}}
	for name, got := range map[string][2]int{
		"no signature":     {c.put(plain, []byte("x"), block), 403},
		"no blob type":     {c.put(token.BlobSasURL, []byte("x"), http.Header{}), 400},
		"API key to blob":  {c.put(token.BlobSasURL, []byte("x"), http.Header{"X-Ms-Blob-Type": {"BlockBlob"}, "Xp-Api-Key": {key}}), 403},
		"nothing uploaded": {c.call("PUT", "/file/api/upload/audio", map[string]any{"spaceSeq": space, "fileUrl": plain, "fileName": "a"}, nil), 400},
		"no audio in it": {func() int {
			c.put(token.BlobSasURL, []byte("plain text"), block)
			return c.call("PUT", "/file/api/upload/audio", map[string]any{"spaceSeq": space, "fileUrl": plain, "fileName": "a"}, nil)
		}(), 400},
		"other space":      {c.call("PUT", "/file/api/upload/audio", map[string]any{"spaceSeq": 1, "fileUrl": plain, "fileName": "a"}, nil), 403},
		"space in path":    {c.call("POST", "/video-translator/api/v1/projects/spaces/1/audio-separation", map[string]any{}, nil), 403},
		"unknown media":    {c.call("POST", fmt.Sprintf("/video-translator/api/v1/projects/spaces/%d/audio-separation", space), map[string]any{"mediaSeq": 1, "isVideoProject": false, "title": "x"}, nil), 400},
		"unknown project":  {c.call("GET", fmt.Sprintf("/video-translator/api/v1/projects/1/space/%d/progress", space), nil, nil), 404},
		"no file name":     {c.call("GET", "/file/api/upload/sas-token", nil, nil), 400},
		"a path not known": {c.call("GET", "/video-translator/api/v2/projects", nil, nil), 404},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", name, got[0], got[1])
		}
	}
	res, err := http.Get(p.API.URL() + "/file/api/upload/sas-token?fileName=a")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 401 || p.KeyLeaks() != 1 || len(p.Titles()) != 0 {
		t.Errorf("without key %d, leaks %d, titles %v", res.StatusCode, p.KeyLeaks(), p.Titles())
	}
}
