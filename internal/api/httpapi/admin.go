// The routes of the reports under /admin: their ranges of days, their pages, and the generic endpoints from which all
// of them are made.

package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/admin"
	"cutroom/internal/work/events"
	"cutroom/internal/work/user"
)

// adminRoutes mounts the read-only reports and, if it has an address, the web app that shows them.
func (s *Server) adminRoutes() {
	reports := s.o.Admin
	s.handle("GET /api/v2/admin/overview", s.admin(report(reports.Overview)))
	s.handle("GET /api/v2/admin/stats/daily", s.admin(ranged(reports.Daily)))
	s.handle("GET /api/v2/admin/stats/signups", s.admin(ranged(reports.Signups)))
	s.handle("GET /api/v2/admin/stats/external-calls", s.admin(ranged(reports.ExternalCalls)))
	s.handle("GET /api/v2/admin/stats/duration-histogram", s.admin(report(reports.DurationHistogram)))
	s.handle("GET /api/v2/admin/users", s.admin(paged("users", s.adminUsers)))
	s.handle("GET /api/v2/admin/users/{userId}/jobs", s.admin(ofUser("jobs", reports.UserJobs)))
	s.handle("GET /api/v2/admin/users/{userId}/ledger", s.admin(ofUser("entries", reports.Ledger)))
	s.handle("GET /api/v2/admin/users/{userId}/purchases", s.admin(ofUser("purchases", reports.Purchases)))
	s.handle("GET /api/v2/admin/users/{userId}/refusals", s.admin(ofUser("refusals", reports.Refusals)))
	s.handle("GET /api/v2/admin/users/{userId}/usage", s.admin(s.adminUserUsage))
	s.handle("GET /api/v2/admin/events", s.admin(paged("events", s.adminEvents)))
	s.handle("GET /api/v2/admin/jobs/active", s.admin(report(reports.ActiveJobs)))
	s.handle("GET /api/v2/admin/jobs/failed", s.admin(report(reports.RecentFailures)))
	s.handle("GET /api/v2/admin/jobs/status-breakdown", s.admin(report(reports.StatusBreakdown)))
	s.handle("GET /api/v2/admin/revenue", s.admin(report(reports.Revenue)))
	s.handle("GET /api/v2/admin/revenue/daily", s.admin(ranged(reports.DailyRevenue)))
	if s.o.AdminSlug != "" {
		s.adminApp()
	}
}

// The default and the widest range of days.
const (
	defaultDays = 30
	maxDays     = 90
)

// dateRange parses from (inclusive) and to (exclusive). to defaults to tomorrow, so that today is included; from
// defaults to 30 days before to. The rules apply to the resulting range.
func dateRange(query url.Values, now time.Time) (r admin.Range, err error) {
	if r.From, err = queryDay(query, "from", 0, "invalid_from_date"); err != nil {
		return r, err
	}
	if r.To, err = queryDay(query, "to", admin.DayOf(now)+1, "invalid_to_date"); err != nil {
		return r, err
	}
	if !query.Has("from") {
		r.From = r.To - defaultDays
	}
	switch {
	case r.From >= r.To:
		return r, fault.New(fault.Invalid, "from_must_be_before_to")
	case r.To-r.From > maxDays:
		return r, fault.New(fault.Invalid, "range_too_wide")
	}
	return r, nil
}

// queryDay reads a day from the query. code is the error for a value that is not a day.
func queryDay(query url.Values, name string, fallback admin.Day, code string) (admin.Day, error) {
	if !query.Has(name) {
		return fallback, nil
	}
	t, err := time.Parse(time.DateOnly, only(query, name))
	if err != nil {
		return 0, fault.New(fault.Invalid, code)
	}
	return admin.DayOf(t), nil
}

// The default and the largest number of rows of a page.
const (
	defaultLimit = 50
	maxLimit     = 200
)

func pageOf(query url.Values) (admin.Page, error) {
	limit, valid := queryNumber(query, "limit", defaultLimit, 1, maxLimit)
	if !valid {
		return admin.Page{}, fault.New(fault.Invalid, "invalid_limit")
	}
	offset, valid := queryNumber(query, "offset", 0, 0, math.MaxInt)
	if !valid {
		return admin.Page{}, fault.New(fault.Invalid, "invalid_offset")
	}
	return admin.Page{Limit: int64(limit), Offset: int64(offset)}, nil
}

// report returns the endpoint of a report without parameters.
func report[Body any](read func(context.Context) (Body, error)) userHandler {
	return func(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
		body, err := read(r.Context())
		return answer(w, body, err)
	}
}

// ranged returns the endpoint of a report by day.
func ranged[Row any](read func(context.Context, admin.Range) ([]Row, error)) userHandler {
	return func(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
		span, err := dateRange(r.URL.Query(), time.Now())
		if err != nil {
			return err
		}
		rows, err := read(r.Context(), span)
		return answer(w, rows, err)
	}
}

// paged returns the endpoint of a list; the answer holds a page of it under name.
func paged[Row any](name string, read func(*http.Request, admin.Page) ([]Row, int64, error)) userHandler {
	return func(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
		page, err := pageOf(r.URL.Query())
		if err != nil {
			return err
		}
		rows, total, err := read(r, page)
		return answer(w, map[string]any{name: rows, "total": total}, err)
	}
}

// ofUser returns the endpoint of one user's list.
func ofUser[Row any](name string, read func(context.Context, string, admin.Page) ([]Row, int64, error)) userHandler {
	return func(w http.ResponseWriter, r *http.Request, who account.Principal) error {
		id, err := readUserID(r)
		if err != nil {
			return err
		}
		return paged(name, func(r *http.Request, p admin.Page) ([]Row, int64, error) { return read(r.Context(), id, p) })(w, r, who)
	}
}

// readUserID reads the user's id from the path.
func readUserID(r *http.Request) (string, error) {
	// Parse also accepts other notations of a UUID.
	id, err := uuid.Parse(r.PathValue("userId"))
	if err != nil || len(r.PathValue("userId")) != len(id.String()) {
		return "", fault.New(fault.Invalid, "invalid_user_id")
	}
	return id.String(), nil
}

func (s *Server) adminUserUsage(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	id, err := readUserID(r)
	if err != nil {
		return err
	}
	if _, err := user.Get(r.Context(), s.o.DB, id); errors.Is(err, user.ErrDeleted) {
		return admin.ErrNoUser
	} else if err != nil {
		return err
	}
	usage, err := s.o.Quota.Report(r.Context(), s.o.DB, id)
	return answer(w, usage, err)
}

func (s *Server) adminEvents(r *http.Request, p admin.Page) (list []events.Entry, total int64, err error) {
	failed := r.URL.Query().Get("failed") == "true"
	if list, err = events.List(r.Context(), s.o.DB, failed, p.Limit, p.Offset); err == nil {
		total, err = events.Count(r.Context(), s.o.DB, failed)
	}
	return list, total, err
}

func (s *Server) adminUsers(r *http.Request, p admin.Page) ([]admin.User, int64, error) {
	query := r.URL.Query()
	if len(query["q"]) > 1 {
		return nil, 0, errBadRequest.WithDetail("q is given more than once")
	}
	return s.o.Admin.Users(r.Context(), query.Get("q"), p)
}
