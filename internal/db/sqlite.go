package db

import (
	"database/sql/driver"
	"strings"

	"modernc.org/sqlite"

	"cutroom/internal/clock"
)

const sqliteDriver = "sqlite"

// The driver's function table belongs to the process, so functions can only be
// registered once, before the first connection.
func init() {
	sqlite.MustRegisterScalarFunction("now_ms", 0,
		func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
			return clock.Now().UnixMilli(), nil
		})
	// SQLite's own lower() knows ASCII only; names and e-mails are more.
	sqlite.MustRegisterDeterministicScalarFunction("lower", 1,
		func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			if s, ok := args[0].(string); ok {
				return strings.ToLower(s), nil
			}
			return args[0], nil
		})
}
