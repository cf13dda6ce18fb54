package db

import (
	"database/sql/driver"
	"time"

	"modernc.org/sqlite"
)

const sqliteDriver = "sqlite"

// The driver's function table belongs to the process, so now_ms can only be
// registered once, before the first connection.
func init() {
	sqlite.MustRegisterScalarFunction("now_ms", 0,
		func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
			return time.Now().UnixMilli(), nil
		})
}
