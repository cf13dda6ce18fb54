package soak

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/apitest"
	"cutroom/test/invariants"
)

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

// judgeProvider compares the provider's projects and the clients' answers with the jobs.
func (k *soak) judgeProvider(ctx context.Context) {
	titles := k.s.World.Separator.Titles()
	invariants.PaidOnce(k.t, titles)
	known, err := db.Texts(k.db.Query(ctx, `SELECT id FROM jobs WHERE kind = 'separation'`))
	if err != nil {
		k.t.Fatal(err)
	}
	collected, err := db.Texts(k.db.Query(ctx, `SELECT id FROM jobs WHERE state IN ('READY', 'DISPOSED')`))
	if err != nil {
		k.t.Fatal(err)
	}
	for _, id := range collected {
		if !slices.Contains(titles, id) {
			k.t.Errorf("%s has ended without a project at the provider", id)
		}
	}
	for id, owner := range k.accepted {
		if slices.ContainsFunc(k.users, func(u *apitest.User) bool { return u.Sub == owner }) && !slices.Contains(known, id) {
			k.t.Errorf("%s was accepted but does not exist", id)
		}
	}
}

// judgeFiles compares the store with the database.
func (k *soak) judgeFiles(ctx context.Context) {
	var stray []string
	apitest.Eventually(k.t, 30*time.Second, func() bool {
		keys, err := db.Texts(k.db.Query(ctx, `SELECT object_key FROM separation_stems
			UNION ALL SELECT peaks_key FROM separation_stems WHERE peaks_key IS NOT NULL`))
		if err != nil {
			k.t.Fatal(err)
		}
		named := map[string]bool{}
		for _, key := range keys {
			named[key] = true
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
	// The test cannot change the bucket's clock, so uploads orphaned by a crash are too young for the sweep. There is
	// at most one for each submission without a response, or with a 503 because it was unknown whether its transaction
	// had committed.
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
func (k *soak) objects() (keys []string) {
	if k.s.HasBucket() {
		return k.s.ObjectKeys(k.t)
	}
	store, err := objectstore.NewDir(filepath.Join(k.s.Storage, "objects"))
	if err == nil {
		err = store.List(k.t.Context(), "", func(o objectstore.Info) error { keys = append(keys, o.Key); return nil })
	}
	if err != nil {
		k.t.Error(err)
	}
	return keys
}

// report prints the figures of the run.
func (k *soak) report() {
	k.t.Logf("%d replicas, %v: %d kills, events %v, responses to submissions by status %v, and %d lost", len(k.up),
		time.Since(k.began).Round(time.Second), k.kills, k.events, k.answers, k.cutOff)
}
