package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"sort"
	"strings"

	"cutroom/internal/fault"
	"cutroom/internal/staging"
)

// maxParts bounds the parts of one request.
const maxParts = 64

// form is a multipart body whose files are on disk and whose text is in memory.
// Close removes the files that nobody took.
type form struct {
	text  map[string]string
	files map[string]staging.File
	batch *staging.Batch
}

func (f *form) Close() { f.batch.Close() }

// fingerprint digests the content of the form, whatever its boundary and order.
func (f *form) fingerprint(endpoint string) string {
	lines := make([]string, 0, len(f.text)+len(f.files))
	for name, v := range f.text {
		lines = append(lines, fmt.Sprintf("text %q %q", name, v))
	}
	for name, file := range f.files {
		lines = append(lines, fmt.Sprintf("file %q %s", name, file.SHA256))
	}
	sort.Strings(lines)
	return digest(endpoint, strings.Join(lines, "\n"))
}

func digest(endpoint, content string) string {
	sum := sha256.Sum256([]byte(endpoint + "\x00" + content))
	return hex.EncodeToString(sum[:])
}

// formRules says which parts a form takes.
type formRules struct {
	text    []string               // names of text fields; all other parts are files
	isFile  func(name string) bool // files to keep; others are read and dropped
	maxBody int64                  // bytes of all parts together
	tooBig  *fault.Error           // answer beyond maxBody
	tooLong *fault.Error           // answer to a text field beyond maxJSON
}

// readForm streams a multipart body to disk. Parts beyond the caps end it at
// once, without reading the rest.
func (s *Server) readForm(r *http.Request, rules formRules) (*form, error) {
	boundary, err := formBoundary(r)
	if err != nil {
		return nil, err
	}
	// Boundaries and part headers need some room beyond the parts themselves.
	if r.ContentLength > rules.maxBody+maxParts*16<<10 {
		return nil, rules.tooBig
	}
	batch, err := s.o.Staging.Batch()
	if err != nil {
		return nil, err
	}
	f := &form{text: map[string]string{}, files: map[string]staging.File{}, batch: batch}
	if err := f.read(multipart.NewReader(r.Body, boundary), rules); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func formBoundary(r *http.Request) (string, error) {
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "multipart/form-data" || params["boundary"] == "" {
		return "", errBadRequest.WithDetail("a multipart/form-data body is required")
	}
	return params["boundary"], nil
}

func (f *form) read(mr *multipart.Reader, rules formRules) error {
	left := rules.maxBody
	for n := 0; ; n++ {
		part, err := mr.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
		if n == maxParts {
			return fault.Invalidf("the form has more than %d parts", maxParts)
		}
		size, err := f.take(part, rules, left)
		if err != nil {
			return err
		}
		left -= size
	}
}

// take stores one part and returns its size.
func (f *form) take(part *multipart.Part, rules formRules, left int64) (int64, error) {
	name := part.FormName()
	if name == "" || len(name) > 128 {
		return 0, errBadRequest.WithDetail("a part of the form has no usable name")
	}
	if contains(rules.text, name) {
		if _, twice := f.text[name]; twice {
			return 0, fault.Invalidf("%s is given twice", name)
		}
		b, err := io.ReadAll(io.LimitReader(part, maxJSON+1))
		if err != nil {
			return 0, bodyError(err)
		}
		if len(b) > maxJSON {
			return 0, rules.tooLong
		}
		f.text[name] = string(b)
		return int64(len(b)), nil
	}
	if !rules.isFile(name) {
		n, err := io.Copy(io.Discard, io.LimitReader(part, left+1))
		if err != nil {
			return 0, bodyError(err)
		}
		if n > left {
			return 0, rules.tooBig
		}
		return n, nil
	}
	if _, twice := f.files[name]; twice {
		return 0, fault.Invalidf("%s is given twice", name)
	}
	file, err := f.batch.Receive(name, part.FileName(), part, left)
	switch {
	case errors.Is(err, staging.ErrTooLarge):
		return 0, rules.tooBig
	case errors.Is(err, staging.ErrNoSpace):
		return 0, err
	case err != nil:
		return 0, bodyError(err)
	}
	f.files[name] = file
	return file.SizeBytes, nil
}

// bodyError answers a body that breaks off or is not what it says. Errors of
// our own disk pass through as they are.
func bodyError(err error) error {
	var local interface{ Local() bool }
	if errors.As(err, &local) && local.Local() {
		return err
	}
	return errBadRequest.WithDetail("the multipart body is malformed or incomplete").Because(err)
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
