package httpapi

import (
	"net/http"
	"slices"
	"time"

	"cutroom/internal/account"
	"cutroom/internal/events"
	"cutroom/internal/timeline"
)

// feature is an ability that an older server would silently ignore in a request, so apps check for it before
// they offer it.
type feature struct {
	name string
	// works reports whether this configuration supports the feature.
	works func(o *Options) bool
}

// features is the list that GET /capabilities answers from. Add a feature when it
// works, not before.
var features = []feature{
	{"analysis", needsBucket}, {"assets.download", needsBucket}, {"bgm.ducking", always}, {"bgm.fade", always}, {"bgm.loop", always}, {"bgm.voice", always},
	{"canvas", always}, {"canvas.frameRate", always}, {"canvas.shortSide", always}, {"fit.blur", always}, {"fit.cover", always}, {"loudness", always},
	{"separate.reuse", needsBucket}, {"separate.v3", needsBucket}, {"stems.wav", always}, {"storyboard", needsBucket},
	{"transition.dissolve", always}, {"transition.fadeBlack", always}, {"transition.fadeWhite", always},
	{"transition.push", always}, {"transition.slide", always}, {"transition.wipe", always},
	{"fadeIn", always}, {"fadeOut", always}, {"volumePoints", always},
	{"devices.platform_a", func(o *Options) bool { return o.Devices.PushTo(events.PlatformA) }},
	{"devices.platform_b", func(o *Options) bool { return o.Devices.PushTo(events.PlatformB) }},
}

func always(*Options) bool { return true }

func needsBucket(o *Options) bool { return o.Assets.Enabled() }

func supportedFeatures(o *Options) []string {
	names := make([]string, 0, len(features))
	for _, f := range features {
		if f.works(o) {
			names = append(names, f.name)
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
	return ok(w, capabilitiesBody{Features: supportedFeatures(&s.o), Limits: limitsBody{
		MaxUploadFileSizeMB: s.o.MaxUploadBytes >> 20, MaxSeparationAudioMB: s.o.MaxAudioBytes >> 20,
		MaxSegments: timeline.MaxSegments, MaxBgmClips: timeline.MaxClips, MaxSeparationDirectives: timeline.MaxDirectives,
		MaxWaitingJobs:       positive(s.o.Quota.Max.WaitingJobs),
		RenderOutputTTLHours: int64(s.o.RenderOutputTTL / time.Hour), MaxRenderGigapixels: s.o.MaxRenderPixels / 1e9,
	}})
}
