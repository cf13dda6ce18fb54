package httpapi

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"cutroom/internal/account"
	"cutroom/internal/asset"
	"cutroom/internal/fault"
	"cutroom/internal/idempotency"
	"cutroom/internal/separation"
)

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
	body, err := readObject(w, r, &req)
	if err != nil {
		return err
	}
	ref, err := req.reference()
	if err != nil {
		return err
	}
	key.Fingerprint = digest("separate/v3", string(body))
	id, reused, err := s.o.Separations.SubmitReference(r.Context(), user.UserID, ref, key)
	return submitted(w, r, http.StatusAccepted, id, separateV3Body{id, reused}, err)
}
