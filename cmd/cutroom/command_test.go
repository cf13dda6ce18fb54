package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// A search for the cause of a failure finds the whole line, with the cause at its end.
func TestErrorsAreLoggedOnOneLine(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: errorsOnOneLine}))
	pool := errors.New("failed to connect to `user=cutroom`:\n\tdb-1:5432: dial error: refused\n\tdb-2:5432: tls error: x509: expired")
	log.Error("m", "err", fmt.Errorf("read: %w", errors.Join(errors.New("the database does not answer"), pool)))
	const want = "read: the database does not answer; failed to connect to `user=cutroom`: db-1:5432: dial error: refused; db-2:5432: tls error: x509: expired"
	if !strings.HasSuffix(strings.TrimSpace(out.String()), fmt.Sprintf("err=%q", want)) {
		t.Errorf("%s\nwant %s", out.String(), want)
	}
}
