package fake

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// apply spoils one call. It panics with http.ErrAbortHandler where the fault
// is a broken connection, as net/http asks for.
func (rule *activeRule) apply(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	switch rule.Kind {
	case KindCut:
		next(&cutWriter{ResponseWriter: w, limit: rule.SizeBytes}, r)
		panic(http.ErrAbortHandler)
	case KindSlow:
		next(&slowWriter{ResponseWriter: w, r: r, perSec: max(rule.BytesPerSec, 0), stop: rule.cleared}, r)
		return
	case KindLength:
		next(&lengthWriter{ResponseWriter: w, delta: rule.LengthDelta}, r)
		return
	case KindDelay:
		rule.wait(r)
		next(w, r)
		return
	case KindCutUpload:
		limit := rule.SizeBytes
		if limit == 0 {
			limit = max(r.ContentLength/2, 1)
		}
		_, _ = io.CopyN(io.Discard, r.Body, limit) // whatever arrived is thrown away
		panic(http.ErrAbortHandler)
	}
	if rule.Effect {
		next(&discardWriter{header: http.Header{}}, r)
	}
	rule.answer(w, r)
}

// answer is for the kinds that never show the real answer.
func (rule *activeRule) answer(w http.ResponseWriter, r *http.Request) {
	for name, value := range rule.Headers {
		w.Header().Set(name, value)
	}
	if rule.Kind == KindClose {
		panic(http.ErrAbortHandler)
	}
	// The body is read to its end: an answer before it would often be lost in a
	// connection reset, and only after it does net/http notice a client leaving.
	_, _ = io.Copy(io.Discard, r.Body)
	switch rule.Kind {
	case KindStall:
		rule.wait(r)
		panic(http.ErrAbortHandler)
	case KindHuge:
		rule.huge(w, r)
	case KindRedirect:
		w.Header().Set("Location", rule.Location)
		w.WriteHeader(orInt(rule.Status, http.StatusFound))
	case KindGarbage:
		writeBody(w, orInt(rule.Status, http.StatusOK), orString(rule.Body, "<html>\x00\xff{{not json"+LeakMarker))
	default:
		writeBody(w, rule.Status, orString(rule.Body, `{"message":"`+LeakMarker+`"}`))
	}
}

// wait blocks for DelayMs, or for ever when that is 0.
func (rule *activeRule) wait(r *http.Request) {
	var after <-chan time.Time
	if rule.DelayMs > 0 {
		timer := time.NewTimer(time.Duration(rule.DelayMs) * time.Millisecond)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-after:
	case <-rule.cleared:
	case <-r.Context().Done():
	}
}

func (rule *activeRule) huge(w http.ResponseWriter, r *http.Request) {
	left := rule.SizeBytes
	if left == 0 {
		left = 256 << 20
	}
	w.Header().Set("Content-Type", "application/json")
	block := make([]byte, 64<<10)
	for i := range block {
		block[i] = 'a'
	}
	_, err := io.WriteString(w, `{"result":"`)
	for left > 0 && err == nil && r.Context().Err() == nil {
		n := min(left, int64(len(block)))
		_, err = w.Write(block[:n])
		left -= n
	}
	if err == nil {
		_, _ = io.WriteString(w, `"}`)
	}
}

func writeBody(w http.ResponseWriter, status int, body string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func orInt(v, fallback int) int {
	if v == 0 {
		return fallback
	}
	return v
}

func orString(v, fallback string) string {
	if v == "" {
		return fallback
	}
	return v
}

// discardWriter swallows an answer the client shall not see.
type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *discardWriter) WriteHeader(int)             {}

// cutWriter lets limit bytes pass and then breaks the connection.
type cutWriter struct {
	http.ResponseWriter
	limit int64
	sent  int64
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if w.limit == 0 {
		w.limit = int64(len(p)) / 2
		if n, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64); err == nil {
			w.limit = n / 2
		}
		w.limit = max(w.limit, 1)
	}
	n := min(int64(len(p)), w.limit-w.sent)
	if n > 0 {
		_, _ = w.ResponseWriter.Write(p[:n])
		w.sent += n
	}
	if w.sent < w.limit {
		return len(p), nil
	}
	// Without the flush the client might not even see the status.
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	return 0, errCut
}

// slowWriter drips the answer, ten times a second.
type slowWriter struct {
	http.ResponseWriter
	r      *http.Request
	perSec int
	stop   <-chan struct{}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	step := max(orInt(w.perSec, 10)/10, 1)
	tick := time.NewTicker(time.Second / time.Duration(min(orInt(w.perSec, 10), 10)))
	defer tick.Stop()
	for sent := 0; sent < len(p); sent += step {
		if _, err := w.ResponseWriter.Write(p[sent:min(sent+step, len(p))]); err != nil {
			return sent, err
		}
		if err := http.NewResponseController(w.ResponseWriter).Flush(); err != nil {
			return sent, err
		}
		select {
		case <-tick.C:
		case <-w.stop:
			step = len(p)
		case <-w.r.Context().Done():
			return sent, w.r.Context().Err()
		}
	}
	return len(p), nil
}

// lengthWriter lies about the length of the answer.
type lengthWriter struct {
	http.ResponseWriter
	delta int64
	lied  bool
	left  int64 // what may still be sent, where the announced length is too small
}

func (w *lengthWriter) WriteHeader(status int) {
	if n, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64); err == nil && !w.lied {
		w.lied = true
		delta := w.delta
		if delta == 0 {
			delta = 100
		}
		w.left = max(n+delta, 0)
		w.Header().Set("Content-Length", strconv.FormatInt(w.left, 10))
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *lengthWriter) Write(p []byte) (int, error) {
	if !w.lied {
		w.WriteHeader(http.StatusOK)
	}
	// net/http refuses a write beyond the announced length as a whole.
	if n := min(int64(len(p)), w.left); n > 0 {
		w.left -= n
		if _, err := w.ResponseWriter.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
