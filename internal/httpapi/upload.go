package httpapi

import (
	"net/http"

	"cutroom/internal/account"
	"cutroom/internal/asset"
)

type uploadURLRequest struct {
	SHA256Hex   string  `json:"sha256Hex"`
	SizeBytes   integer `json:"sizeBytes"`
	Ext         string  `json:"ext"`
	ContentType string  `json:"contentType"`
}

type uploadURLBody struct {
	AssetKey      string  `json:"assetKey"`
	AlreadyExists bool    `json:"alreadyExists"`
	UploadURL     *string `json:"uploadUrl"`
	ExpiresInSec  int64   `json:"expiresInSec"`
}

func (s *Server) uploadURL(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	if !s.o.Assets.Enabled() {
		return asset.ErrDisabled
	}
	var req uploadURLRequest
	if err := decodeJSON(w, r, &req); err != nil {
		return err
	}
	up, err := s.o.Assets.UploadURL(r.Context(), asset.Request{SHA256Hex: req.SHA256Hex, SizeBytes: int64(req.SizeBytes), Ext: req.Ext, ContentType: req.ContentType})
	if err != nil {
		return err
	}
	body := uploadURLBody{AssetKey: up.Key, AlreadyExists: up.AlreadyExists, ExpiresInSec: int64(up.Expires.Seconds())}
	if up.URL != "" {
		body.UploadURL = &up.URL
	}
	return ok(w, body)
}
