// Package admin owns the reports about the service, the gauges for monitoring, the count of calls to the separation
// provider, and the web app that shows all of these.
//
// It may read any table, but writes only its own: the provider's calls by day. It does not authenticate: the caller
// checks that the requester is an admin. Wherever it shows users, it hides those whose erasure has begun, and their
// jobs. Totals count these jobs until their rows are deleted.
//
// Both people and programs read the reports: rows use the names of the API and are sent unchanged. A query names its
// columns after the fields of its row.
package admin

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"cutroom/internal/base/db"
)

// Reports queries the database for reports. It is safe for concurrent use.
type Reports struct{ db *db.DB }

// New returns the reports on a database, which the caller still owns.
func New(d *db.DB) *Reports { return &Reports{db: d} }

// dayMs is a day in milliseconds. Epoch time has no leap seconds, so a time divided by dayMs is the number of its day
// in UTC. Integer division works the same in both databases, unlike their date functions.
const dayMs = 24 * 60 * 60 * 1000

// Day is a day in UTC: the number of days since 1970-01-01.
type Day int64

// DayOf is the day in UTC on which t falls.
func DayOf(t time.Time) Day { return Day(t.Truncate(24*time.Hour).UnixMilli() / dayMs) }

// Start is the first instant of the day.
func (d Day) Start() time.Time { return time.UnixMilli(int64(d) * dayMs).UTC() }

// String is the day as YYYY-MM-DD.
func (d Day) String() string { return d.Start().Format(time.DateOnly) }

// MarshalText is String, for JSON.
func (d Day) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Range is the half-open range of days [From, To). Reports by day have one row for each day. The caller checks that
// From < To.
type Range struct{ From, To Day }

// Days is the number of days in the range.
func (r Range) Days() int { return int(r.To - r.From) }

// bounds returns the first instant of the range and the first instant after it, in epoch milliseconds.
func (r Range) bounds() (from, to int64) { return int64(r.From) * dayMs, int64(r.To) * dayMs }

// byDay runs a query that takes the range's bounds as arguments and returns a row for each day that has data. The first
// field of T is a Day, the column "date". byDay returns a row for every day of the range, with zeros for days without a
// row.
func byDay[T any](ctx context.Context, d *db.DB, r Range, query string) ([]T, error) {
	out := make([]T, r.Days())
	dayOf := func(row *T) *Day { return reflect.ValueOf(row).Elem().Field(0).Addr().Interface().(*Day) }
	for i := range out {
		*dayOf(&out[i]) = r.From + Day(i)
	}
	from, to := r.bounds()
	rows, err := list[T](ctx, d, query, from, to)
	for _, row := range rows {
		out[*dayOf(&row)-r.From] = row
	}
	return out, err
}

// list runs a query and returns its rows, never nil. A column is read into the field with the same name in JSON:
// created_at into createdAt.
func list[T any](ctx context.Context, d *db.DB, query string, args ...any) ([]T, error) {
	out := []T{}
	err := db.Each(ctx, d, func(rows *db.Rows) error {
		var row T
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		into, byName := make([]any, len(columns)), fields(reflect.ValueOf(&row).Elem(), map[string]any{})
		for i, column := range columns {
			if into[i] = byName[camelCase(column)]; into[i] == nil {
				return fmt.Errorf("no field for column %s", column)
			}
		}
		err = rows.Scan(into...)
		out = append(out, row)
		return err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list %T: %w", out, err)
	}
	return out, nil
}

// fields adds pointers to the fields of a struct, by their names in JSON.
func fields(s reflect.Value, byName map[string]any) map[string]any {
	for i := range s.NumField() {
		if f := s.Type().Field(i); f.Anonymous {
			fields(s.Field(i), byName)
		} else {
			byName[f.Tag.Get("json")] = s.Field(i).Addr().Interface()
		}
	}
	return byName
}

// single is list for a query with one row.
func single[T any](ctx context.Context, d *db.DB, query string, args ...any) (row T, err error) {
	rows, err := list[T](ctx, d, query, args...)
	if err == nil {
		row = rows[0]
	}
	return row, err
}
