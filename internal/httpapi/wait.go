package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/user"
)

// A client waits for a job instead of asking every second: Prefer: wait=N
// (RFC 7240) on a status, with the ETag of what it has seen.
const (
	maxWait    = 30 // seconds
	maxWaiters = 4  // of one user, on one replica
)

// state is what a status endpoint answers at one moment.
type state struct {
	body  []byte // encoded
	tag   string
	ended bool // nothing more will come of the job by itself
}

// answerState answers with the state of a job: at once, or when it differs from the
// one that the client has. A change is announced on one of the topics; while
// nothing changes, nothing is asked of the database.
func (s *Server) answerState(w http.ResponseWriter, r *http.Request, userID string, topics []string,
	read func(context.Context) (state, error)) error {
	seconds := waitFor(r)
	if seconds == 0 || !s.waiters.Take(userID) {
		st, err := read(r.Context())
		if err != nil {
			return err
		}
		return st.answer(w, r)
	}
	defer s.waiters.Give(userID)
	// Before the first look: a change after it is not missed.
	wake, stop := s.o.DB.Listen(append(topics, user.Topic(userID))...)
	defer stop()
	over := time.NewTimer(time.Duration(seconds) * time.Second)
	defer over.Stop()
	for {
		st, err := read(r.Context())
		if err != nil {
			return err
		}
		if !st.worthWaiting(r) || !s.await(r, wake, over.C) {
			waited(w.Header(), seconds)
			return st.answer(w, r)
		}
	}
}

// await waits for a change, and reports whether there may have been one.
func (s *Server) await(r *http.Request, wake <-chan struct{}, over <-chan time.Time) bool {
	began := time.Now()
	defer func() { about(r.Context()).waited += time.Since(began) }()
	select {
	case <-wake:
		return true
	case <-over:
	case <-s.o.Stopping:
	case <-r.Context().Done():
	}
	return false
}

// worthWaiting reports whether the client knows this state already, or, where it
// did not say what it knows, whether the job goes on.
func (st state) worthWaiting(r *http.Request) bool {
	if r.Header.Get("If-None-Match") == "" {
		return !st.ended
	}
	return knows(r, st.tag)
}

// answer sends the state, or 304 where the client has it.
func (st state) answer(w http.ResponseWriter, r *http.Request) error {
	if !unchanged(w, r, st.tag, "no-store") {
		writeEncoded(w, http.StatusOK, st.body)
	}
	return nil
}

// unchanged names by its tag what is to be answered, and reports whether the client
// has it: then 304 is the answer.
func unchanged(w http.ResponseWriter, r *http.Request, tag, cacheControl string) bool {
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", cacheControl)
	known := knows(r, tag)
	if known {
		w.WriteHeader(http.StatusNotModified)
	}
	return known
}

// weakTag is the ETag of an encoded body. It is weak (RFC 9110, 8.8.1): signed links
// differ from answer to answer.
func weakTag(encoded []byte) string {
	return `W/"` + tagOf(bytes.TrimSuffix(encoded, []byte{'\n'})) + `"`
}

// tagOf is what stands in the ETag of these bytes.
func tagOf(b []byte) string {
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// knows reports whether If-None-Match names the tag (RFC 9110, 13.1.2).
func knows(r *http.Request, tag string) bool {
	for _, list := range r.Header.Values("If-None-Match") {
		for t := range strings.SplitSeq(list, ",") {
			if t = strings.TrimSpace(t); t == "*" || strings.TrimPrefix(t, "W/") == strings.TrimPrefix(tag, "W/") {
				return true
			}
		}
	}
	return false
}

// preference is the value of a preference of the request (RFC 7240), "" without it. The
// first of several counts.
func preference(r *http.Request, name string) string {
	for _, list := range r.Header.Values("Prefer") {
		for _, p := range splitHeader(list, ',') {
			given, value, _ := strings.Cut(splitHeader(p, ';')[0], "=")
			if strings.EqualFold(strings.TrimSpace(given), name) {
				return strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
	}
	return ""
}

// strictHandling is the preference that unknown keys are errors.
const strictHandling = "handling=strict"

func prefersStrict(r *http.Request) bool {
	return strings.EqualFold(preference(r, "handling"), "strict")
}

// waitFor is how many seconds the client would rather wait, 0 for none. What is
// not within 1 and maxWait is no preference known here, and ignored as such.
func waitFor(r *http.Request) int {
	n, err := strconv.Atoi(preference(r, "wait"))
	if err != nil || n < 1 || n > maxWait {
		return 0
	}
	return n
}

// waited says that a request to wait was obeyed, beside what else was.
func waited(h http.Header, seconds int) {
	applied := fmt.Sprintf("wait=%d", seconds)
	if other := h.Get("Preference-Applied"); other != "" {
		applied = other + ", " + applied
	}
	h.Set("Preference-Applied", applied)
}
