// The endpoints of renders: the two forms of submission, cached inputs, status, history, download and poster.
// render_config.go decodes the edit itself.

package httpapi

import (
	"context"
	"net/http"
	"strings"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/render"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/job"
)

// renderForm reads the form of a render or, if file is not "", of an input that has only that file.
func (s *Server) renderForm(r *http.Request, file string) (*form, error) {
	return s.readForm(r, formRules{
		text: []string{"config", "inputId"}, file: file, maxBody: s.o.MaxUploadBytes,
		tooBig:  fault.Sentencef(fault.TooLarge, "The upload is larger than the limit of %d MB", s.o.MaxUploadBytes>>20),
		tooLong: func(string) *fault.Error { return errTooLarge },
		tooMany: fault.Sentencef(fault.TooLarge, "The form has more than %d parts", maxParts),
	})
}

type inputBody struct {
	InputID        string `json:"inputId"`
	ExpiresAt      int64  `json:"expiresAt"` // epoch ms
	VideoSizeBytes int64  `json:"videoSizeBytes"`
}

func (s *Server) renderInput(w http.ResponseWriter, r *http.Request, user account.Principal, key idempotency.Key) error {
	f, err := s.renderForm(r, "video")
	if err != nil {
		return err
	}
	defer f.Close()
	video, given := f.files["video"]
	if !given {
		return fault.Invalidf("video is required")
	}
	key.Fingerprint = fingerprint("render/inputs", f.hashes())
	in, err := s.o.Renders.SaveInput(r.Context(), user.UserID, video, key)
	return answer(w, inputBody{InputID: in.ID, ExpiresAt: in.Expires.UnixMilli(), VideoSizeBytes: in.SizeBytes}, err)
}

func (s *Server) renderMultipart(w http.ResponseWriter, r *http.Request, user account.Principal, key idempotency.Key) error {
	f, err := s.renderForm(r, "")
	if err != nil {
		return err
	}
	defer f.Close()
	text, given := f.text["config"]
	if !given {
		return fault.Invalidf("config is required")
	}
	var cfg configWire
	if err := (decoder{strict: prefersStrict(r), absent: multipartAbsent}).decode("config", []byte(text), &cfg); err != nil {
		return err
	}
	sub := render.Submission{Files: f.files, InputID: strings.TrimSpace(f.text["inputId"])}
	if !storable(sub.InputID) {
		sub.InputID = "-" // an id that no input has
	}
	if err := cfg.multipart(&sub); err != nil {
		return err
	}
	key.Fingerprint = fingerprint("render", f.hashes(), sub.InputID, meaning(sub.Timeline))
	id, err := s.o.Renders.Submit(r.Context(), user.UserID, sub, key)
	return submitted(w, r, http.StatusOK, id, "/api/v2/render/"+id+"/status", jobBody{id}, err)
}

func (s *Server) renderV3(w http.ResponseWriter, r *http.Request, user account.Principal, key idempotency.Key) error {
	var cfg configWire
	if err := readObject(w, r, &cfg, referenceAbsent...); err != nil {
		return err
	}
	sub, err := cfg.referenced()
	if err != nil {
		return err
	}
	key.Fingerprint = fingerprint("render/v3", meaning(sub.Timeline))
	id, err := s.o.Renders.Submit(r.Context(), user.UserID, sub, key)
	return submitted(w, r, http.StatusOK, id, "/api/v2/render/"+id+"/status", jobBody{id}, err)
}

// filmBody has the fields that the status and the history of a render share.
type filmBody struct {
	JobID      string `json:"jobId"`
	Status     string `json:"status"`
	Progress   int    `json:"progress"`
	OutputKind string `json:"outputKind"`
	Quality    string `json:"quality"`
	DurationMs *int64 `json:"durationMs"`
	SizeBytes  *int64 `json:"sizeBytes"`
	CreatedAt  int64  `json:"createdAt"` // these three in epoch ms
	FinishedAt *int64 `json:"finishedAt"`
	ExpiresAt  *int64 `json:"expiresAt"`
}

type renderStatusBody struct {
	filmBody
	ProgressReason string  `json:"progressReason,omitempty"`
	Error          string  `json:"error,omitempty"`
	Field          string  `json:"field,omitempty"`
	ErrorCode      *string `json:"errorCode"`
}

type renderHistoryBody struct {
	filmBody
	Error *string `json:"error"`
}

func bodyOfFilm(st render.Status) filmBody {
	return filmBody{JobID: st.JobID, Status: st.State, Progress: st.Progress, OutputKind: st.OutputKind, Quality: st.Quality,
		DurationMs: orNull(st.DurationMs), SizeBytes: orNull(st.SizeBytes),
		CreatedAt: st.Created.UnixMilli(), FinishedAt: epochMs(st.Finished), ExpiresAt: epochMs(st.Expires)}
}

func listedRender(st render.Status) renderHistoryBody {
	return renderHistoryBody{bodyOfFilm(st), orNull(st.Error)}
}

func (s *Server) renderStatus(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	id := r.PathValue("jobId")
	return s.answerState(w, r, user.UserID, []string{job.Topic(id)}, func(ctx context.Context) (state, error) {
		st, err := s.o.Renders.Status(ctx, user.UserID, id)
		if err != nil {
			return state{}, err
		}
		body := renderStatusBody{filmBody: bodyOfFilm(st), Error: st.Error, Field: fault.FieldOf(st.Error), ErrorCode: orNull(st.ErrorCode)}
		if st.State == render.StatePending {
			body.ProgressReason = "queued"
		}
		encoded := encode(body)
		return state{encoded, weakTag(encoded), st.State == render.StateCompleted || st.State == render.StateFailed}, nil
	})
}

func (s *Server) renderDownload(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	d, err := s.o.Renders.Open(r.Context(), user.UserID, r.PathValue("jobId"), r.Method == http.MethodHead)
	if err != nil {
		return err
	}
	if d.RedirectURL != "" {
		return redirect(w, d.RedirectURL, nil)
	}
	w.Header().Set("ETag", `"`+d.ETag+`"`)
	return serveObject(w, r, d.Object, d.FileName)
}

// redirect answers with a presigned address, or returns the domain's error.
func redirect(w http.ResponseWriter, address string, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusFound)
	return nil
}

func (s *Server) renderPoster(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	obj, name, err := s.o.Renders.Poster(r.Context(), user.UserID, r.PathValue("jobId"))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", revalidated)
	return serveObject(w, r, obj, name)
}
