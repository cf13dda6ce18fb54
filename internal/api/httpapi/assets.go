// The endpoints of assets: presigned uploads, whole or in parts, downloads, deletion, the analysis and the storyboard.

package httpapi

import (
	"context"
	"net/http"

	"cutroom/internal/domain/account"
	"cutroom/internal/domain/analysis"
	"cutroom/internal/domain/asset"
	"cutroom/internal/film/audio"
)

type uploadURLRequest struct {
	SHA256Hex   string  `json:"sha256Hex"`
	SizeBytes   integer `json:"sizeBytes"`
	Ext         string  `json:"ext"`
	ContentType string  `json:"contentType"`
	Multipart   bool    `json:"multipart"`
}

type uploadURLBody struct {
	AssetKey      string           `json:"assetKey"`
	AlreadyExists bool             `json:"alreadyExists"`
	UploadURL     *string          `json:"uploadUrl"`
	ExpiresInSec  int64            `json:"expiresInSec"`
	UploadID      string           `json:"uploadId,omitempty"`
	PartSizeBytes int64            `json:"partSizeBytes,omitempty"`
	Parts         []uploadPartBody `json:"parts,omitempty"`
}

type uploadPartBody struct {
	PartNumber int    `json:"partNumber"`
	URL        string `json:"url"`
	SizeBytes  int64  `json:"sizeBytes"`
	Done       bool   `json:"done"`
}

func (s *Server) uploadURL(ctx context.Context, userID string, req uploadURLRequest) (uploadURLBody, error) {
	up, err := s.o.Assets.UploadURL(ctx, asset.Request{SHA256Hex: req.SHA256Hex, SizeBytes: int64(req.SizeBytes), Ext: req.Ext,
		ContentType: req.ContentType, Multipart: req.Multipart, UserID: userID})
	return uploadBody(up), err
}

type completeUploadRequest struct {
	UploadID string `json:"uploadId"`
}

func (s *Server) completeUpload(ctx context.Context, userID string, req completeUploadRequest) (uploadURLBody, error) {
	up, err := s.o.Assets.Complete(ctx, userID, req.UploadID)
	return uploadBody(up), err
}

func uploadBody(up asset.Upload) uploadURLBody {
	body := uploadURLBody{AssetKey: up.Key.String(), AlreadyExists: up.AlreadyExists, UploadURL: orNull(up.URL),
		ExpiresInSec: int64(up.Expires.Seconds()), UploadID: up.ID, PartSizeBytes: up.PartSizeBytes}
	for _, p := range up.Parts {
		body.Parts = append(body.Parts, uploadPartBody{PartNumber: p.Number, URL: p.URL, SizeBytes: p.SizeBytes, Done: p.Done})
	}
	return body
}

type assetBody struct {
	AssetKey    string `json:"assetKey"`
	SizeBytes   int64  `json:"sizeBytes"`
	ContentType string `json:"contentType"`
	CreatedAt   int64  `json:"createdAt"` // this and the next in epoch ms
	LastUsedAt  int64  `json:"lastUsedAt"`
}

func bodyOfAsset(h asset.Held) assetBody {
	return assetBody{AssetKey: h.Key.String(), SizeBytes: h.SizeBytes, ContentType: h.ContentType,
		CreatedAt: h.Created.UnixMilli(), LastUsedAt: h.LastUsed.UnixMilli()}
}

func (s *Server) downloadAsset(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	key, err := asset.ParseName(r.PathValue("name"))
	if err != nil {
		return asset.ErrUnknown
	}
	address, err := s.o.Assets.DownloadURL(r.Context(), user.UserID, key, r.Method == http.MethodHead)
	return redirect(w, address, err)
}

func (s *Server) deleteAsset(w http.ResponseWriter, r *http.Request, user account.Principal) error {
	key, err := asset.ParseName(r.PathValue("name"))
	if err != nil {
		return err
	}
	return noContent(w, s.o.Assets.Release(r.Context(), user.UserID, key))
}

type analysisRequest struct {
	AssetKey string   `json:"assetKey"`
	Points   *integer `json:"points"`
}

// analysisBody uses null for values that an asset without picture or sound does not have.
type analysisBody struct {
	DurationMs     int64      `json:"durationMs"`
	HasVideo       bool       `json:"hasVideo"`
	Width          *int       `json:"width"`
	Height         *int       `json:"height"`
	FrameRate      *float64   `json:"frameRate"`
	HasAudio       bool       `json:"hasAudio"`
	IntegratedLUFS *float64   `json:"integratedLufs"`
	TruePeakDB     *float64   `json:"truePeakDb"`
	OnsetsMs       []int64    `json:"onsetsMs"`
	Peaks          *peaksBody `json:"peaks"`
}

func (s *Server) analyseAsset(w http.ResponseWriter, r *http.Request, who account.Principal) error {
	var req analysisRequest
	if err := readObject(w, r, &req); err != nil {
		return err
	}
	key, err := asset.ParseKey(req.AssetKey)
	if err != nil {
		return err
	}
	points := or(req.Points, audio.DefaultPoints)
	found, err := s.o.Analyses.Get(r.Context(), who.UserID, key, int(points))
	return answer(w, bodyOfAnalysis(found), err)
}

func (s *Server) storyboard(w http.ResponseWriter, r *http.Request, who account.Principal) error {
	name, err := asset.ParseName(r.PathValue("name"))
	if err != nil {
		return asset.ErrUnknown.WithCause(err)
	}
	query := r.URL.Query()
	tiles, valid := queryNumber(query, "frames", analysis.DefaultTiles, 1, analysis.MaxTiles)
	if !valid {
		return analysis.ErrInvalidTiles
	}
	height, valid := queryNumber(query, "height", analysis.DefaultHeight, analysis.MinHeight, analysis.MaxHeight)
	if !valid {
		return analysis.ErrInvalidHeight
	}
	obj, err := s.o.Analyses.Storyboard(r.Context(), who.UserID, name, tiles, height)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", revalidated)
	return serveObject(w, r, obj, name.SHA256+".jpg")
}

func bodyOfAnalysis(a analysis.Analysis) analysisBody {
	body := analysisBody{DurationMs: a.DurationMs}
	if v := a.Video; v != nil {
		body.HasVideo, body.Width, body.Height, body.FrameRate = true, &v.Width, &v.Height, &v.FrameRate
	}
	if t := a.Sound; t != nil {
		peaks := bodyOfPeaks(t.Peaks)
		body.HasAudio, body.IntegratedLUFS, body.TruePeakDB, body.OnsetsMs, body.Peaks = true, t.Loudness, t.TruePeak, t.OnsetsMs, &peaks
	}
	return body
}
