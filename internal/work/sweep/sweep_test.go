// The sweep of objects: what it removes, the brake, foreign stores, and objects that are needed again.

package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/sweep"
)

// harness is a store on disk and a database that knows owners and objects.
type harness struct {
	*jobtest.Harness
	opts sweep.Options
	held []int
	gone map[string]int
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	r := &harness{Harness: jobtest.New(t, dbtest.SQLite(t)), gone: map[string]int{}}
	r.Exec(`CREATE TABLE owners (id TEXT PRIMARY KEY, needs INTEGER)`)
	r.Exec(`CREATE TABLE things (key TEXT PRIMARY KEY)`)
	r.opts = sweep.Options{DB: r.DB, Store: r.Store, Log: slog.New(slog.DiscardHandler),
		Rules: []sweep.Rule{
			{Kind: "plain", Prefix: "plain/", Owner: `SELECT needs FROM owners WHERE id = $1`, Grace: time.Hour, Lifetime: 48 * time.Hour},
			{Kind: "listed", Prefix: "up/a-", Owner: `SELECT needs FROM owners WHERE id = $1`,
				Object: `SELECT 1 FROM things WHERE key = $2 AND $1 <> ''`, Grace: time.Hour},
		},
		Removed: func(kind string, n int) { r.gone[kind] += n },
		Held:    func(n int) { r.held = append(r.held, n) },
	}
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// object puts an object of an age.
func (r *harness) object(key string, age time.Duration) {
	r.T.Helper()
	path := filepath.Join(r.Objects(), key)
	at := time.Now().Add(-age)
	must(r.T, os.MkdirAll(filepath.Dir(path), 0o700))
	must(r.T, os.WriteFile(path, nil, 0o600))
	must(r.T, os.Chtimes(path, at, at))
}

func TestSweepRemovesWhatNoRuleNeeds(t *testing.T) {
	r := newHarness(t)
	r.Exec(`INSERT INTO owners VALUES ('lives', 1), ('ended', 0), ('a-lives', 1), ('a-ended', 0)`)
	r.Exec(`INSERT INTO things VALUES ('up/a-lives/known')`)
	kept := []string{"plain/lives/1", "plain/stranger/young", "up/a-lives/known", "up/a-lives/young", "up/b-other/x", "elsewhere/x"}
	removed := []string{"plain/lives/old", "plain/ended/1", "plain/stranger/old", "up/a-lives/old", "up/a-ended/1"}
	for _, key := range append(kept, removed...) {
		age := 2 * time.Hour
		if strings.HasSuffix(key, "young") {
			age = time.Minute
		}
		if key == "plain/lives/old" {
			age = 72 * time.Hour
		}
		r.object(key, age)
	}
	must(t, sweep.New(r.opts).Sweep(t.Context(), false))
	if left := r.Keys(""); !slices.Equal(slices.Sorted(slices.Values(left)), slices.Sorted(slices.Values(kept))) {
		t.Errorf("left: %v", left)
	}
	if r.gone["plain"] != 3 || r.gone["listed"] != 2 {
		t.Errorf("counted %v", r.gone)
	}
}

func TestTheBrakeHoldsSuspiciousSweeps(t *testing.T) {
	for _, tt := range []struct {
		name            string
		known, unknown  int // under plain/
		ended           int
		other, stranger int // under up/a-
		held            bool
	}{
		{"a wrong database", 0, 500, 0, 0, 0, true},
		{"a hundred strangers", 0, 100, 0, 0, 0, false},
		{"many, but below a tenth", 1000, 101, 0, 0, 0, false},
		{"more than a tenth", 900, 101, 0, 0, 0, true},
		{"known to have ended", 0, 0, 500, 0, 0, false},
		{"spread over the kinds", 0, 60, 0, 0, 60, true},
		{"one kind lost among many others", 0, 101, 0, 1200, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newHarness(t)
			r.Exec(`INSERT INTO owners VALUES ('lives', 1), ('ended', 0), ('a-lives', 1)`)
			add := func(n int, prefix string) {
				for i := range n {
					key := fmt.Sprintf("%s/%d", prefix, i)
					r.object(key, 2*time.Hour)
					if prefix == "up/a-lives" {
						r.Exec(`INSERT INTO things VALUES ($1)`, key)
					}
				}
			}
			add(tt.known, "plain/lives")
			add(tt.unknown, "plain/stranger")
			add(tt.ended, "plain/ended")
			add(tt.other, "up/a-lives")
			add(tt.stranger, "up/a-stranger")
			before := len(r.Keys(""))
			s := sweep.New(r.opts)
			err := s.Sweep(t.Context(), false)
			var held *sweep.HeldError
			if errors.As(err, &held) != tt.held {
				t.Fatalf("%v, want held: %v", err, tt.held)
			}
			if !tt.held {
				if left := len(r.Keys("")); left != tt.known+tt.other {
					t.Errorf("%d objects left, want %d", left, tt.known+tt.other)
				}
				return
			}
			if left := len(r.Keys("")); left != before || len(r.gone) > 0 {
				t.Errorf("%d of %d objects left by a sweep that was held", left, before)
			}
			if len(r.held) != 1 || r.held[0] == 0 || !strings.Contains(err.Error(), "cutroom sweep --confirm") {
				t.Errorf("told %v and %v", r.held, err)
			}
			must(t, s.Sweep(t.Context(), true))
			if left := len(r.Keys("")); left != tt.known+tt.other || r.held[1] != 0 {
				t.Errorf("%d objects left by a confirmed sweep, told %v", left, r.held)
			}
		})
	}
}

