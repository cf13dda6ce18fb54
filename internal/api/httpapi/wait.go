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

	"cutroom/internal/work/user"
)

// Instead of polling every second, a client can wait for a change: it sends Prefer: wait=N (RFC 7240) to a status
// endpoint, with the ETag of the last answer.
const (
	maxWait    = 30 // seconds
	maxWaiters = 4  // of one user, on one replica
)

// state is the answer of a status endpoint at one moment.
type state struct {
	body  []byte // encoded
	tag   string
	ended bool // the job will not change by itself
}

// answerState answers with the state of a job, at once or when it differs from the client's. The topics announce
// changes.
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
	// Listen before the first read, so that no change is missed.
	wake, stop := s.o.DB.Listen(append(topics, user.Topic(userID))...)
	defer stop()
	over := time.After(time.Duration(seconds) * time.Second)
	for {
		st, err := read(r.Context())
		if err != nil {
			return err
		}
		if !st.worthWaiting(r) || !s.await(r, wake, over) {
			const header = "Preference-Applied"
			applied := append(w.Header().Values(header), fmt.Sprintf("wait=%d", seconds))
			w.Header().Set(header, strings.Join(applied, ", "))
			return st.answer(w, r)
		}
	}
}

// await waits for a change. It reports false if the wait ended for any other reason.
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

// worthWaiting reports whether the client already has this state or, if it sent no ETag, whether the job has not ended.
func (st state) worthWaiting(r *http.Request) bool {
	if r.Header.Get("If-None-Match") == "" {
		return !st.ended
	}
	return knows(r, st.tag)
}

// answer sends the state, or 304 if the client already has it.
func (st state) answer(w http.ResponseWriter, r *http.Request) error {
	if !unchanged(w, r, st.tag, "no-store") {
		writeEncoded(w, http.StatusOK, st.body)
	}
	return nil
}

// unchanged sets the ETag of the answer. If the client has it already, unchanged answers 304 and returns true.
func unchanged(w http.ResponseWriter, r *http.Request, tag, cacheControl string) bool {
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", cacheControl)
	known := knows(r, tag)
	if known {
		w.WriteHeader(http.StatusNotModified)
	}
	return known
}

// weakTag is the ETag of an encoded body. It is weak (RFC 9110, 8.8.1), because signed links differ between answers.
func weakTag(encoded []byte) string {
	return `W/"` + tagOf(bytes.TrimSuffix(encoded, []byte{'\n'})) + `"`
}

// tagOf returns an ETag for these bytes, without quotes.
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

// waitFor returns how many seconds the client wants to wait, 0 for a missing preference or a value outside
// 1..maxWait.
func waitFor(r *http.Request) int {
	n, err := strconv.Atoi(preference(r, "wait"))
	if err != nil || n < 1 || n > maxWait {
		return 0
	}
	return n
}
