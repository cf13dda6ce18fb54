package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cutroom/internal/db"
)

// export is one kind of a user's personal rows; $1 in rows is the user's id. It excludes rows that serve only
// the operation of the service or concern another person.
type export struct {
	name    string // of the rows in the export
	columns []column
	rows    string // the query after its columns
}

var exports = []export{
	{"account", list(values("id provider provider_sub email name picture role"), times("created_at last_active_at signed_out_at")),
		`FROM users WHERE id = $1`},
	{"balance", values("balance"), `FROM credit_balances WHERE user_id = $1`},
	{"ledger", list(values("ref_id kind amount"), times("created_at")), `FROM credit_ledger WHERE user_id = $1 ORDER BY created_at, ref_id`},
	{"purchases", list(values("platform order_id product_id credits owed"), times("created_at reversed_at")),
		`FROM purchases WHERE buyer_id = $1 ORDER BY created_at, transaction_hash`},
	{"refusedReceipts", list(values("platform order_id product_id reason attempts"), times("created_at")),
		`FROM receipt_refusals WHERE user_id = $1 ORDER BY created_at, platform, order_id, product_id`},
	{"renders", list(values("id state output_kind source_duration_ms error output_size_bytes"), documents("spec"),
		times("created_at started_at finished_at expires_at deleted_at")),
		`FROM jobs JOIN renders ON job_id = id WHERE user_id = $1 ORDER BY created_at, id`},
	{"renderInputs", list(values("input_id sha256 size_bytes"), times("last_used_at")),
		`FROM render_inputs WHERE user_id = $1 ORDER BY last_used_at, input_id`},
	{"assets", list(values("asset_key size_bytes content_type"), times("created_at last_used_at")),
		`FROM (SELECT h.asset_key, a.size_bytes, a.content_type, h.created_at, h.last_used_at
			FROM asset_holders h JOIN assets a ON a.asset_key = h.asset_key WHERE h.user_id = $1 AND h.given_up_at IS NULL) AS held ORDER BY created_at, asset_key`},
	{"separations", list(values("id state source_name source_size_bytes source_duration_ms language credits error actual_duration_ms"),
		times("created_at ready_at collected_at finished_at deleted_at")),
		`FROM (SELECT *, CASE WHEN state IN ('READY', 'DISPOSED') THEN finished_at END AS ready_at
			FROM jobs JOIN separations ON job_id = id WHERE user_id = $1) AS own ORDER BY created_at, id`},
	{"stems", values("job_id stem_id content_type size_bytes duration_ms"),
		`FROM separation_stems WHERE job_id IN (SELECT id FROM jobs WHERE user_id = $1) ORDER BY job_id, ordinal`},
}

// column is a column of an export and how to read its value.
type column struct {
	name string
	read func(stored any) (any, error)
}

func list(columns ...[]column) []column { return slices.Concat(columns...) }

// values returns columns that are exported as stored.
func values(names string) []column {
	return columns(names, func(stored any) (any, error) {
		if b, ok := stored.([]byte); ok {
			return string(b), nil
		}
		return stored, nil
	})
}

// times returns columns of epoch milliseconds.
func times(names string) []column {
	return columns(names, func(stored any) (any, error) {
		var t Time
		err := t.Scan(stored)
		return t, err
	})
}

// documents returns columns of JSON.
func documents(names string) []column {
	return columns(names, func(stored any) (any, error) {
		var t Text
		err := t.Scan(stored)
		return rawJSON(string(t)), err
	})
}

func columns(names string, read func(any) (any, error)) (out []column) {
	for name := range strings.FieldsSeq(names) {
		out = append(out, column{name, read})
	}
	return out
}

// Export returns all personal data of a user, ready to be written as JSON: rows by the
// name of their kind. An unknown user is a 404.
func (r *Reports) Export(ctx context.Context, userID string) (map[string][]map[string]any, error) {
	if _, err := r.count(ctx, `1`, userID); err != nil {
		return nil, err
	}
	out := map[string][]map[string]any{}
	for _, e := range exports {
		rows, err := db.All(ctx, r.db, e.scan, e.query(), userID)
		if err != nil {
			return nil, fmt.Errorf("export %s: %w", e.name, err)
		}
		out[e.name] = append([]map[string]any{}, rows...) // never null
	}
	return out, nil
}

func (e export) query() string {
	names := make([]string, len(e.columns))
	for i, c := range e.columns {
		names[i] = c.name
	}
	return `SELECT ` + strings.Join(names, ", ") + ` ` + e.rows
}

func (e export) scan(row db.Scanner) (map[string]any, error) {
	stored := make([]any, len(e.columns))
	into := make([]any, len(e.columns))
	for i := range stored {
		into[i] = &stored[i]
	}
	if err := row.Scan(into...); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for i, c := range e.columns {
		value, err := c.read(stored[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		out[camelCase(c.name)] = value
	}
	return out, nil
}

// camelCase converts a column name to its name in the export.
func camelCase(column string) string {
	words := strings.Split(column, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}