func TestNothingIsRemovedFromAForeignStore(t *testing.T) {
	r := newHarness(t)
	r.object("plain/stranger/1", 2*time.Hour)
	foreign := errors.New("not ours")
	r.opts.Check = func(context.Context) error { return foreign }
	s := sweep.New(r.opts)
	for name, remove := range map[string]func() error{
		"sweep":           func() error { return s.Sweep(t.Context(), false) },
		"confirmed sweep": func() error { return s.Sweep(t.Context(), true) },
		"removal":         func() error { return s.Remove(t.Context(), "plain", "plain/stranger/1") },
		"cleaning":        func() error { return s.Clean(t.Context(), "plain", "plain/stranger/") },
	} {
		if err := remove(); !errors.Is(err, foreign) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(r.Keys("")) != 1 {
		t.Error("the object is gone")
	}
}

// What is put again between the listing and the removal stays.
func TestWhatIsNeededAgainStays(t *testing.T) {
	r := newHarness(t)
	r.Exec(`INSERT INTO owners VALUES ('ended', 0)`)
	r.object("plain/ended/1", 2*time.Hour)
	r.object("up/a-stranger/1", 2*time.Hour)
	// The second rule is looked at after the first has found its object.
	r.opts.Store = jobtest.Store{Store: r.Store, OnList: func(prefix string) {
		if prefix == "up/a-" {
			r.Exec(`UPDATE owners SET needs = 1`)
		}
	}}
	must(t, sweep.New(r.opts).Sweep(t.Context(), false))
	if left := r.Keys(""); !slices.Equal(left, []string{"plain/ended/1"}) {
		t.Errorf("left %v", left)
	}
}

// An object whose row went is removed however young it is, unless the row is back.
func TestRemoveAsksAgain(t *testing.T) {
	r := newHarness(t)
	r.Exec(`INSERT INTO owners VALUES ('a-lives', 1)`)
	r.Exec(`INSERT INTO things VALUES ('up/a-lives/back')`)
	for _, key := range []string{"up/a-lives/back", "up/a-lives/over"} {
		r.object(key, time.Second)
	}
	must(t, sweep.New(r.opts).Remove(t.Context(), "listed", "up/a-lives/back", "up/a-lives/over"))
	if left := r.Keys(""); !slices.Equal(left, []string{"up/a-lives/back"}) || r.gone["listed"] != 1 {
		t.Errorf("left %v, counted %v", left, r.gone)
	}
}
