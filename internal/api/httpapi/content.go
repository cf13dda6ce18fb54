// Downloads through the API: net/http's ServeContent with our error bodies, a limit on the number of ranges, and the
// read errors that the library swallows.

package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"cutroom/internal/storage/objectstore"
)

// revalidated is the Cache-Control of content that never changes while it exists: clients keep it and revalidate it.
const revalidated = "private, no-cache"

// serveObject streams a stored object with Range, HEAD and ETag, and closes it.
func serveObject(w http.ResponseWriter, r *http.Request, obj objectstore.Object, fileName string) error {
	defer obj.Close()
	info := obj.Info()
	h := w.Header()
	h.Set("Content-Type", objectstore.ContentType(fileName))
	h.Set("Content-Disposition", `attachment; filename="`+fileName+`"`)
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "private, no-store")
	}
	if info.ETag != "" && h.Get("ETag") == "" {
		h.Set("ETag", `"`+strings.Trim(info.ETag, `"`)+`"`)
	}
	return serveContent(w, r, info.ModTime, obj)
}

// maxRanges bounds the ranges of one request. Each becomes a request to the bucket; players send one.
const maxRanges = 4

// serveContent streams content with Range, HEAD and preconditions. It returns an error if the content cannot be
// read and nothing has been sent yet.
func serveContent(w http.ResponseWriter, r *http.Request, modified time.Time, content io.ReadSeeker) error {
	// Ignore ranges in an unknown unit (RFC 9110, section 14.2), too many ranges, and several ranges in a HEAD,
	// because the library would read those. For units that it does not know, such as "Bytes", the library would
	// answer 416.
	unit, ranges, _ := strings.Cut(r.Header.Get("Range"), "=")
	several := strings.Count(ranges, ",")
	if strings.EqualFold(unit, "bytes") && several < maxRanges && (several == 0 || r.Method != http.MethodHead) {
		r.Header.Set("Range", "bytes="+ranges)
	} else {
		ranges = ""
		r.Header.Del("Range")
	}
	if obj, ok := content.(objectstore.Object); ok {
		obj.Expect(spansOf(ranges, obj.Info().SizeBytes)...)
	}
	source := &watchedContent{content: content}
	answer := &contentWriter{ResponseWriter: w}
	http.ServeContent(answer, r, "", modified, source)
	failure := source.end()
	if failure == nil {
		answer.begin()
		return nil
	}
	if answer.pending != 0 {
		answer.forgetContent()
	}
	return fmt.Errorf("stream content: %w", failure)
}

// spansOf returns the spans that the library will read for these ranges of content of the given size. It skips
// ranges that the library refuses. No spans means the whole content.
func spansOf(ranges string, size int64) []objectstore.Span {
	var spans []objectstore.Span
	var total int64
	for text := range strings.SplitSeq(ranges, ",") {
		first, last, ok := strings.Cut(textproto.TrimString(text), "-")
		from, noFrom := strconv.ParseInt(textproto.TrimString(first), 10, 64)
		to, noTo := strconv.ParseInt(textproto.TrimString(last), 10, 64)
		switch {
		case !ok || noFrom != nil && noTo != nil:
			continue
		case noFrom != nil: // the last bytes
			from, to = size-min(to, size), size
		case noTo != nil || to >= size:
			to = size
		default:
			to++
		}
		spans = append(spans, objectstore.Span{From: from, To: to})
		total += to - from
	}
	if total > size { // the library sends the whole content
		return nil
	}
	return spans
}

// watchedContent remembers the read error that the library swallows. For several ranges the library reads in a
// goroutine that may outlive the answer, so all reads after end fail.
type watchedContent struct {
	mu      sync.Mutex
	content io.ReadSeeker
	err     error
	ended   bool
}

func (o *watchedContent) Read(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return 0, io.ErrClosedPipe
	}
	n, err := o.content.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		o.err = err
	}
	return n, err
}

func (o *watchedContent) Seek(offset int64, whence int) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return 0, io.ErrClosedPipe
	}
	return o.content.Seek(offset, whence)
}

// end stops all reading and returns the first read error other than io.EOF.
func (o *watchedContent) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	return o.err
}

// contentWriter replaces the library's answers to unsatisfiable ranges and failed preconditions with the API's error
// body. It holds the status back until there is content, because the store may fail at the first read.
type contentWriter struct {
	http.ResponseWriter
	refused bool
	pending int // status not sent yet; 0 when there is none
}

func (w *contentWriter) WriteHeader(status int) {
	sentence := ""
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		sentence = "The requested range is not satisfiable"
	case http.StatusPreconditionFailed:
		sentence = "The precondition of the request does not hold"
	default:
		w.pending = status
		return
	}
	w.refused = true
	contentRange := w.Header().Get("Content-Range") // the header contains the length of the whole content
	w.forgetContent()
	if contentRange != "" {
		w.Header().Set("Content-Range", contentRange)
	}
	writeJSON(w.ResponseWriter, status, errorBody{Error: sentence})
}

// forgetContent removes the headers that describe the content.
func (w *contentWriter) forgetContent() {
	for _, name := range []string{"Accept-Ranges", "Content-Disposition", "Content-Length", "Content-Range",
		"Content-Type", "ETag", "Last-Modified"} {
		w.Header().Del(name)
	}
}

// begin sends the status if it is still pending.
func (w *contentWriter) begin() {
	if w.pending != 0 {
		w.ResponseWriter.WriteHeader(w.pending)
		w.pending = 0
	}
}

func (w *contentWriter) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil
	}
	w.begin()
	return w.ResponseWriter.Write(b)
}
