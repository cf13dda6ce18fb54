package test

import (
	"encoding/json"
	"slices"
	"testing"

	"cutroom/internal/apitest"
)

func TestCapabilities(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	var body struct {
		Features []string
		Limits   json.RawMessage
	}
	u.Get(t, "/api/v2/capabilities").Expect(200).JSON(&body)
	if body.Features == nil || !slices.IsSorted(body.Features) {
		t.Errorf("features %q are not a sorted list", body.Features)
	}
	const limits = `{"maxUploadFileSizeMb":500,"maxSeparationAudioMb":100,"maxSegments":200,"maxBgmClips":64,"maxSeparationDirectives":64,` +
		`"maxWaitingJobs":null,"renderOutputTtlHours":24,"maxRenderGigapixels":1344}`
	if string(body.Limits) != limits {
		t.Errorf("limits\n%s, want\n%s", body.Limits, limits)
	}
	u.Server.Do(t, apitest.Request{Path: "/api/v2/capabilities"}).Error(401, "missing_token")
}
