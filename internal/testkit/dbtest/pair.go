package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Pair is a primary and its synchronous standby.
type Pair struct {
	primary, standby *Cluster
	promoted         bool
}

// replicated are the settings for a failover without loss. The default settings of this package turn them off.
const replicated = `
wal_level = replica
max_wal_senders = 4
synchronous_commit = on
`

// StartPair starts a pair, with an empty database, until the test ends.
func StartPair(t testing.TB) *Pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	p := &Pair{}
	begin := func(c **Cluster, settings string, fill func(c *Cluster) error) {
		var err error
		if *c, err = start(ctx, settings, fill); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*c).Stop() }) // fails if the test has stopped it
	}
	begin(&p.primary, replicated, initdb(ctx))
	copied := replicated + fmt.Sprintf("primary_conninfo = 'host=%s port=%s user=postgres'\n", p.primary.dir, p.primary.port)
	begin(&p.standby, copied, func(c *Cluster) error {
		return c.command(ctx, "pg_basebackup", "-D", c.dir, "-h", p.primary.dir, "-p", p.primary.port,
			"-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync")
	})
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()",
		"CREATE DATABASE pair OWNER cutroom"} {
		if err := p.primary.asSuperuser(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	for p.primary.asSuperuser(ctx, "SELECT 1 / count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != nil {
		if ctx.Err() != nil {
			t.Fatal("the standby does not confirm commits")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return p
}

// Address returns one address of both servers, the primary first, and the owner's credentials.
func (p *Pair) Address() (address, user, password string) {
	return fmt.Sprintf("postgres://127.0.0.1:%s,127.0.0.1:%s/pair?sslmode=require", p.primary.port, p.standby.port),
		"cutroom", p.primary.password
}

// Fail ends the primary as a crash would.
func (p *Pair) Fail() error { return p.primary.Stop() }

// Promote makes the standby the primary.
func (p *Pair) Promote(ctx context.Context) error {
	p.promoted = true
	return p.standby.asSuperuser(ctx, "SELECT pg_promote(true, 30)")
}

// PSQL returns a shell command that runs psql on the primary as the superuser.
func (p *Pair) PSQL() string {
	c := p.primary
	if p.promoted {
		c = p.standby
	}
	return fmt.Sprintf("%s/psql -h %s -p %s -U postgres", c.bin, c.dir, c.port)
}

// StopStandby suspends the standby, as if its machine hung. Commits on the primary wait until ContinueStandby.
func (p *Pair) StopStandby() error { return p.standby.signal(syscall.SIGSTOP) }

// ContinueStandby resumes the standby.
func (p *Pair) ContinueStandby() error { return p.standby.signal(syscall.SIGCONT) }

// signal sends a signal to the server and to each of its children, which have their own sessions.
func (c *Cluster) signal(s syscall.Signal) error {
	text, err := os.ReadFile(filepath.Join(c.dir, "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	children, err := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", first, first))
	if err != nil {
		return err
	}
	var errs []error
	for _, field := range append(strings.Fields(string(children)), first) {
		pid, err := strconv.Atoi(field)
		if err == nil {
			err = syscall.Kill(pid, s)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *Cluster) asSuperuser(ctx context.Context, sql string) error {
	return execute(ctx, c.superuser(), sql)
}
