// Reads multipart forms: files go to the staging area, text stays in memory, and every limit on sizes, part headers and
// repeated parts is checked while the body arrives.

package httpapi

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/storage/staging"
)

const (
	// maxParts bounds the parts of one request.
	maxParts = 64
	// maxPartHead bounds the boundary and headers of a part, in bytes. Real ones are under 1 KiB.
	maxPartHead = 16 << 10
	// maxPartName bounds the name of a part, in bytes.
	maxPartName = 128
)

// form is a multipart body with its files on disk and its text in memory. Close removes the files that were not moved
// away.
type form struct {
	text  map[string]string
	files map[string]staging.File
	batch *staging.Batch
}

func (f *form) Close() { f.batch.Close() }

// hashes returns the hash of each file by its name.
func (f *form) hashes() map[string]string {
	sums := map[string]string{}
	for name, file := range f.files {
		sums[name] = file.SHA256
	}
	return sums
}

// formRules lists the parts that a form accepts.
type formRules struct {
	text    []string                       // names of text fields; all other parts are files
	file    string                         // the one file to keep, others are read and dropped; "" keeps all
	maxBody int64                          // bytes of all files together
	tooBig  *fault.Error                   // answer to files of more than maxBody bytes
	tooLong func(name string) *fault.Error // answer to a text field of more than maxJSON bytes
	tooMany *fault.Error                   // answer to more than maxParts parts
}

// maxWire is the size of the largest body that the rules allow: files, text, boundaries and headers.
func (r formRules) maxWire() int64 {
	return r.maxBody + int64(len(r.text))*maxJSON + (maxParts+1)*maxPartHead
}

// readForm streams a multipart body to disk. It stops at the first part that exceeds a limit.
func (s *Server) readForm(r *http.Request, rules formRules) (*form, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	boundary, err := formBoundary(r)
	if err != nil {
		return nil, err
	}
	if r.ContentLength > rules.maxWire() {
		return nil, rules.tooBig
	}
	batch, err := s.o.Staging.Batch()
	if err != nil {
		return nil, err
	}
	f := &form{text: map[string]string{}, files: map[string]staging.File{}, batch: batch}
	body := &headGuard{body: r.Body}
	if err := f.read(body, boundary, rules); err != nil {
		f.Close()
		return nil, err
	}
	// The server can notice a disconnect only after it has read the whole body, and a line break may follow the
	// last boundary.
	_, _ = io.CopyN(io.Discard, r.Body, 1<<10)
	return f, nil
}

// errNoBoundary refuses a form whose parts cannot be told apart. Some clients set the type by hand.
var errNoBoundary = fault.Sentencef(fault.Invalid,
	"The Content-Type multipart/form-data has no usable boundary: let the HTTP library set it, with its boundary")

func formBoundary(r *http.Request) (string, error) {
	contentType := r.Header.Get("Content-Type")
	if kind, _, _ := strings.Cut(contentType, ";"); !strings.EqualFold(strings.TrimSpace(kind), "multipart/form-data") {
		return "", errBadRequest.WithDetail("a multipart/form-data body is required")
	}
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return "", errNoBoundary.WithCause(err)
	}
	return params["boundary"], nil
}

// errHead is the error of a body whose part headers, or preamble, are too long.
var errHead = errors.New("part header too long")

// headGuard bounds the bytes read before a part's content. Without it, the library would keep headers of 10 MiB in
// memory and skip any number of lines before the first part.
type headGuard struct {
	body io.Reader
	on   bool
	left int
}

func (g *headGuard) Read(p []byte) (int, error) {
	if !g.on {
		return g.body.Read(p)
	}
	if g.left <= 0 {
		return 0, errHead
	}
	n, err := g.body.Read(p[:min(len(p), g.left)])
	g.left -= n
	return n, err
}

func (f *form) read(body *headGuard, boundary string, rules formRules) error {
	mr := multipart.NewReader(body, boundary)
	left := rules.maxBody
	for n := 0; ; n++ {
		body.on, body.left = true, maxPartHead
		part, err := mr.NextRawPart()
		body.on = false
		if err == io.EOF { // a wrapped EOF means that the last boundary is missing
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
		if n == maxParts {
			return rules.tooMany
		}
		size, err := f.take(part, rules, left)
		if err != nil {
			return err
		}
		left -= size
	}
}

// take stores one part and returns how many bytes it takes from the limit on files.
func (f *form) take(part *multipart.Part, rules formRules, left int64) (int64, error) {
	name, fileName := partNames(part)
	if name == "" || len(name) > maxPartName || name != db.Visible(name) {
		return 0, errBadRequest.WithDetail("a part of the form has no usable name")
	}
	if slices.Contains(rules.text, name) {
		return 0, f.takeText(name, part, rules)
	}
	limit, tooBig := left, rules.tooBig
	if isText(part, name, fileName) && maxJSON < left {
		limit, tooBig = maxJSON, rules.tooLong(name)
	}
	if rules.file != "" && name != rules.file {
		n, err := io.Copy(io.Discard, io.LimitReader(part, limit+1))
		if err != nil {
			return 0, bodyError(err)
		}
		if n > limit {
			return 0, tooBig
		}
		return n, nil
	}
	if _, twice := f.files[name]; twice {
		return 0, givenTwice(name)
	}
	file, err := f.batch.Receive(name, db.Visible(fileName), part, limit)
	switch {
	case errors.Is(err, staging.ErrTooLarge):
		return 0, tooBig
	case err != nil:
		return 0, bodyError(err)
	}
	f.files[name] = file
	return file.SizeBytes, nil
}

// isText reports whether an unknown part is a text field: it has neither a file name nor a type. Parts with the
// names of media are always files, because some clients send neither.
func isText(part *multipart.Part, name, fileName string) bool {
	for _, media := range []string{"video", "bgm", "audio", "file"} {
		if strings.HasPrefix(name, media) {
			return false
		}
	}
	return fileName == "" && part.Header.Get("Content-Type") == ""
}

func (f *form) takeText(name string, part io.Reader, rules formRules) error {
	if _, twice := f.text[name]; twice {
		return givenTwice(name)
	}
	b, err := io.ReadAll(io.LimitReader(part, maxJSON+1))
	if err != nil {
		return bodyError(err)
	}
	if len(b) > maxJSON {
		return rules.tooLong(name)
	}
	f.text[name] = strings.TrimPrefix(string(b), byteOrderMark)
	return nil
}

func givenTwice(name string) error {
	return &fault.Error{Kind: fault.Invalid, Sentence: name + " is given twice", Field: name} // the name may have any characters
}

// partNames returns the names of a part and of its file. The library rejects headers with an unquoted non-ASCII
// file name. Phones send those, so partNames parses them leniently.
func partNames(part *multipart.Part) (name, fileName string) {
	if name = part.FormName(); name != "" {
		return name, part.FileName()
	}
	fields := splitHeader(part.Header.Get("Content-Disposition"), ';')
	if len(fields) == 0 || !strings.EqualFold(strings.TrimSpace(fields[0]), "form-data") {
		return "", ""
	}
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "name":
			name = unquote(value)
		case "filename":
			fileName = unquote(value)
		}
	}
	return name, fileName
}

func unquote(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(s[1 : len(s)-1])
	}
	return s
}

// bodyError returns the error for a truncated or malformed body. It returns errors of the local disk unchanged.
func bodyError(err error) error {
	if _, local := errors.AsType[*staging.DiskError](err); local {
		return err
	}
	return errBadRequest.WithDetail("the multipart body is malformed or incomplete").WithCause(err)
}
