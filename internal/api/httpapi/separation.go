// The endpoints of separations: the two forms of submission, status with links to the stems, history, stems and their
// waveforms.

package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/separation"
	"cutroom/internal/film/audio"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/job"
)

// maxLanguageCode is the length that BCP 47 asks implementations to support, in bytes.
const maxLanguageCode = 35

var languageCode = regexp.MustCompile(`^(?i:auto|[a-z]{2,3}([-_][a-z0-9]{2,8})*)$`)

func (s *Server) separate(w http.ResponseWriter, r *http.Request, user account.Principal, key idempotency.Key) error {
	if err := s.o.Separations.Admit(r.Context(), user.UserID, key); err != nil {
		return err
	}
	f, err := s.readForm(r, formRules{
		text:    []string{"spec"},
		file:    "file",
		maxBody: s.o.MaxAudioBytes,
		tooBig:  fault.Invalidf("file is larger than the limit of %d MB", s.o.MaxAudioBytes>>20),
		tooLong: func(name string) *fault.Error {
			return fault.Invalidf("%s: the text is larger than the limit of 1 MB", name)
		},
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
	language, err := separationSpec(r, f)
	if err != nil {
		return err
	}
	key.Fingerprint = fingerprint("separate", f.hashes(), language)
	id, err := s.o.Separations.Submit(r.Context(), user.UserID, file, language, key)
	return submitted(w, r, http.StatusAccepted, id, "/api/v2/separate/"+id, jobBody{id}, err)
}

// separationSpec parses the form field spec. It ignores unknown and former keys, unless the client asks for strict
// handling.
func separationSpec(r *http.Request, f *form) (language string, err error) {
	text, given := f.text["spec"]
	if !given {
		return "", fault.Invalidf("spec is required")
	}
	var spec struct {
		SourceLanguageCode *string `json:"sourceLanguageCode"`
	}
	if err := asBadRequest((decoder{strict: prefersStrict(r), prefix: "spec"}).decode("spec", []byte(text), &spec)); err != nil {
		return "", err
	}
	return readLanguage("spec.sourceLanguageCode", spec.SourceLanguageCode)
}

// readLanguage checks an optional language code; field is its name in errors.
func readLanguage(field string, code *string) (string, error) {
	if code == nil {
		return "auto", nil
	}
	if len(*code) > maxLanguageCode || !languageCode.MatchString(*code) {
		return "", fault.Invalidf("%s must be auto or an ISO language code", field)
	}
	return strings.ToLower(*code), nil
}

type stemBody struct {
	StemID     string `json:"stemId"`
	Label      string `json:"label"`
	URL        string `json:"url"`
	DurationMs int64  `json:"durationMs"`
}

// separationBody has the fields that status and history share.
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
	// The queue position changes whenever any job leaves the queue.
	topics := []string{job.Topic(id), separation.TopicQueue}
	return s.answerState(w, r, user.UserID, topics, func(ctx context.Context) (state, error) {
		st, err := s.o.Separations.Status(ctx, user.UserID, id)
		if err != nil {
			return state{}, err
		}
		body := bodyOfSeparation(st)
		ended := st.State == separation.StateReady || st.State == separation.StateFailed || st.State == separation.StateDisposed
		return state{encode(body), weakTag(encode(withoutLinks(body, st.LinkAge))), ended}, nil
	})
}

// withoutLinks replaces each link by its age, for the ETag. Every answer has fresh links, which must not change the
// ETag while the client's links are still valid.
func withoutLinks(body separationStatusBody, age int64) separationStatusBody {
	body.Stems = slices.Clone(body.Stems)
	for i := range body.Stems {
		body.Stems[i].URL = strconv.FormatInt(age, 10)
	}
	return body
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
	format := only(query, "format")
	if format == "" && query.Has("format") {
		format = "none" // refused like any unknown format
	}
	obj, name, err := s.o.Separations.OpenStem(r.Context(), r.PathValue("jobId"), r.PathValue("stemId"), only(query, "token"), format)
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
	query := r.URL.Query()
	points, valid := queryNumber(query, "points", audio.DefaultPoints, audio.MinPoints, audio.MaxPoints)
	if !valid {
		points = 0 // refused after the token
	}
	wave, err := s.o.Separations.Peaks(r.Context(), r.PathValue("jobId"), r.PathValue("stemId"), only(query, "token"), points)
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
	_, _ = w.Write(b) // after a failed write nobody can receive the error
	return nil
}

type separateV3Request struct {
	SourceAssetKey     string  `json:"sourceAssetKey"`
	TrimStartMs        integer `json:"trimStartMs"`
	TrimEndMs          integer `json:"trimEndMs"`
	SourceLanguageCode *string `json:"sourceLanguageCode"`
	FileName           *string `json:"fileName"`
	Again              *bool   `json:"again"`
}

// maxFileName bounds the name that a client gives a separation by reference, in characters.
const maxFileName = 200

type separateV3Body struct {
	JobID  string `json:"jobId"`
	Reused bool   `json:"reused"`
}

func (q separateV3Request) reference() (separation.Reference, error) {
	source, err := asset.ParseKey(q.SourceAssetKey)
	switch {
	case err != nil:
		return separation.Reference{}, err
	case q.TrimStartMs < 0:
		return separation.Reference{}, fault.Invalidf("trimStartMs must be >= 0")
	case q.TrimEndMs < 0:
		return separation.Reference{}, fault.Invalidf("trimEndMs must be >= 0, 0 for the end")
	case q.TrimEndMs > 0 && q.TrimEndMs <= q.TrimStartMs:
		return separation.Reference{}, fault.Invalidf("trimEndMs must be > trimStartMs, or 0 for the end")
	}
	name := strings.TrimSpace(or(q.FileName, ""))
	if utf8.RuneCountInString(name) > maxFileName {
		return separation.Reference{}, fault.Invalidf("fileName must have at most %d characters", maxFileName)
	}
	code, err := readLanguage("sourceLanguageCode", q.SourceLanguageCode)
	return separation.Reference{Source: source, Language: code, From: ms(q.TrimStartMs), To: ms(q.TrimEndMs),
		FileName: name, Again: or(q.Again, false)}, err
}

func (s *Server) separateV3(w http.ResponseWriter, r *http.Request, user account.Principal, key idempotency.Key) error {
	var req separateV3Request
	if err := readObject(w, r, &req); err != nil {
		return err
	}
	ref, err := req.reference()
	if err != nil {
		return err
	}
	key.Fingerprint = fingerprint("separate/v3", ref.Source.String(), ref.From, ref.To, ref.Language, ref.FileName, ref.Again)
	id, reused, err := s.o.Separations.SubmitReference(r.Context(), user.UserID, ref, key)
	return submitted(w, r, http.StatusAccepted, id, "/api/v2/separate/"+id, separateV3Body{id, reused}, err)
}
