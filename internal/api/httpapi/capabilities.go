package httpapi

import (
	"net/http"
	"slices"
	"time"

	"cutroom/internal/domain/account"
	"cutroom/internal/film/timeline"
	"cutroom/internal/work/events"
)

// GET /capabilities answers with these abilities, which an older server would silently ignore in a request, so apps
// check for them before they offer them. Add one when it works, not before. Those of bucketFeatures need the object
// store.
var (
	features = []string{
		"adjust", "bgm.ducking", "bgm.fade", "bgm.loop", "bgm.voice", "canvas", "canvas.frameRate", "canvas.shortSide", "crop",
		"fadeIn", "fadeOut", "fit.blur", "fit.cover", "loudness", "mirror", "moves", "reverse", "rotate", "smooth",
		"speedPoints", "stems.wav", "transition.dissolve", "transition.fadeBlack", "transition.fadeWhite", "transition.push",
		"transition.slide", "transition.wipe", "volumePoints",
	}
	bucketFeatures = []string{"analysis", "assets.download", "separate.reuse", "separate.v3", "storyboard"}
)

func (s *Server) supportedFeatures() []string {
	names := slices.Clone(features)
	if s.o.Assets.Enabled() {
		names = append(names, bucketFeatures...)
	}
	for _, platform := range []string{events.PlatformA, events.PlatformB} {
		if s.o.Devices.PushTo(platform) {
			names = append(names, "devices."+platform)
		}
	}
	slices.Sort(names)
	return names
}

// limitsBody is what apps may want to check before an upload or a submit.
type limitsBody struct {
	MaxUploadFileSizeMB     int64  `json:"maxUploadFileSizeMb"`
	MaxSeparationAudioMB    int64  `json:"maxSeparationAudioMb"`
	MaxSegments             int    `json:"maxSegments"`
	MaxBgmClips             int    `json:"maxBgmClips"`
	MaxSeparationDirectives int    `json:"maxSeparationDirectives"`
	MaxWaitingJobs          *int64 `json:"maxWaitingJobs"` // null without a limit
	RenderOutputTTLHours    int64  `json:"renderOutputTtlHours"`
	MaxRenderGigapixels     int64  `json:"maxRenderGigapixels"`
}

type capabilitiesBody struct {
	Features []string   `json:"features"`
	Limits   limitsBody `json:"limits"`
}

func (s *Server) capabilities(w http.ResponseWriter, _ *http.Request, _ account.Principal) error {
	return ok(w, capabilitiesBody{Features: s.supportedFeatures(), Limits: limitsBody{
		MaxUploadFileSizeMB: s.o.MaxUploadBytes >> 20, MaxSeparationAudioMB: s.o.MaxAudioBytes >> 20,
		MaxSegments: timeline.MaxSegments, MaxBgmClips: timeline.MaxClips, MaxSeparationDirectives: timeline.MaxDirectives,
		MaxWaitingJobs:       orNull(s.o.Quota.Max.WaitingJobs),
		RenderOutputTTLHours: int64(s.o.RenderOutputTTL / time.Hour), MaxRenderGigapixels: s.o.MaxRenderPixels / 1e9,
	}})
}
