package httpapi

import (
	"bytes"
	"strconv"
)

// maxFramingLine is how much of a header line is kept: more than the longest
// one that matters.
const maxFramingLine = 64

// framing follows the heads of the requests on a connection, up to the first
// chunked body: the connection ends with that request.
type framing struct {
	line    []byte // the current line, its beginning
	begun   bool   // a head has a line already
	length  int64  // Content-Length; -1 when it is none that can be read here
	sized   bool   // there is a Content-Length
	chunked bool   // there is a Transfer-Encoding
	skip    int64  // bytes of a body still to come
	over    bool   // nothing after this is looked at
}

// twice takes what was read and reports that a head in it has both ways to say
// where the body ends, or hides how long it is in a line that no client writes.
func (f *framing) twice(b []byte) bool {
	for len(b) > 0 && !f.over {
		if f.skip > 0 {
			n := min(f.skip, int64(len(b)))
			f.skip, b = f.skip-n, b[n:]
			continue
		}
		end := bytes.IndexByte(b, '\n')
		part := b
		if end >= 0 {
			part = b[:end]
		}
		f.line = append(f.line, part[:min(len(part), maxFramingLine-len(f.line))]...)
		if end < 0 {
			return false
		}
		b = b[end+1:]
		if f.endLine() {
			return true
		}
	}
	return false
}

var transferEncoding, contentLength = []byte("Transfer-Encoding"), []byte("Content-Length")

// endLine takes a whole line.
func (f *framing) endLine() bool {
	line := bytes.TrimRight(f.line, "\r")
	f.line = f.line[:0]
	if len(line) > 0 {
		f.begun = true
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch {
		case bytes.EqualFold(name, transferEncoding):
			f.chunked = true
		case bytes.EqualFold(name, contentLength):
			n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil || n < 0 {
				n = -1
			}
			f.sized, f.length = true, n
		}
		return false
	}
	if !f.begun {
		return false // line breaks after a body are passed over
	}
	twice := f.sized && (f.chunked || f.length < 0)
	*f = framing{line: f.line, skip: f.length, over: f.chunked || f.length < 0}
	return twice
}
