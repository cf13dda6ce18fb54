package httpapi

import (
	"time"

	"cutroom/internal/admin"
)

// The bodies under /api/v2/admin. Unlike everywhere else, a time is an
// ISO-8601 string in UTC here, and a date is a day in UTC.

type overviewBody struct {
	TotalUsers            int64 `json:"totalUsers"`
	TotalRenders          int64 `json:"totalRenders"`
	TotalSeparations      int64 `json:"totalSeparations"`
	TotalJobs             int64 `json:"totalJobs"`
	TotalSourceDurationMs int64 `json:"totalSourceDurationMs"`
	ActiveUsersLast7Days  int64 `json:"activeUsersLast7Days"`
}

type dailyBody struct {
	Date                  string `json:"date"`
	RenderCount           int64  `json:"renderCount"`
	SeparationCount       int64  `json:"separationCount"`
	TotalSourceDurationMs int64  `json:"totalSourceDurationMs"`
}

func dailyOf(d admin.Daily) dailyBody {
	return dailyBody{Date: d.Day.String(), RenderCount: d.Renders, SeparationCount: d.Separations,
		TotalSourceDurationMs: d.SourceDurationMs}
}

type signupsBody struct {
	Date           string `json:"date"`
	ProviderACount int64  `json:"providerACount"`
	ProviderBCount int64  `json:"providerBCount"`
}

func signupsOf(s admin.Signups) signupsBody {
	return signupsBody{Date: s.Day.String(), ProviderACount: s.ProviderA, ProviderBCount: s.ProviderB}
}

type callsBody struct {
	Date         string  `json:"date"`
	Provider     string  `json:"provider"`
	Endpoint     string  `json:"endpoint"`
	CallCount    int64   `json:"callCount"`
	FailureCount int64   `json:"failureCount"`
	FailureRate  float64 `json:"failureRate"` // 0 to 1
	P95LatencyMs int64   `json:"p95LatencyMs"`
}

func callsOf(c admin.Calls) callsBody {
	return callsBody{Date: c.Day.String(), Provider: c.Provider, Endpoint: c.Endpoint, CallCount: c.Count,
		FailureCount: c.Failures, FailureRate: c.FailureRate(), P95LatencyMs: c.P95Ms}
}

type bucketBody struct {
	Bucket string `json:"bucket"`
	Count  int64  `json:"count"`
}

type adminUsersBody struct {
	Users []adminUserBody `json:"users"`
	Total int64           `json:"total"`
}

type adminUserBody struct {
	UserID                string  `json:"userId"`
	Email                 *string `json:"email"`
	Name                  *string `json:"name"`
	Provider              string  `json:"provider"`
	Role                  string  `json:"role"`
	Balance               int64   `json:"balance"`
	TotalRenders          int64   `json:"totalRenders"`
	TotalSeparations      int64   `json:"totalSeparations"`
	TotalSourceDurationMs int64   `json:"totalSourceDurationMs"`
	CreatedAt             string  `json:"createdAt"`
	LastActivityAt        string  `json:"lastActivityAt"`
}

func adminUserOf(u admin.User) adminUserBody {
	return adminUserBody{UserID: u.ID, Email: optional(u.Email), Name: optional(u.Name), Provider: u.Provider, Role: u.Role,
		Balance: u.Balance, TotalRenders: u.Renders, TotalSeparations: u.Separations,
		TotalSourceDurationMs: u.SourceDurationMs, CreatedAt: isoTime(u.Created), LastActivityAt: isoTime(u.LastActive)}
}

type userJobsBody struct {
	Jobs  []userJobBody `json:"jobs"`
	Total int64         `json:"total"`
}

type userJobBody struct {
	JobID            string  `json:"jobId"`
	JobType          string  `json:"jobType"`
	Status           string  `json:"status"`
	SourceDurationMs int64   `json:"sourceDurationMs"`
	CreatedAt        string  `json:"createdAt"`
	FinishedAt       *string `json:"finishedAt"`
	Error            *string `json:"error"`
}

func userJobOf(j admin.UserJob) userJobBody {
	body := userJobBody{JobID: j.ID, JobType: j.Type, Status: j.Status, SourceDurationMs: j.SourceDurationMs,
		CreatedAt: isoTime(j.Created), Error: optional(j.Error)}
	if !j.Finished.IsZero() {
		body.FinishedAt = optional(isoTime(j.Finished))
	}
	return body
}

type activeJobBody struct {
	JobType          string  `json:"jobType"`
	JobID            string  `json:"jobId"`
	Status           string  `json:"status"`
	UserID           string  `json:"userId"`
	UserEmail        *string `json:"userEmail"`
	SourceDurationMs int64   `json:"sourceDurationMs"`
	CreatedAt        string  `json:"createdAt"`
	Progress         int     `json:"progress"` // percent
}

func activeJobOf(j admin.ActiveJob) activeJobBody {
	return activeJobBody{JobType: j.Type, JobID: j.ID, Status: j.Status, UserID: j.UserID, UserEmail: optional(j.UserEmail),
		SourceDurationMs: j.SourceDurationMs, CreatedAt: isoTime(j.Created), Progress: j.Progress}
}

type breakdownBody struct {
	JobType    string `json:"jobType"`
	Total      int64  `json:"total"`
	Succeeded  int64  `json:"succeeded"`
	Failed     int64  `json:"failed"`
	InProgress int64  `json:"inProgress"`
}

type revenueBody struct {
	PayingUsers            int64 `json:"payingUsers"`
	PurchaseCount          int64 `json:"purchaseCount"`
	CreditsSold            int64 `json:"creditsSold"`
	PurchaseCount30d       int64 `json:"purchaseCount30d"`
	CreditsSold30d         int64 `json:"creditsSold30d"`
	PlatformAPurchaseCount int64 `json:"platformAPurchaseCount"`
	PlatformBPurchaseCount int64 `json:"platformBPurchaseCount"`
	PlatformACredits       int64 `json:"platformACredits"`
	PlatformBCredits       int64 `json:"platformBCredits"`
	AdminGrantedCredits    int64 `json:"adminGrantedCredits"`
}

type dailyRevenueBody struct {
	Date             string `json:"date"`
	PlatformACredits int64  `json:"platformACredits"`
	PlatformBCredits int64  `json:"platformBCredits"`
	PurchaseCount    int64  `json:"purchaseCount"`
}

func dailyRevenueOf(d admin.DailyRevenue) dailyRevenueBody {
	return dailyRevenueBody{Date: d.Day.String(), PlatformACredits: d.PlatformACredits,
		PlatformBCredits: d.PlatformBCredits, PurchaseCount: d.Purchases}
}

// isoTime writes a time to the millisecond, always in the same width, so that
// the strings sort as the times do.
func isoTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// optional is null for an empty text.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
