// Command bench-api measures the API: requests per second and latencies of what
// phones ask for all day, on both databases, and the memory of the service while
// many clients upload at once. It starts everything itself. The load is bounded: a fixed number of clients, each with one
// request at a time.
//
// `make bench-api` runs it inside a PostgreSQL cluster of its own. With -year, as
// `make bench-admin` runs it, it measures reports, and everything beside them, on a
// database with a year of jobs instead.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/sandbox"
)

type options struct {
	clients  int
	duration time.Duration // of each measurement
	uploads  int
	uploadMB int64
	rounds   int
	waiting  int
	jobs     int64
	out      string
}

func main() {
	var o options
	flag.IntVar(&o.clients, "clients", 16, "clients at a time, each with one request")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long each endpoint is asked")
	flag.IntVar(&o.uploads, "uploads", 50, "clients that upload at a time")
	flag.Int64Var(&o.uploadMB, "upload-mb", 20, "size of each upload; 200 needs 10 GB of disk and minutes")
	flag.IntVar(&o.rounds, "rounds", 2, "uploads of each client, at most 10")
	flag.IntVar(&o.waiting, "waiting", 2000, "clients that wait for a change")
	flag.Int64Var(&o.jobs, "year", 0, "measure instead a database with a year of so many jobs")
	flag.StringVar(&o.out, "out", "docs/benchmarks.md", "the page to write to")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-api:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "bench-api-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary := filepath.Join(dir, "cutroom")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/cutroom").CombinedOutput(); err != nil {
		return fmt.Errorf("build the service: %w: %s", err, out)
	}
	world, err := sandbox.Start(sandbox.Options{DataDir: filepath.Join(dir, "world"), Fast: true})
	if err != nil {
		return err
	}
	defer world.Close()
	if o.jobs > 0 {
		return measureYear(ctx, o, binary, dir, world)
	}
	r := newReport(o)
	databases := []database{{name: "SQLite", env: map[string]string{
		"DATABASE_URL": "sqlite://" + filepath.Join(dir, "cutroom.db"), "DB_USER": "cutroom", "DB_PASSWORD": "cutroom"}}}
	postgres, err := startPostgres(ctx)
	if err != nil {
		return err
	}
	databases = append(databases, postgres)
	for _, d := range databases {
		if err := measureService(ctx, o, binary, filepath.Join(dir, d.name), world, d, r); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	r.end(o)
	return r.Save(o.out)
}

// database is where the service keeps its rows.
type database struct {
	name    string
	env     map[string]string
	cluster *dbtest.Cluster // of its own: it ends when nobody holds it
}

func (d database) options() db.Options {
	return db.Options{URL: d.env["DATABASE_URL"], User: d.env["DB_USER"], Password: d.env["DB_PASSWORD"], MaxPool: 2}
}

// startPostgres makes a database in the cluster that the environment names, or
// in one of its own, which ends with this process.
func startPostgres(ctx context.Context) (database, error) {
	d := database{name: "PostgreSQL"}
	address := os.Getenv(dbtest.EnvURL)
	if address == "" {
		var err error
		if d.cluster, err = dbtest.Start(ctx); err != nil {
			return d, err
		}
		address = d.cluster.URL
	}
	var err error
	d.env, err = createDatabase(ctx, address)
	return d, err
}

func measureService(ctx context.Context, o options, binary, dir string, world *sandbox.World, d database, r *report) error {
	s, err := startService(ctx, binary, dir, world, d.env)
	if err != nil {
		return err
	}
	defer s.stop()
	user, err := s.signIn(world, "bench@example.test")
	if err != nil {
		return err
	}
	film, err := s.submitRender(user)
	if err != nil {
		return err
	}
	stems, err := s.submitSeparation(user)
	if err != nil {
		return err
	}
	for _, e := range []struct{ name, path string }{
		{"`GET /healthz`", "/healthz"},
		{"`GET /credits`", "/api/v2/credits"},
		{"`GET /credits/cost`", "/api/v2/credits/cost?durationMs=300000"},
		{"`GET /render/{id}/status`", "/api/v2/render/" + film + "/status"},
		{"`GET /separate/{id}`", "/api/v2/separate/" + stems},
	} {
		l, err := measure(o, s.child.PID(), s.url+e.path, user)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		r.add(e.name, d.name, l)
	}
	w, err := measureWaiting(ctx, o, s, world.Env()["AUTH_JWT_SECRET"], d, film)
	if err != nil {
		return fmt.Errorf("waiting: %w", err)
	}
	r.waiting = append(r.waiting, w)
	m, err := s.uploads(world, o)
	if err != nil {
		return fmt.Errorf("uploads: %w", err)
	}
	m.database = d.name
	r.memory = append(r.memory, m)
	return nil
}
