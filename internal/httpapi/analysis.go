package httpapi

import (
	"net/http"

	"cutroom/internal/account"
	"cutroom/internal/analysis"
	"cutroom/internal/asset"
	"cutroom/internal/audio"
)

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
	if _, err := readObject(w, r, &req); err != nil {
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
