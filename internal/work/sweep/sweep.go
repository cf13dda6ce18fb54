// Package sweep removes from the object store what the database no longer needs. The packages that own the objects
// supply rules about what is needed; this package decides how cautiously to remove the rest.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/storage/objectstore"
)

// The brake: if more than this share of the listed objects, and more than this many, are unknown to the database, the
// sweep removes nothing. It is then more likely that the service is connected to the wrong database.
const (
	brakeShare   = 10 // one tenth
	brakeObjects = 100
)

// Rule defines which objects under a prefix are needed. Its queries return 1 for a needed object, 0 for one that is no
// longer needed, and no row if the database does not know it.
type Rule struct {
	Kind string // for people, such as "render outputs"
	// Prefix is the start of the keys. The owner is the name after the prefix's last slash, up to the next: under the
	// prefix uploads/sep-, the owner of uploads/sep-1/source is sep-1.
	Prefix string
	// Owner is a query: does the owner $1 need its objects?
	Owner string
	// Object is a query that runs if the owner's answer is not enough: does the owner $1 need the object with key $2?
	// It may be blank.
	Object string
	// Grace is how old an unknown object must be before it is removed: its row may not be written yet.
	Grace time.Duration
	// Lifetime is the age at which an object is removed even if its owner exists; 0 means never.
	Lifetime time.Duration
}

// owner returns the owner's name in a key.
func (r Rule) owner(key string) string {
	folder := strings.LastIndexByte(r.Prefix, '/') + 1
	name, _, _ := strings.Cut(key[folder:], "/")
	return name
}

// Options configures a Sweeper.
type Options struct {
	DB    *db.DB
	Store objectstore.Store
	Rules []Rule
	// Check returns an error unless the store belongs to the database. It runs before any removal. It may be nil if no
	// other installation can reach the store.
	Check func(context.Context) error
	// Listed is called with the total size of the objects that a rule covers. It may be nil.
	Listed func(kind string, sizeBytes int64)
	// Removed is called after every removal. Held is called after every sweep, with the number of objects that the
	// brake kept. Both may be nil.
	Removed func(kind string, objects int)
	Held    func(objects int)
	Log     *slog.Logger
}

// Sweeper removes objects. It is safe for concurrent use, even by several replicas.
type Sweeper struct{ Options }

// New returns a Sweeper.
func New(o Options) *Sweeper {
	if o.Check == nil {
		o.Check = func(context.Context) error { return nil }
	}
	if o.Listed == nil {
		o.Listed = func(string, int64) {}
	}
	if o.Removed == nil {
		o.Removed = func(string, int) {}
	}
	if o.Held == nil {
		o.Held = func(int) {}
	}
	return &Sweeper{o}
}

// HeldError means that the brake stopped a sweep from removing anything.
type HeldError struct{ Unknown, Listed int }

func (e *HeldError) Error() string {
	return fmt.Sprintf("the database does not know %d of %d objects, so nothing was removed: is it the right database? "+
		"If they may go, run `cutroom sweep --confirm`", e.Unknown, e.Listed)
}

// Finding lists the objects that a rule does not need.
type Finding struct {
	Rule     Rule
	Listed   int
	Unneeded []objectstore.Info // known to the database, no longer needed
	Unknown  []objectstore.Info // not known to the database
}

// suspicious reports whether the brake must stop the sweep.
func suspicious(unknown, listed int) bool {
	return unknown > brakeObjects && unknown*brakeShare > listed
}

// Plan lists what a sweep would remove, and removes nothing. If the brake would stop the sweep, it returns a
// HeldError with complete findings.
func (s *Sweeper) Plan(ctx context.Context) ([]Finding, error) {
	var all []Finding
	var held *HeldError
	total := Finding{}
	for _, rule := range s.Rules {
		f, err := s.find(ctx, rule)
		if err != nil {
			return nil, fmt.Errorf("sweep %s: %w", rule.Kind, err)
		}
		all = append(all, f)
		total.Listed += f.Listed
		total.Unknown = append(total.Unknown, f.Unknown...)
		if held == nil && suspicious(len(f.Unknown), f.Listed) {
			held = &HeldError{Unknown: len(f.Unknown), Listed: f.Listed}
		}
	}
	if suspicious(len(total.Unknown), total.Listed) {
		held = &HeldError{Unknown: len(total.Unknown), Listed: total.Listed}
	}
	if held != nil {
		return all, held
	}
	return all, nil
}

