package fake

import (
	"cmp"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

// apply applies the fault to one call. It panics with http.ErrAbortHandler to break the connection, as net/http
// requires.
func (rule *activeRule) apply(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	real := httptest.NewRecorder()
	switch rule.Kind {
	case KindCut, KindSlow, KindLength:
		next(real, r)
		maps.Copy(w.Header(), real.Header())
		rule.send(w, r, real.Result(), real.Body.Bytes())
		return
	case KindDelay:
		rule.wait(r)
		next(w, r)
		return
	case KindCutUpload:
		_, _ = io.CopyN(io.Discard, r.Body, cmp.Or(rule.SizeBytes, max(r.ContentLength/2, 1))) // discard what arrives
		panic(http.ErrAbortHandler)
	}
	if rule.Effect {
		next(real, r)
	}
	rule.answer(w, r)
}

// send handles the kinds that send the real answer, but damaged or slowly.
func (rule *activeRule) send(w http.ResponseWriter, r *http.Request, real *http.Response, body []byte) {
	if rule.Kind == KindLength {
		// net/http refuses the whole write if it exceeds the announced length.
		announced := max(max(real.ContentLength, int64(len(body)))+cmp.Or(rule.LengthDelta, 100), 0)
		w.Header().Set("Content-Length", strconv.FormatInt(announced, 10))
		body = body[:min(announced, int64(len(body)))]
	}
	w.WriteHeader(real.StatusCode)
	flush := http.NewResponseController(w).Flush
	switch rule.Kind {
	case KindLength:
		_, _ = w.Write(body)
	case KindCut:
		if limit := cmp.Or(rule.SizeBytes, int64(max(len(body)/2, 1))); limit <= int64(len(body)) {
			_, _ = w.Write(body[:limit])
			_ = flush() // otherwise the client might not even see the status
		}
		panic(http.ErrAbortHandler)
	case KindSlow: // a few bytes, ten times a second
		perSec := cmp.Or(max(rule.BytesPerSec, 0), 10)
		step := max(perSec/10, 1)
		tick := time.NewTicker(time.Second / time.Duration(min(perSec, 10)))
		defer tick.Stop()
		for sent := 0; sent < len(body); sent += step {
			if _, err := w.Write(body[sent:min(sent+step, len(body))]); err != nil || flush() != nil {
				return
			}
			select {
			case <-tick.C:
			case <-rule.cleared:
				step = len(body)
			case <-r.Context().Done():
				return
			}
		}
	}
}

// answer handles the kinds that never send the real answer.
func (rule *activeRule) answer(w http.ResponseWriter, r *http.Request) {
	for name, value := range rule.Headers {
		w.Header().Set(name, value)
	}
	if rule.Kind == KindClose {
		panic(http.ErrAbortHandler)
	}
	// Read the whole body first. An earlier answer would often be lost in a connection reset, and net/http notices a
	// disconnecting client only after the body.
	_, _ = io.Copy(io.Discard, r.Body)
	switch rule.Kind {
	case KindStall:
		rule.wait(r)
		panic(http.ErrAbortHandler)
	case KindHuge:
		rule.huge(w)
	case KindRedirect:
		w.Header().Set("Location", rule.Location)
		w.WriteHeader(cmp.Or(rule.Status, http.StatusFound))
	case KindGarbage:
		writeBody(w, cmp.Or(rule.Status, http.StatusOK), cmp.Or(rule.Body, "<html>\x00\xff{{not json"+LeakMarker))
	default:
		if rule.DelayMs > 0 {
			rule.wait(r)
		}
		writeBody(w, rule.Status, cmp.Or(rule.Body, `{"message":"`+LeakMarker+`"}`))
	}
}

// wait blocks for DelayMs, or forever if that is 0.
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

func (rule *activeRule) huge(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, err := io.WriteString(w, `{"result":"`)
	block := strings.Repeat("a", 64<<10)
	for left := cmp.Or(rule.SizeBytes, 256<<20); left > 0 && err == nil; left -= int64(len(block)) {
		_, err = io.WriteString(w, block[:min(left, int64(len(block)))])
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
