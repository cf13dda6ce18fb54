package httpapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"cutroom/internal/base/fault"
	"cutroom/internal/storage/staging"
)

func TestFileNamesHoldNothingInvisible(t *testing.T) {
	area, err := staging.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for head, want := range map[string]string{
		`filename="song.mp3"`:                                  "song.mp3",
		`filename*=utf-8''so%0D%0Ang%00.mp3`:                   "song.mp3",
		`filename*=utf-8''a%E2%80%AEgpm.mp3`:                   "agpm.mp3",
		"filename=s\xc3\xb6ng\x9b.mp3":                         "söng.mp3",
		"filename=\"👩\u200d👩\u200d👧.mp3\"":                     "👩\u200d👩\u200d👧.mp3",
		`filename*=utf-8''%1B%5B31m%C2%9Bred.mp3`:              "[31mred.mp3",
		`filename*=utf-8''%2E%2E%2F%2E%2E%2Fetc%2Fpasswd%0A.x`: "passwd.x",
	} {
		body := "--b\r\nContent-Disposition: form-data; name=\"file\"; " + head + "\r\n\r\nx\r\n--b--\r\n"
		batch, err := area.Batch()
		if err != nil {
			t.Fatal(err)
		}
		f := &form{text: map[string]string{}, files: map[string]staging.File{}, batch: batch}
		err = f.read(&headGuard{body: strings.NewReader(body)}, "b", formRules{maxBody: 10})
		if got := filepath.Base(f.files["file"].FileName); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", head, got, err, want)
		}
		f.Close()
	}
}

// endless is an endless body that counts what is read.
type endless struct {
	io.Reader
	read int
}

func (e *endless) Read(b []byte) (int, error) {
	n, err := e.Reader.Read(b)
	e.read += n
	return n, err
}

func (e *endless) Close() error { return nil }

// A body beyond its cap is read no further than needed to detect that.
func TestTheExcessOfABodyIsNotRead(t *testing.T) {
	area, err := staging.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{o: Options{Staging: area}}
	const limit = 2 << 20
	tooBig, tooLong, tooMany := fault.New(fault.TooLarge, "big"), fault.New(fault.TooLarge, "long"), fault.New(fault.TooLarge, "many")
	rules := formRules{text: []string{"config"}, file: "video", maxBody: limit,
		tooBig: tooBig, tooLong: func(string) *fault.Error { return tooLong }, tooMany: tooMany}
	part := func(name string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n"
	}
	post := func(r *http.Request) error {
		f, err := s.readForm(r, rules)
		if err == nil {
			f.Close()
		}
		return err
	}
	parts := func(name, content string) string { // 2000 consecutive parts
		return strings.Repeat(part(name)+content+"\r\n", 2000)
	}
	for name, c := range map[string]struct {
		begin string
		read  func(*http.Request) error
		want  error
		most  int
	}{
		"JSON": {"{", func(r *http.Request) error { _, err := readBody(httptest.NewRecorder(), r); return err }, errTooLarge, maxJSON},
		"file": {part("video"), post, tooBig, limit}, "another part": {part("other.bin"), post, tooLong, maxJSON},
		"text field": {part("config"), post, tooLong, maxJSON}, "parts": {parts("x", ""), post, tooMany, 64 * 100},
	} {
		body := &endless{Reader: io.MultiReader(strings.NewReader(c.begin), zeros{})}
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.ContentLength = -1 // a chunked body states no length
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		if err := c.read(r); err != c.want || body.read > c.most+64<<10 {
			t.Errorf("%s: %v after %d bytes, want %v after about %d", name, err, body.read, c.want, c.most)
		}
		r.ContentLength = 1 << 40
		body.read = 0
		if err := c.read(r); err == nil || body.read != 0 {
			t.Errorf("%s announced too large: %v after %d bytes", name, err, body.read)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
