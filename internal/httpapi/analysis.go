package httpapi

import (
	"net/http"

	"cutroom/internal/account"
	"cutroom/internal/analysis"
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
	points := audio.DefaultPoints
	if req.Points != nil {
		points = int(*req.Points)
	}
	found, err := s.o.Analyses.Get(r.Context(), who.UserID, req.AssetKey, points)
	if err != nil {
		return err
	}
	return ok(w, bodyOfAnalysis(found))
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
