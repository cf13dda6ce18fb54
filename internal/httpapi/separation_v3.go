package httpapi

import (
	"net/http"

	"cutroom/internal/account"
	"cutroom/internal/asset"
	"cutroom/internal/fault"
	"cutroom/internal/separation"
)

type separateV3Request struct {
	SourceAssetKey     string  `json:"sourceAssetKey"`
	TrimStartMs        integer `json:"trimStartMs"`
	TrimEndMs          integer `json:"trimEndMs"`
	SourceLanguageCode *string `json:"sourceLanguageCode"`
}

func (q separateV3Request) reference() (separation.Reference, error) {
	switch {
	case q.TrimStartMs < 0:
		return separation.Reference{}, fault.Invalidf("trimStartMs must be >= 0")
	case q.TrimEndMs < 0:
		return separation.Reference{}, fault.Invalidf("trimEndMs must be >= 0, 0 for the end")
	case q.TrimEndMs > 0 && q.TrimEndMs <= q.TrimStartMs:
		return separation.Reference{}, fault.Invalidf("trimEndMs must be > trimStartMs, or 0 for the end")
	}
	code, err := readLanguage("sourceLanguageCode", q.SourceLanguageCode)
	return separation.Reference{AssetKey: q.SourceAssetKey, Language: code, From: ms(q.TrimStartMs), To: ms(q.TrimEndMs)}, err
}

func (s *Server) separateV3(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	key, err := idempotencyKey(r, user)
	if err != nil {
		return err
	}
	var req separateV3Request
	body, err := readObject(w, r, &req)
	if err != nil {
		return err
	}
	if _, err := asset.ParseKey(req.SourceAssetKey); err != nil {
		return asset.ErrInvalidKey.WithCause(err)
	}
	ref, err := req.reference()
	if err != nil {
		return err
	}
	if err := s.o.Separations.Admit(r.Context(), user.UserID, key); err != nil {
		return err
	}
	key.Fingerprint = digest("separate/v3", string(body))
	id, err := s.o.Separations.SubmitReference(r.Context(), user.UserID, ref, key)
	if err != nil {
		return err
	}
	return submitted(w, r, http.StatusAccepted, id)
}
