package test

import (
	"fmt"
	"testing"

	"cutroom/internal/apitest"
)

func TestCostTable(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t) // balance 3
	for _, tt := range []struct {
		durationMs int64
		credits    int64
	}{
		{0, 1}, {1, 1}, {299999, 1}, {300000, 1}, {301000, 1}, {301001, 2},
		{600000, 2}, {601000, 2}, {601001, 3}, {901000, 3}, {901001, 4}, {3600000, 12},
		// The grace does not add up over the blocks.
		{3601000, 12}, {3601001, 13}, {9223372036854775807, 30744573456183},
	} {
		var got struct {
			DurationMs, Credits, Balance int64
			Sufficient                   bool
		}
		u.Get(t, fmt.Sprintf("/api/v2/credits/cost?durationMs=%d", tt.durationMs)).Expect(200).JSON(&got)
		if got.DurationMs != tt.durationMs || got.Credits != tt.credits || got.Balance != 3 || got.Sufficient != (tt.credits <= 3) {
			t.Errorf("%d ms: %+v, want %d credits", tt.durationMs, got, tt.credits)
		}
	}
}

func TestCostErrors(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	for query, code := range map[string]string{
		"":                                 "missing_duration_ms",
		"?durationMs=":                     "missing_duration_ms",
		"?durationMs=abc":                  "missing_duration_ms",
		"?durationMs=1.5":                  "missing_duration_ms",
		"?durationMs=1e3":                  "missing_duration_ms",
		"?durationMs=0x10":                 "missing_duration_ms",
		"?durationMs=1%202":                "missing_duration_ms",
		"?durationMs=9223372036854775808":  "missing_duration_ms",
		"?durationMs=99999999999999999999": "missing_duration_ms",
		"?durationMs=NaN":                  "missing_duration_ms",
		"?duration=5":                      "missing_duration_ms",
		"?durationMs=%00":                  "missing_duration_ms",
		"?durationMs=-1":                   "duration_ms_negative",
		"?durationMs=-300000":              "duration_ms_negative",
		"?durationMs=-9223372036854775808": "duration_ms_negative",
	} {
		u.Send(t, apitest.Request{Path: "/api/v2/credits/cost" + query}).Error(400, code)
	}
}
