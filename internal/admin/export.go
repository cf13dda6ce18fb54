package admin

import (
	"context"
	"fmt"
	"strings"

	"cutroom/internal/db"
)

// exports are the rows that are a person's own, by the name under which they
// are handed out. $1 is the user's id. What serves the running of the service,
// or concerns another person, is left out.
var exports = []struct{ name, query string }{
	{"account", `SELECT id, provider, provider_sub, email, name, picture, role, created_at, last_active_at, signed_out_at
		FROM users WHERE id = $1`},
	{"balance", `SELECT balance FROM credit_balances WHERE user_id = $1`},
	{"ledger", `SELECT ref_id, kind, amount, created_at FROM credit_ledger WHERE user_id = $1 ORDER BY created_at, ref_id`},
	{"purchases", `SELECT platform, order_id, product_id, credits, created_at, reversed_at, owed FROM purchases
		WHERE buyer_id = $1 ORDER BY created_at`},
	{"refusedReceipts", `SELECT platform, order_id, product_id, reason, attempts, created_at FROM receipt_refusals
		WHERE user_id = $1 ORDER BY created_at`},
	{"renders", `SELECT id, state, spec, output_kind, source_duration_ms, error, output_size_bytes, created_at, started_at,
		finished_at, expires_at, deleted_at FROM render_jobs WHERE user_id = $1 ORDER BY created_at, id`},
	{"renderInputs", `SELECT input_id, sha256, size_bytes, last_used_at FROM render_inputs WHERE user_id = $1 ORDER BY last_used_at`},
	{"assets", `SELECT h.asset_key, a.size_bytes, a.content_type, h.created_at, h.last_used_at FROM asset_holders h
		JOIN assets a ON a.asset_key = h.asset_key WHERE h.user_id = $1 ORDER BY h.created_at, h.asset_key`},
	{"separations", `SELECT id, state, source_name, source_size_bytes, source_duration_ms, language, credits, error,
		actual_duration_ms, created_at, ready_at, collected_at, finished_at, deleted_at FROM separation_jobs WHERE user_id = $1 ORDER BY created_at, id`},
	{"stems", `SELECT s.job_id, s.stem_id, s.content_type, s.size_bytes, s.duration_ms FROM separation_stems s
		JOIN separation_jobs j ON j.id = s.job_id WHERE j.user_id = $1 ORDER BY s.job_id, s.ordinal`},
}

// Export is everything that is kept of a person, ready to be written as JSON:
// rows by the name of their kind. An unknown user is a 404.
func (r *Reports) Export(ctx context.Context, userID string) (map[string][]map[string]any, error) {
	if _, err := r.count(ctx, `1`, userID); err != nil {
		return nil, err
	}
	out := map[string][]map[string]any{}
	for _, e := range exports {
		out[e.name] = []map[string]any{}
		err := db.Each(ctx, r.db, func(rows *db.Rows) error {
			row, err := scanRow(rows)
			out[e.name] = append(out[e.name], row)
			return err
		}, e.query, userID)
		if err != nil {
			return nil, fmt.Errorf("export %s: %w", e.name, err)
		}
	}
	return out, nil
}

// scanRow reads a row of whatever columns it has. A column whose name ends in
// _at is a time; one called spec is JSON already.
func scanRow(rows *db.Rows) (map[string]any, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values := make([]any, len(columns))
	into := make([]any, len(columns))
	for i, name := range columns {
		into[i] = &values[i]
		if strings.HasSuffix(name, "_at") {
			values[i] = new(Time)
			into[i] = values[i]
		}
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	row := map[string]any{}
	for i, name := range columns {
		switch v := values[i].(type) {
		case []byte:
			values[i] = string(v)
		case string:
			if name == "spec" {
				values[i] = rawJSON(v)
			}
		}
		row[camelCase(name)] = values[i]
	}
	return row, nil
}

// camelCase is the wire's way to write a column's name.
func camelCase(column string) string {
	words := strings.Split(column, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}
