package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/account"
	"cutroom/internal/admin"
	"cutroom/internal/fault"
)

// adminRoutes mounts the read-only reports and, where it has an address, the
// web app that shows them.
func (s *Server) adminRoutes() {
	reports := s.o.Admin
	s.handle("GET /api/v2/admin/overview", s.admin(s.adminOverview))
	s.handle("GET /api/v2/admin/stats/daily", s.admin(ranged(reports.Daily, dailyOf)))
	s.handle("GET /api/v2/admin/stats/signups", s.admin(ranged(reports.Signups, signupsOf)))
	s.handle("GET /api/v2/admin/stats/external-calls", s.admin(ranged(reports.ExternalCalls, callsOf)))
	s.handle("GET /api/v2/admin/stats/duration-histogram", s.admin(s.adminHistogram))
	s.handle("GET /api/v2/admin/users", s.admin(s.adminUsers))
	s.handle("GET /api/v2/admin/users/{userId}/jobs", s.admin(s.adminUserJobs))
	s.handle("GET /api/v2/admin/jobs/active", s.admin(s.adminActiveJobs))
	s.handle("GET /api/v2/admin/jobs/status-breakdown", s.admin(s.adminBreakdown))
	s.handle("GET /api/v2/admin/revenue", s.admin(s.adminRevenue))
	s.handle("GET /api/v2/admin/revenue/daily", s.admin(ranged(reports.DailyRevenue, dailyRevenueOf)))
	if s.o.AdminSlug != "" {
		s.adminApp()
	}
}

// The range of days that is answered when none is asked for, and the widest.
const (
	defaultDays = 30
	maxDays     = 90
)

// dateRange reads from (inclusive) and to (exclusive). A missing to is
// tomorrow, so that today is included, and a missing from lies 30 days before
// to; the rules on the range hold for what comes of it.
func dateRange(query url.Values, now time.Time) (admin.Range, error) {
	var from admin.Day
	var err error
	if query.Has("from") {
		if from, err = parseDay(query.Get("from")); err != nil {
			return admin.Range{}, fault.New(fault.Invalid, "invalid_from_date")
		}
	}
	to := admin.DayOf(now) + 1
	if query.Has("to") {
		if to, err = parseDay(query.Get("to")); err != nil {
			return admin.Range{}, fault.New(fault.Invalid, "invalid_to_date")
		}
	}
	if !query.Has("from") {
		from = to - defaultDays
	}
	switch {
	case from >= to:
		return admin.Range{}, fault.New(fault.Invalid, "from_must_be_before_to")
	case to-from > maxDays:
		return admin.Range{}, fault.New(fault.Invalid, "range_too_wide")
	}
	return admin.Range{From: from, To: to}, nil
}

func parseDay(s string) (admin.Day, error) {
	t, err := time.Parse(time.DateOnly, s)
	return admin.DayOf(t), err
}

// The rows of a page, when the client does not say and at most.
const (
	defaultLimit = 50
	maxLimit     = 200
)

func pageOf(query url.Values) (admin.Page, error) {
	page := admin.Page{Limit: defaultLimit}
	var err error
	if query.Has("limit") {
		page.Limit, err = strconv.ParseInt(query.Get("limit"), 10, 64)
		if err != nil || page.Limit < 1 || page.Limit > maxLimit {
			return admin.Page{}, fault.New(fault.Invalid, "invalid_limit")
		}
	}
	if query.Has("offset") {
		page.Offset, err = strconv.ParseInt(query.Get("offset"), 10, 64)
		if err != nil || page.Offset < 0 {
			return admin.Page{}, fault.New(fault.Invalid, "invalid_offset")
		}
	}
	return page, nil
}

// ranged is the endpoint of a report by day.
func ranged[Row, Body any](report func(context.Context, admin.Range) ([]Row, error), wire func(Row) Body) userHandler {
	return func(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
		span, err := dateRange(r.URL.Query(), time.Now())
		if err != nil {
			return err
		}
		rows, err := report(r.Context(), span)
		if err != nil {
			return err
		}
		return ok(w, each(rows, wire))
	}
}

// each turns rows into their bodies. It never returns nil: an empty list is []
// on the wire.
func each[Row, Body any](rows []Row, wire func(Row) Body) []Body {
	out := make([]Body, 0, len(rows))
	for _, row := range rows {
		out = append(out, wire(row))
	}
	return out
}

func (s *Server) adminOverview(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	o, err := s.o.Admin.Overview(r.Context())
	if err != nil {
		return err
	}
	return ok(w, overviewBody{TotalUsers: o.Users, TotalRenders: o.Renders, TotalSeparations: o.Separations,
		TotalJobs: o.Renders + o.Separations, TotalSourceDurationMs: o.SourceDuration.Milliseconds(),
		ActiveUsersLast7Days: o.ActiveUsers})
}

func (s *Server) adminHistogram(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	counts, err := s.o.Admin.DurationHistogram(r.Context())
	if err != nil {
		return err
	}
	body := make([]bucketBody, len(counts))
	for i, n := range counts {
		body[i] = bucketBody{Bucket: admin.Buckets[i], Count: n}
	}
	return ok(w, body)
}

func (s *Server) adminUsers(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	query := r.URL.Query()
	page, err := pageOf(query)
	if err != nil {
		return err
	}
	search := query.Get("q")
	if !storable(search) {
		return ok(w, adminUsersBody{Users: each([]admin.User{}, adminUserOf)})
	}
	users, total, err := s.o.Admin.Users(r.Context(), search, page)
	if err != nil {
		return err
	}
	return ok(w, adminUsersBody{Users: each(users, adminUserOf), Total: total})
}

func (s *Server) adminUserJobs(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	// Parse also reads other notations of a UUID, which are no user's id.
	id, err := uuid.Parse(r.PathValue("userId"))
	if err != nil || len(r.PathValue("userId")) != len(id.String()) {
		return fault.New(fault.Invalid, "invalid_user_id")
	}
	page, err := pageOf(r.URL.Query())
	if err != nil {
		return err
	}
	jobs, total, err := s.o.Admin.UserJobs(r.Context(), id.String(), page)
	if err != nil {
		return err
	}
	return ok(w, userJobsBody{Jobs: each(jobs, userJobOf), Total: total})
}

func (s *Server) adminActiveJobs(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	jobs, err := s.o.Admin.ActiveJobs(r.Context())
	if err != nil {
		return err
	}
	return ok(w, each(jobs, activeJobOf))
}

func (s *Server) adminBreakdown(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	types, err := s.o.Admin.StatusBreakdown(r.Context())
	if err != nil {
		return err
	}
	return ok(w, each(types[:], func(b admin.Breakdown) breakdownBody {
		return breakdownBody{JobType: b.Type, Total: b.Total, Succeeded: b.Succeeded, Failed: b.Failed, InProgress: b.InProgress}
	}))
}

func (s *Server) adminRevenue(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	v, err := s.o.Admin.Revenue(r.Context())
	if err != nil {
		return err
	}
	return ok(w, revenueBody{PayingUsers: v.PayingUsers, PurchaseCount: v.Total.Purchases, CreditsSold: v.Total.Credits,
		PurchaseCount30d: v.Last30Days.Purchases, CreditsSold30d: v.Last30Days.Credits,
		PlatformAPurchaseCount: v.PlatformA.Purchases, PlatformBPurchaseCount: v.PlatformB.Purchases,
		PlatformACredits: v.PlatformA.Credits, PlatformBCredits: v.PlatformB.Credits, AdminGrantedCredits: v.AdminGranted})
}
