package db

import (
	"database/sql/driver"
	"strings"

	"modernc.org/sqlite"

	"cutroom/internal/base/clock"
)

const sqliteDriver = "sqlite"

// The driver's function table is global, so functions can be registered only once, before the first connection.
func init() {
	sqlite.MustRegisterScalarFunction("now_ms", 0,
		func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
			return clock.Now().UnixMilli(), nil
		})
	// SQLite's own lower() folds only ASCII; names and e-mail addresses may contain other letters.
	sqlite.MustRegisterDeterministicScalarFunction("lower", 1,
		func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			if s, ok := args[0].(string); ok {
				return strings.ToLower(s), nil
			}
			return args[0], nil
		})
}
