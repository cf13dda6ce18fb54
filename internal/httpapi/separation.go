package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"cutroom/internal/account"
	"cutroom/internal/audio"
	"cutroom/internal/fault"
	"cutroom/internal/idempotency"
	"cutroom/internal/job"
	"cutroom/internal/objectstore"
	"cutroom/internal/separation"
)

// idempotencyKey reads the optional header, before the body is: what it breaks
// must not cost an upload. The caller adds the fingerprint of what the request
// asks for.
func idempotencyKey(r *http.Request, user account.Principal) (idempotency.Key, error) {
	v := strings.TrimSpace(r.Header.Get("Idempotency-Key"))
	if len(v) > idempotency.MaxKeyLength || strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' }) {
		return idempotency.Key{}, fault.Invalidf("Idempotency-Key must be at most %d printable ASCII characters", idempotency.MaxKeyLength)
	}
	return idempotency.Key{UserID: user.UserID, Value: v}, nil
}

type jobBody struct {
	JobID string `json:"jobId"`
}

// submitted answers with the id of the job that a request is now.
func submitted(w http.ResponseWriter, r *http.Request, status int, jobID string) error {
	about(r.Context()).jobID = jobID
	writeJSON(w, status, jobBody{jobID})
	return nil
}

// deleteJob cancels and deletes a job, of either kind.
func deleteJob(remove func(ctx context.Context, owner, jobID string) error) userHandler {
	return func(w http.ResponseWriter, r *http.Request, user account.Principal) error {
		if err := remove(r.Context(), user.UserID, r.PathValue("jobId")); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// maxLanguageCode is the length that BCP 47 asks implementations to support, in
// bytes.
const maxLanguageCode = 35

var languageCode = regexp.MustCompile(`^(?i:auto|[a-z]{2,3}([-_][a-z0-9]{2,8})*)$`)

func (s *Server) separate(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	key, err := idempotencyKey(r, user)
	if err != nil {
		return err
	}
	if err := s.o.Separations.Admit(r.Context(), user.UserID, key); err != nil {
		return err
	}
	f, err := s.readForm(r, formRules{
		text:    []string{"spec"},
		isFile:  func(name string) bool { return name == "file" },
		maxBody: s.o.MaxAudioBytes,
		tooBig:  fault.Invalidf("file is larger than the limit of %d MB", s.o.MaxAudioBytes>>20),
		tooLong: fault.Invalidf("a text field is larger than the limit of 1 MB"),
		tooMany: fault.Invalidf("the form has more than %d parts", maxParts),
	})
	if err != nil {
		return err
	}
	defer f.Close()
	file, given := f.files["file"]
	if !given {
		return fault.Invalidf("file is required")
	}
	language, err := separationSpec(f)
	if err != nil {
		return err
	}
	key.Fingerprint = f.fingerprint("separate")
	id, err := s.o.Separations.Submit(r.Context(), user.UserID, separation.Submission{File: file, Language: language}, key)
	if err != nil {
		return err
	}
	return submitted(w, r, http.StatusAccepted, id)
}

// separationSpec reads the form field spec. Unknown and former keys are ignored.
func separationSpec(f *form) (language string, err error) {
	text, given := f.text["spec"]
	if !given {
		return "", fault.Invalidf("spec is required")
	}
	var spec struct {
		SourceLanguageCode *string `json:"sourceLanguageCode"`
	}
	if err := parseObject([]byte(text), &spec); err != nil {
		return "", errBadRequest.WithDetail("spec is not a JSON object of the documented form").WithCause(err)
	}
	if spec.SourceLanguageCode == nil {
		return "auto", nil
	}
	if len(*spec.SourceLanguageCode) > maxLanguageCode || !languageCode.MatchString(*spec.SourceLanguageCode) {
		return "", fault.Invalidf("spec.sourceLanguageCode must be auto or an ISO language code")
	}
	return strings.ToLower(*spec.SourceLanguageCode), nil
}

type stemBody struct {
	StemID     string `json:"stemId"`
	Label      string `json:"label"`
	URL        string `json:"url"`
	DurationMs int64  `json:"durationMs"`
}

// separationBody is what the status and the history of a separation both tell.
type separationBody struct {
	JobID      string `json:"jobId"`
	Status     string `json:"status"`
	Progress   int    `json:"progress"`
	Credits    int64  `json:"credits"`
	Refunded   bool   `json:"refunded"`
	CreatedAt  int64  `json:"createdAt"` // these three in epoch ms
	FinishedAt *int64 `json:"finishedAt"`
	ExpiresAt  *int64 `json:"expiresAt"`
}

type separationHistoryBody struct {
	separationBody
	FileName         string  `json:"fileName"`
	SourceDurationMs int64   `json:"sourceDurationMs"`
	Error            *string `json:"error"`
}

type separationStatusBody struct {
	separationBody
	ProgressReason   string     `json:"progressReason,omitempty"`
	Error            string     `json:"error,omitempty"`
	Stems            []stemBody `json:"stems"`
	ActualDurationMs *int64     `json:"actualDurationMs,omitempty"`
	QueuePosition    *int64     `json:"queuePosition,omitempty"`
	EstimatedWaitSec *int64     `json:"estimatedWaitSec,omitempty"`
	ErrorCode        *string    `json:"errorCode"`
}

func partOfSeparation(st separation.Status) separationBody {
	return separationBody{JobID: st.JobID, Status: st.State, Progress: st.Progress, Credits: st.Credits, Refunded: st.Refunded,
		CreatedAt: st.Created.UnixMilli(), FinishedAt: epochMs(st.Finished), ExpiresAt: epochMs(st.Expires)}
}

func listedSeparation(st separation.Status) separationHistoryBody {
	return separationHistoryBody{partOfSeparation(st), st.FileName, st.DurationMs, orNull(st.Error)}
}

func (s *Server) separationStatus(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	id := r.PathValue("jobId")
	// The queue moves on whoever leaves it.
	topics := []string{job.Topic(id), separation.TopicQueue}
	return s.answerState(w, r, user.UserID, topics, func(ctx context.Context) (state, error) {
		st, err := s.o.Separations.Status(ctx, user.UserID, id)
		if err != nil {
			return state{}, err
		}
		encoded := encode(bodyOfSeparation(st))
		// Links are fresh in every answer; who has older ones hears of it while those
		// are still good for a while.
		var tagged []byte
		rest := encoded
		for _, t := range st.Stems {
			before, after, _ := bytes.Cut(rest, []byte(t.URL))
			tagged, rest = strconv.AppendInt(append(tagged, before...), st.LinkAge, 10), after
		}
		ended := st.State == separation.StateReady || st.State == separation.StateFailed || st.State == separation.StateDisposed
		return state{encoded, weakTag(append(tagged, rest...)), ended}, nil
	})
}

func bodyOfSeparation(st separation.Status) separationStatusBody {
	body := separationStatusBody{separationBody: partOfSeparation(st), Error: st.Error, ErrorCode: orNull(st.ErrorCode),
		Stems: make([]stemBody, 0, len(st.Stems))}
	for _, t := range st.Stems {
		body.Stems = append(body.Stems, stemBody{StemID: t.ID, Label: t.Label, URL: t.URL, DurationMs: t.DurationMs})
	}
	if st.State == separation.StateQueued {
		wait := int64(st.EstimatedWait.Seconds())
		body.ProgressReason, body.QueuePosition, body.EstimatedWaitSec = "queued", &st.QueuePosition, &wait
	}
	if st.State == separation.StateReady || st.State == separation.StateDisposed {
		body.ActualDurationMs = &st.ActualDurationMs
	}
	return body
}

func (s *Server) stem(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	format := query.Get("format")
	if format == "" && query.Has("format") {
		format = "none" // which is refused like any other
	}
	obj, name, err := s.o.Separations.OpenStem(r.Context(), r.PathValue("jobId"), r.PathValue("stemId"), query.Get("token"), format)
	if err != nil {
		return err
	}
	err = serveObject(w, r, obj, name)
	if errors.Is(err, objectstore.ErrNotFound) {
		return separation.ErrNoStem.WithCause(err)
	}
	return err
}

// peaksBody is a waveform in the public audiowaveform format, version 2.
type peaksBody struct {
	Version         int    `json:"version"`
	Channels        int    `json:"channels"`
	SampleRate      int    `json:"sample_rate"`
	SamplesPerPixel int    `json:"samples_per_pixel"`
	Bits            int    `json:"bits"`
	Length          int    `json:"length"`
	Data            []int8 `json:"data"`
}

func bodyOfPeaks(wave audio.Waveform) peaksBody {
	return peaksBody{Version: 2, Channels: 1, SampleRate: wave.SampleRate, SamplesPerPixel: wave.SamplesPerPair,
		Bits: 8, Length: wave.Len(), Data: wave.Pairs}
}

func (s *Server) peaks(w http.ResponseWriter, r *http.Request) error {
	points, query := separation.DefaultPoints, r.URL.Query()
	if query.Has("points") {
		points, _ = strconv.Atoi(query.Get("points")) // 0 is refused as well
	}
	wave, err := s.o.Separations.Peaks(r.Context(), r.PathValue("jobId"), r.PathValue("stemId"), query.Get("token"), points)
	if err != nil {
		return err
	}
	b, err := json.Marshal(bodyOfPeaks(wave))
	if err != nil {
		return err
	}
	if unchanged(w, r, `"`+tagOf(b)+`"`, revalidated) {
		return nil
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(b) // when the connection fails there is nobody left to tell
	return nil
}

// revalidated is the Cache-Control of what never changes while it is there: a
// client keeps it, and asks whether it still is.
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

// maxRanges is how many ranges one request gets. Each is a request to the
// bucket, and players ask for one.
const maxRanges = 4

// serveContent streams content with Range, HEAD and preconditions. If the
// content cannot be read and nothing was sent yet, it returns the error.
func serveContent(w http.ResponseWriter, r *http.Request, modified time.Time, content io.ReadSeeker) error {
	// Ranges in an unknown unit are ignored (RFC 9110, section 14.2), and so are too
	// many of them, or several in a HEAD, whose parts the library would read. The
	// library answers 416 to a unit that it does not know, such as "Bytes".
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

// spansOf returns the spans that the library reads for these ranges of content of
// the given size: nothing that it refuses, and the whole for none.
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
	if total > size { // the library sends the whole
		return nil
	}
	return spans
}

// watchedContent remembers the read error that the library swallows. The library
// reads several ranges in a goroutine of its own, which may outlive the answer:
// after end, nothing reads the content any more.
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

// end stops all reading and returns the first error that was not the end.
func (o *watchedContent) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	return o.err
}

// contentWriter puts the API's error body in place of what the library answers to
// a range that cannot be satisfied or a precondition that does not hold, and
// holds the status back until there is content to go with it: the store may fail
// at the first read.
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
	contentRange := w.Header().Get("Content-Range") // how long the whole is
	w.forgetContent()
	if contentRange != "" {
		w.Header().Set("Content-Range", contentRange)
	}
	writeJSON(w.ResponseWriter, status, errorBody{Error: sentence})
}

// forgetContent drops the headers that describe the content.
func (w *contentWriter) forgetContent() {
	for _, name := range []string{"Accept-Ranges", "Content-Disposition", "Content-Length", "Content-Range", "Content-Type", "ETag", "Last-Modified"} {
		w.Header().Del(name)
	}
}

// begin sends the status if it was not sent yet.
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