// Sweep removes what no rule needs. It removes nothing if the store belongs to another installation, or if the
// brake stops it and confirmed is false.
func (s *Sweeper) Sweep(ctx context.Context, confirmed bool) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	found, err := s.Plan(ctx)
	var held *HeldError
	switch {
	case errors.As(err, &held) && !confirmed:
		s.Held(held.Unknown)
		return err
	case err != nil && held == nil:
		return err
	}
	s.Held(0)
	var errs []error
	for _, f := range found {
		for _, objects := range []struct {
			why  string
			list []objectstore.Info
		}{{"no longer needed", f.Unneeded}, {"not known to the database", f.Unknown}} {
			if err := s.removeAll(ctx, f.Rule, objects.why, objects.list); err != nil {
				errs = append(errs, fmt.Errorf("sweep %s: %w", f.Rule.Kind, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Remove deletes objects whose rows are gone, unless a new row needs them.
func (s *Sweeper) Remove(ctx context.Context, kind string, keys ...string) error {
	var objects []objectstore.Info
	for _, key := range keys {
		objects = append(objects, objectstore.Info{Key: key})
	}
	return s.clean(ctx, kind, "expired", objects)
}

// Clean removes unneeded objects under a prefix that lies within a rule's prefix, such as the folder of one job,
// without waiting for Grace.
func (s *Sweeper) Clean(ctx context.Context, kind, prefix string) error {
	var objects []objectstore.Info
	err := s.Store.List(ctx, prefix, func(o objectstore.Info) error {
		objects = append(objects, o)
		return nil
	})
	if err != nil {
		return fmt.Errorf("clean %s: %w", kind, err)
	}
	return s.clean(ctx, kind, "their job has ended", objects)
}

// clean removes those of the objects that are not needed, regardless of age.
func (s *Sweeper) clean(ctx context.Context, kind, why string, objects []objectstore.Info) error {
	if len(objects) == 0 {
		return nil
	}
	if err := s.Check(ctx); err != nil {
		return err
	}
	rule := s.Rules[slices.IndexFunc(s.Rules, func(r Rule) bool { return r.Kind == kind })]
	rule.Grace, rule.Lifetime = 0, 0
	if err := s.removeAll(ctx, rule, why, objects); err != nil {
		return fmt.Errorf("clean %s: %w", kind, err)
	}
	return nil
}

// batch is how many objects are deleted between two checks of the database.
const batch = 50

// removeAll deletes the objects that are still not needed: a job may have stored one again since the listing.
func (s *Sweeper) removeAll(ctx context.Context, rule Rule, why string, objects []objectstore.Info) error {
	var removed int
	var oldest, newest time.Time // zero if unknown
	defer func() {
		if removed == 0 {
			return
		}
		s.Removed(rule.Kind, removed)
		about := []any{"kind", rule.Kind, "objects", removed, "why", why}
		if !newest.IsZero() {
			about = append(about, "oldest", time.Since(oldest).Round(time.Second), "newest", time.Since(newest).Round(time.Second))
		}
		s.Log.Info("objects removed", about...)
	}()
	for part := range slices.Chunk(objects, batch) {
		var keys []string
		for _, o := range part {
			v, err := s.check(ctx, rule, o, nil)
			if err != nil {
				return err
			}
			if v == needed {
				continue
			}
			keys = append(keys, o.Key)
			if oldest.IsZero() || o.ModTime.Before(oldest) {
				oldest = o.ModTime
			}
			if o.ModTime.After(newest) {
				newest = o.ModTime
			}
		}
		if err := s.Store.Delete(ctx, keys...); err != nil {
			return err
		}
		removed += len(keys)
	}
	return nil
}

func (s *Sweeper) find(ctx context.Context, rule Rule) (Finding, error) {
	f := Finding{Rule: rule}
	owners := map[string]verdict{}
	var sizeBytes int64
	err := s.Store.List(ctx, rule.Prefix, func(o objectstore.Info) error {
		f.Listed++
		sizeBytes += o.SizeBytes
		v, err := s.check(ctx, rule, o, owners)
		switch v {
		case unneeded:
			f.Unneeded = append(f.Unneeded, o)
		case unknown:
			f.Unknown = append(f.Unknown, o)
		}
		return err
	})
	if err == nil {
		s.Listed(rule.Kind, sizeBytes)
	}
	return f, err
}

// verdict is the database's answer about an object.
type verdict int

const (
	needed verdict = iota
	unneeded
	unknown
)

// check decides whether an object may be removed. It caches answers about owners in owners, unless that is nil.
func (s *Sweeper) check(ctx context.Context, rule Rule, o objectstore.Info, owners map[string]verdict) (verdict, error) {
	age := time.Since(o.ModTime)
	owner := rule.owner(o.Key)
	v, asked := owners[owner]
	if !asked {
		var err error
		if v, err = s.ask(ctx, rule.Owner, owner); err != nil {
			return needed, err
		}
		if owners != nil {
			owners[owner] = v
		}
	}
	if v == needed && rule.Object != "" {
		var err error
		if v, err = s.ask(ctx, rule.Object, owner, o.Key); err != nil {
			return needed, err
		}
	}
	switch {
	case v == unknown && age <= rule.Grace:
		return needed, nil
	case v == needed && rule.Lifetime > 0 && age > rule.Lifetime:
		return unneeded, nil
	}
	return v, nil
}

func (s *Sweeper) ask(ctx context.Context, query string, about ...any) (verdict, error) {
	var answer int
	err := s.DB.QueryRow(ctx, query, about...).Scan(&answer)
	switch {
	case db.IsNoRows(err):
		return unknown, nil
	case err != nil:
		return needed, err
	case answer == 0:
		return unneeded, nil
	}
	return needed, nil
}
