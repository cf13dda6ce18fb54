package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"cutroom/internal/account"
	"cutroom/internal/fault"
	"cutroom/internal/idempotency"
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

var languageCode = regexp.MustCompile(`^(?i:auto|[a-z]{2,3}([-_][a-z0-9]{2,8})*)$`)

func (s *Server) separate(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	key, err := idempotencyKey(r, user)
	if err != nil {
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
	writeJSON(w, http.StatusAccepted, jobBody{id})
	return nil
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
		return "", errBadRequest.WithDetail("spec is not a JSON object of the documented form").Because(err)
	}
	if spec.SourceLanguageCode == nil {
		return "auto", nil
	}
	if !languageCode.MatchString(*spec.SourceLanguageCode) {
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

type separationStatusBody struct {
	JobID            string     `json:"jobId"`
	Status           string     `json:"status"`
	Progress         int        `json:"progress"`
	ProgressReason   string     `json:"progressReason,omitempty"`
	Error            string     `json:"error,omitempty"`
	Stems            []stemBody `json:"stems"`
	ActualDurationMs *int64     `json:"actualDurationMs,omitempty"`
	QueuePosition    *int64     `json:"queuePosition,omitempty"`
	EstimatedWaitSec *int64     `json:"estimatedWaitSec,omitempty"`
}

func (s *Server) separationStatus(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	st, err := s.o.Separations.Status(r.Context(), user.UserID, r.PathValue("jobId"))
	if err != nil {
		return err
	}
	body := separationStatusBody{JobID: st.JobID, Status: st.State, Progress: st.Progress, Error: st.Error, Stems: []stemBody{}}
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
	return ok(w, body)
}

func (s *Server) stem(w http.ResponseWriter, r *http.Request) error {
	obj, name, err := s.o.Separations.OpenStem(r.Context(), r.PathValue("jobId"), r.PathValue("stemId"), r.URL.Query().Get("token"))
	if err != nil {
		return err
	}
	return serveObject(w, r, obj, name)
}

// serveObject streams a stored object with Range, HEAD and ETag, and closes it.
func serveObject(w http.ResponseWriter, r *http.Request, obj objectstore.Object, fileName string) error {
	defer obj.Close()
	info := obj.Info()
	h := w.Header()
	h.Set("Content-Type", objectstore.ContentType(fileName))
	h.Set("Content-Disposition", `attachment; filename="`+fileName+`"`)
	h.Set("Cache-Control", "private, no-store")
	if info.ETag != "" && h.Get("ETag") == "" {
		h.Set("ETag", `"`+strings.Trim(info.ETag, `"`)+`"`)
	}
	source := &watchedObject{Object: obj}
	http.ServeContent(&rangeErrors{ResponseWriter: w}, r, "", info.ModTime, source)
	if source.err != nil {
		return fmt.Errorf("stream object: %w", source.err)
	}
	return nil
}

// watchedObject remembers the read error that the library swallows.
type watchedObject struct {
	objectstore.Object
	err error
}

func (o *watchedObject) Read(b []byte) (int, error) {
	n, err := o.Object.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		o.err = err
	}
	return n, err
}

// rangeErrors puts the API's error body in place of what the library answers to
// a range that cannot be satisfied or a precondition that does not hold.
type rangeErrors struct {
	http.ResponseWriter
	refused bool
}

func (w *rangeErrors) WriteHeader(status int) {
	sentence := ""
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		sentence = "The requested range is not satisfiable"
	case http.StatusPreconditionFailed:
		sentence = "The precondition of the request does not hold"
	default:
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.refused = true
	for _, name := range []string{"Content-Disposition", "Content-Length", "ETag", "Last-Modified"} {
		w.Header().Del(name)
	}
	writeJSON(w.ResponseWriter, status, errorBody{Error: sentence})
}

func (w *rangeErrors) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}
