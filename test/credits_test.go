package test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cutroom/internal/testkit/apitest"
)

func TestCostTable(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t) // balance 3
	for _, tt := range []struct {
		durationMs int64
		credits    int64
	}{
		{0, 1}, {1, 1}, {299999, 1}, {300000, 1}, {301000, 1}, {301001, 2},
		{600000, 2}, {601000, 2}, {601001, 3}, {901000, 3}, {901001, 4}, {3600000, 12},
		// The grace applies once, not to each block.
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

func TestProductsFewestCreditsFirst(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	type product struct {
		ProductID string
		Credits   int
	}
	var got struct{ Products []product }
	u.Get(t, "/api/v2/credits/products").Expect(200).JSON(&got)
	if want := []product{{"credits.10", 10}, {"credits.50", 50}, {"credits.150", 150}}; !slices.Equal(got.Products, want) {
		t.Errorf("products %v", got.Products)
	}
}

// creditPage is the body of GET /credits/history.
type creditPage struct {
	Entries []struct {
		Kind      string
		Credits   int
		JobID     *string
		CreatedAt int64
	}
	NextCursor *string
}

func TestCreditHistoryIsTheLedger(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	for range 4 {
		u.Buy(t, "credits.10")
	}
	var all []string
	sum, path := 0, "/api/v2/credits/history?limit=2"
	for pages := 0; ; pages++ {
		var page creditPage
		u.Get(t, path).Expect(200).JSON(&page)
		for _, e := range page.Entries {
			all = append(all, e.Kind)
			sum += e.Credits
		}
		if page.NextCursor == nil {
			break
		}
		if pages == 0 {
			// A new entry precedes the first page, and does not change later pages.
			u.Buy(t, "credits.50")
		}
		if len(page.Entries) != 2 || pages > 3 {
			t.Fatalf("page %d: %+v", pages, page)
		}
		path = "/api/v2/credits/history?limit=2&cursor=" + *page.NextCursor
	}
	if want := []string{"purchase", "purchase", "purchase", "purchase", "signup"}; !slices.Equal(all, want) || sum != 43 {
		t.Errorf("entries %v, sum %d", all, sum)
	}
	other := apitest.Shared(t).SignIn(t)
	var page creditPage
	other.Get(t, "/api/v2/credits/history").Expect(200).JSON(&page)
	if len(page.Entries) != 1 || page.Entries[0].Kind != "signup" || page.NextCursor != nil {
		t.Errorf("another user sees %+v", page)
	}
}

func TestHistoryPagesAreChecked(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	for _, limit := range []string{"0", "101", "-1", "x", "", "1.5", "%2B5", "99999999999999999999", "5&limit=5"} {
		u.Send(t, apitest.Request{Path: "/api/v2/credits/history?limit=" + limit}).Error(400, "invalid_limit")
	}
	for _, cursor := range []string{"", "x", "MTIz", "MTIzIA", "%00", "MTIzIAA", strings.Repeat("A", 4096), "LTEgYQ"} {
		u.Send(t, apitest.Request{Path: "/api/v2/credits/history?cursor=" + cursor}).Error(400, "invalid_cursor")
	}
	lists := map[string]string{"render": "rnd-1", "separate": "sep-1", "assets": "assets/1.mp4", "credits/history": "signup-1"}
	for list := range lists {
		for of, id := range lists {
			cursor := base64.RawURLEncoding.EncodeToString([]byte("1795363665000 " + id))
			answer := u.Send(t, apitest.Request{Path: "/api/v2/" + list + "?cursor=" + cursor})
			if list == of {
				answer.Expect(200)
			} else {
				answer.Error(400, "invalid_cursor")
			}
		}
	}
}

// spend revokes credits on the command line.
func spend(t testing.TB, u *apitest.User, credits int) {
	t.Helper()
	succeeds(t, u.Server, "credits", "revoke", u.Email, strconv.Itoa(credits), "--reason", "test")
}
