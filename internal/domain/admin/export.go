package admin

import (
	"context"
	"fmt"
	"strings"

	"cutroom/internal/base/db"
)

// exports holds the queries for a user's personal rows, keyed by the name of the rows in the export; $1 is the user's
// id. They leave out rows that serve only the operation of the service or concern another person.
var exports = map[string]string{
	"account": `SELECT id, provider, provider_sub, email, name, picture, role, created_at, last_active_at, signed_out_at
		FROM users WHERE id = $1`,
	"balance": `SELECT balance FROM credit_balances WHERE user_id = $1`,
	"ledger":  `SELECT ref_id, kind, amount, created_at FROM credit_ledger WHERE user_id = $1 ORDER BY created_at, ref_id`,
	"purchases": `SELECT platform, order_id, product_id, credits, refunded, owed, created_at, reversed_at, test
		FROM purchases WHERE buyer_id = $1 ORDER BY created_at, transaction_hash`,
	"refusedReceipts": `SELECT platform, order_id, product_id, reason, attempts, created_at
		FROM receipt_refusals WHERE user_id = $1 ORDER BY created_at, platform, order_id, product_id`,
	"renders": `SELECT id, state, output_kind, source_duration_ms, error, output_size_bytes, spec,
			created_at, started_at, finished_at, expires_at, deleted_at
		FROM jobs JOIN renders ON job_id = id WHERE user_id = $1 ORDER BY created_at, id`,
	"renderInputs": `SELECT input_id, sha256, size_bytes, last_used_at FROM render_inputs WHERE user_id = $1 ORDER BY last_used_at, input_id`,
	"assets": `SELECT h.asset_key, a.size_bytes, a.content_type, h.created_at, h.last_used_at
		FROM asset_holders h JOIN assets a ON a.asset_key = h.asset_key
		WHERE h.user_id = $1 AND h.given_up_at IS NULL ORDER BY h.created_at, h.asset_key`,
	"separations": `SELECT id, state, source_name, source_size_bytes, source_duration_ms, language, credits, error, actual_duration_ms,
			created_at, CASE WHEN state IN ('READY', 'DISPOSED') THEN finished_at END AS ready_at, collected_at, finished_at, deleted_at
		FROM jobs JOIN separations ON job_id = id WHERE user_id = $1 ORDER BY created_at, id`,
	"stems": `SELECT job_id, stem_id, content_type, size_bytes, duration_ms FROM separation_stems
		WHERE job_id IN (SELECT id FROM jobs WHERE user_id = $1) ORDER BY job_id, ordinal`,
}

// Export returns all personal data of a user, ready to be written as JSON: rows keyed by the name of their kind. An
// unknown user is a 404.
func (r *Reports) Export(ctx context.Context, userID string) (map[string][]map[string]any, error) {
	if _, err := r.count(ctx, `1`, userID); err != nil {
		return nil, err
	}
	out := map[string][]map[string]any{}
	for name, query := range exports {
		out[name] = []map[string]any{} // never null
		err := db.Each(ctx, r.db, func(rows *db.Rows) error {
			row, err := exported(rows)
			out[name] = append(out[name], row)
			return err
		}, query, userID)
		if err != nil {
			return nil, fmt.Errorf("export %s: %w", name, err)
		}
	}
	return out, nil
}

// exported returns a row keyed by column name. The names of columns that hold times end in _at; spec is JSON.
func exported(rows *db.Rows) (map[string]any, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	out, values := map[string]any{}, make([]any, len(columns))
	for i, name := range columns {
		switch {
		case strings.HasSuffix(name, "_at"):
			values[i] = new(Time)
		case name == "spec":
			values[i] = new(document)
		default:
			values[i] = new(any)
		}
		out[camelCase(name)] = values[i]
	}
	return out, rows.Scan(values...)
}

// document is a stored JSON text.
type document struct{ Text }

// MarshalJSON implements json.Marshaler.
func (d document) MarshalJSON() ([]byte, error) { return rawJSON(string(d.Text)), nil }

// camelCase converts a column name to its name in the export.
func camelCase(column string) string {
	words := strings.Split(column, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}
