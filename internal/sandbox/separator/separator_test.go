package separator_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"cutroom/internal/sandbox/separator"
)

// send sends a request and returns the status and the body of the answer.
func send(t *testing.T, method, url, body string, header http.Header) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

func TestRefusals(t *testing.T) {
	const space = 4711
	p, err := separator.New(separator.Options{APIKey: "pk_live_test", Space: space, Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	key, block := http.Header{"Xp-Api-Key": {"pk_live_test"}}, http.Header{"X-Ms-Blob-Type": {"BlockBlob"}}
	_, body := send(t, "GET", p.API.URL()+"/file/api/upload/sas-token?fileName=a.wav", "", key)
	var token struct{ BlobSasURL string }
	if err := json.Unmarshal([]byte(body), &token); err != nil {
		t.Fatal(err)
	}
	plain, _, _ := strings.Cut(token.BlobSasURL, "?")
	register := func(space int) string {
		return fmt.Sprintf(`{"spaceSeq": %d, "fileUrl": %q, "fileName": "a"}`, space, plain)
	}
	const file, projects = "/file/api/upload/", "/video-translator/api/v1/projects/"
	for _, c := range []struct {
		name, method, at, body string
		header                 http.Header
		want                   int
	}{
		{"no key", "GET", file + "sas-token?fileName=a", "", nil, 401},
		{"no file name", "GET", file + "sas-token", "", key, 400},
		{"no signature", "PUT", plain, "x", block, 403},
		{"no blob type", "PUT", token.BlobSasURL, "x", nil, 400},
		{"API key to blob", "PUT", token.BlobSasURL, "x", http.Header{"X-Ms-Blob-Type": {"BlockBlob"}, "Xp-Api-Key": key["Xp-Api-Key"]}, 403},
		{"nothing uploaded", "PUT", file + "audio", register(space), key, 400},
		{"text", "PUT", token.BlobSasURL, "plain text", block, 201},
		{"no audio in it", "PUT", file + "audio", register(space), key, 400},
		{"other space", "PUT", file + "audio", register(1), key, 403},
		{"space in path", "POST", projects + "spaces/1/audio-separation", "{}", key, 403},
		{"unknown media", "POST", projects + "spaces/4711/audio-separation", `{"mediaSeq": 1, "isVideoProject": false, "title": "x"}`, key, 400},
		{"unknown project", "GET", projects + "1/space/4711/progress", "", key, 404},
		{"a path not known", "GET", "/video-translator/api/v2/projects", "", key, 404},
	} {
		if strings.HasPrefix(c.at, "/") {
			c.at = p.API.URL() + c.at
		}
		if got, _ := send(t, c.method, c.at, c.body, c.header); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if p.KeyLeaks() != 1 || len(p.Titles()) != 0 {
		t.Errorf("leaks %d, titles %v", p.KeyLeaks(), p.Titles())
	}
}
