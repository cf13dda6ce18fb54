package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

func TestReportsForPeople(t *testing.T) {
	type row struct {
		ID   string         `json:"id"`
		Note *string        `json:"note"`
		More map[string]any `json:"more"`
	}
	report := struct {
		Name        string         `json:"name"`
		Nothing     *int           `json:"nothing"`
		StoredBytes int64          `json:"storedBytes"`
		Usage       map[string]int `json:"usage"`
		Rows        []row          `json:"rows"`
		None        []row          `json:"none"`
		Others      []string       `json:"others"`
	}{"a\nb", nil, 3 << 19, map[string]int{"jobs": 2}, slices.Repeat([]row{{"x", nil, map[string]any{"k": 1}}}, screen+1), nil, []string{"u", "v"}}
	var out bytes.Buffer
	if err := (&invocation{stdout: &out}).print(report); err != nil {
		t.Fatal(err)
	}
	want := "name         a; b\nstoredBytes  1.5 MB\n\nusage\njobs  2\n\nrows\nid  note  more\n" + strings.Repeat("x         {\"k\":1}\n", screen) +
		"older ones with --json\n\nothers\nu\nv\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
