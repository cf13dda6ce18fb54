// Package sweep removes from the object store what the database does not need
// any more. The packages that own the objects give rules about what is needed;
// how carefully the rest is removed is decided here, once for all of them.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/objectstore"
)

// The brake: a sweep that would remove more than this share of what it lists,
// and more than so many objects, because the database does not know them,
// removes nothing. It is more likely that the database is the wrong one.
const (
	brakeShare   = 10 // a tenth
	brakeObjects = 100
)

// Rule says which objects under a prefix are needed. The queries answer with 1
// for an object that is needed, 0 for one that is not any more, and without a
// row where the database knows nothing of it.
type Rule struct {
	Kind string // for people, such as "render outputs"
	// Prefix is what the keys begin with. The owner is the name in the key up to
	// the slash behind it: of uploads/sep-1/source under uploads/sep- it is sep-1.
	Prefix string
	// Owner asks whether the owner $1 needs its objects.
	Owner string
	// Object asks of $2, a key of the owner $1, whether the object is needed,
	// where its owner does not settle it. It may be blank.
	Object string
	// Grace is how old an object must be to be removed without being known: its
	// row may be about to come.
	Grace time.Duration
	// Lifetime is the age at which an object goes although its owner lives; 0
	// is never.
	Lifetime time.Duration
}

// owner is the name of whose object a key is.
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
	// Check fails unless the store belongs to the database. It is asked before
	// anything is removed. Nil is for a store that nobody else can reach.
	Check func(context.Context) error
	// Listed is called with the size of what a rule found. It may be nil.
	Listed func(kind string, sizeBytes int64)
	// Removed is called with every removal, and Held, after every sweep, with
	// the number of objects that the brake kept. Both may be nil.
	Removed func(kind string, objects int)
	Held    func(objects int)
	Log     *slog.Logger
}

// Sweeper removes objects. It is safe for concurrent use, and any number of
// replicas may sweep at once.
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

// HeldError says that the brake kept a sweep from removing anything.
type HeldError struct{ Unknown, Listed int }

func (e *HeldError) Error() string {
	return fmt.Sprintf("the database does not know %d of %d objects, so nothing was removed: is it the right database? "+
		"If they may go, run `cutroom sweep --confirm`", e.Unknown, e.Listed)
}

// Finding is what a rule found.
type Finding struct {
	Rule     Rule
	Listed   int
	Unneeded []objectstore.Info // known to the database, and needed no more
	Unknown  []objectstore.Info // not known to the database
}

// suspicious reports whether the brake must hold.
func suspicious(unknown, listed int) bool {
	return unknown > brakeObjects && unknown*brakeShare > listed
}

// Plan looks at all objects and removes none. The HeldError says that the brake
// would hold; the findings are complete with it.
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

// Sweep removes what no rule needs. It removes nothing where the store is
// another installation's, nor, unless it is confirmed, where the brake holds.
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
		}{{"needed no more", f.Unneeded}, {"not known to the database", f.Unknown}} {
			if err := s.removeAll(ctx, f.Rule, objects.why, objects.list); err != nil {
				errs = append(errs, fmt.Errorf("sweep %s: %w", f.Rule.Kind, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Remove deletes objects whose rows are gone already, unless they have come back.
func (s *Sweeper) Remove(ctx context.Context, kind string, keys ...string) error {
	var objects []objectstore.Info
	for _, key := range keys {
		objects = append(objects, objectstore.Info{Key: key})
	}
	return s.clean(ctx, kind, "their time was over", objects)
}

// Clean removes at once what is not needed under a prefix within a rule's, such
// as the folder of one job.
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

// clean removes those of the objects that are not needed, however young.
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

// batch is how many objects are deleted at once, between two looks at the
// database.
const batch = 50

// removeAll deletes objects that are still not needed: between the listing and
// now somebody may have put them again.
func (s *Sweeper) removeAll(ctx context.Context, rule Rule, why string, objects []objectstore.Info) error {
	var removed int
	var oldest, newest time.Time // zero where nobody has looked
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

// verdict is what the database says of an object.
type verdict int

const (
	needed verdict = iota
	unneeded
	unknown
)

// check says whether an object may go. Answers about owners are remembered in
// owners, where that is not nil.
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
