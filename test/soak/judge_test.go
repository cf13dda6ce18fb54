package soak

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"cutroom/internal/apitest"
	"cutroom/test/invariants"
)

// trace records the events, for the report of a failure.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (t *trace) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines[max(0, len(t.lines)-400):], "\n")
}

func (k *soak) query(ctx context.Context, query string, args ...any) ([][]string, error) {
	rows, err := k.db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out [][]string
	for rows.Next() {
		row := make([]string, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

func (k *soak) active() (int, error) { return invariants.Active(k.t.Context(), k.db) }

// sample checks the running service ten times a second: the provider's limit and the order of the queue.
func (k *soak) sample(quit <-chan struct{}) {
	ctx := context.WithoutCancel(k.t.Context())
	ask := func(query string, args ...any) [][]string {
		rows, err := k.query(ctx, query, args...)
		if err != nil {
			k.t.Errorf("sample: %v", err)
		}
		return rows
	}
	for {
		select {
		case <-quit:
			return
		case <-time.After(100 * time.Millisecond):
		}
		// Read the provider's projects first. The job of a project never returns to the queue.
		titles := map[string]bool{}
		for _, title := range k.s.World.Separator.Titles() {
			titles[title] = true
		}
		running := 0
		for _, r := range ask(`SELECT id, state FROM jobs WHERE kind = 'separation' AND state IN ('QUEUED', 'SUBMITTING', 'PROCESSING')`) {
			if r[1] == "QUEUED" {
				if titles[r[0]] {
					k.t.Errorf("%s is queued although the provider has its project: duplicate charge", r[0])
				}
				continue
			}
			running++
		}
		if running > limit {
			k.t.Errorf("%d jobs in flight, want at most %d", running, limit)
		}
		// Jobs with fence 0 were never claimed. No younger job may have been claimed.
		for _, r := range ask(`SELECT y.id, x.id FROM jobs y JOIN users u ON u.id = y.user_id
			JOIN jobs x ON x.kind = 'separation' AND x.attempts > 0 AND x.created_at > y.created_at
			WHERE y.state = 'QUEUED' AND y.fence = 0 AND u.erasing_at IS NULL LIMIT 1`) {
			k.t.Errorf("%s was claimed before the older %s", r[1], r[0])
		}
	}
}

// judge checks the invariants after all jobs have ended.
func (k *soak) judge() {
	if k.t.Failed() {
		return
	}
	ctx := k.t.Context()
	invariants.Check(k.t, k.db)
	k.judgeProvider(ctx)
	k.judgeFiles(ctx)
	k.judgeHistory()
}

func (k *soak) judgeProvider(ctx context.Context) {
	paid := map[string]int{}
	for _, title := range k.s.World.Separator.Titles() {
		paid[title]++
		if paid[title] > 1 {
			k.t.Errorf("the provider was paid %d times for %s", paid[title], title)
		}
	}
	rows, err := k.query(ctx, `SELECT id, state, user_id FROM jobs WHERE kind = 'separation'`)
	if err != nil {
		k.t.Fatal(err)
	}
	known := map[string]bool{}
	for _, r := range rows {
		known[r[0]] = true
		if (r[1] == "READY" || r[1] == "DISPOSED") && paid[r[0]] != 1 {
			k.t.Errorf("%s is %s without a project at the provider", r[0], r[1])
		}
	}
	here := map[string]bool{}
	for _, u := range k.users {
		here[u.Sub] = true
	}
	for id, owner := range k.accepted {
		if here[owner] && !known[id] {
			k.t.Errorf("%s was accepted but does not exist", id)
		}
	}
}

// judgeFiles compares the store with the database.
func (k *soak) judgeFiles(ctx context.Context) {
	var stray []string
	apitest.Eventually(k.t, 30*time.Second, func() bool {
		rows, err := k.query(ctx, `SELECT object_key FROM separation_stems
			UNION ALL SELECT peaks_key FROM separation_stems WHERE peaks_key IS NOT NULL`)
		if err != nil {
			k.t.Fatal(err)
		}
		named := map[string]bool{}
		for _, r := range rows {
			named[r[0]] = true
		}
		stray = nil
		for _, key := range k.objects() {
			switch {
			case strings.HasPrefix(key, "separation/") && !named[key]:
				stray = append(stray, key)
			case strings.HasPrefix(key, "uploads/") && !k.s.HasBucket():
				stray = append(stray, key)
			}
			delete(named, key)
		}
		for key := range named {
			stray = append(stray, "missing: "+key)
		}
		for _, dir := range []string{"uploads", "work"} {
			entries, err := os.ReadDir(filepath.Join(k.s.Storage, dir))
			if err != nil {
				k.t.Fatal(err)
			}
			for _, e := range entries {
				stray = append(stray, dir+"/"+e.Name())
			}
		}
		return len(stray) == 0
	}, func() string { return fmt.Sprintf("files and rows do not agree: %v", stray) })
	if !k.s.HasBucket() {
		return
	}
	// The test cannot change the bucket's clock, so uploads orphaned by a crash are too young for the
	// sweep. There is at most one for each submission without a response, or with a 503 because it was
	// unknown whether its transaction had committed.
	orphans := 0
	for _, key := range k.objects() {
		if strings.HasPrefix(key, "uploads/") {
			orphans++
		}
	}
	if unknown := k.cutOff + k.answers[http.StatusServiceUnavailable]; orphans > unknown {
		k.t.Errorf("%d uploads without a job after %d submissions of unknown outcome", orphans, unknown)
	}
}

// objects lists the keys of the store.
func (k *soak) objects() []string {
	var keys []string
	if k.s.HasBucket() {
		for _, o := range k.s.World.Bucket.Objects() {
			keys = append(keys, o.Key)
		}
		return keys
	}
	root := filepath.Join(k.s.Storage, "objects")
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil // deleted during the walk
			}
			return err
		}
		if !e.IsDir() && !strings.Contains(path, "/.tmp/") {
			key, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			keys = append(keys, filepath.ToSlash(key))
		}
		return nil
	})
	if err != nil {
		k.t.Error(err)
	}
	return keys
}

// report prints the figures of the run.
func (k *soak) report() {
	rows, err := k.query(k.t.Context(), `SELECT state, COALESCE(error, ''), CAST(COUNT(*) AS TEXT) FROM jobs WHERE kind = 'separation'
		GROUP BY state, error ORDER BY state, error`)
	if err != nil {
		k.t.Error(err)
	}
	k.t.Logf("%d replicas, %v: %d kills, events %v", len(k.up), time.Since(k.began).Round(time.Second), k.kills, k.events)
	k.t.Logf("responses to submissions by status: %v, and %d lost; %d jobs accepted, %d projects at the provider",
		k.answers, k.cutOff, len(k.accepted), len(k.s.World.Separator.Titles()))
	k.t.Logf("jobs of the remaining accounts: %q", rows)
}
