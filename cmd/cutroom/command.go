// How a command line becomes a call: this file looks up the command, parses flags and arguments in any order, opens the
// configuration, the log and the database that the command needs, and finds the actor for the audit record.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/app"
	"cutroom/internal/base/db"
	"cutroom/internal/config"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/credit"
	"cutroom/internal/work/user"
)

// command is a command of the program.
type command struct {
	args   int                     // how many arguments follow its words
	fewer  int                     // how many of those are optional
	daemon bool                    // writes everything to a log, including its final error
	flags  string                  // the flags that it takes besides --env-file and --json
	must   string                  // the one of them that is required
	check  func(*invocation) error // of arguments and flags, before anything is opened; may be nil
	needs  need
	run    runFunc
}

type runFunc func(context.Context, *invocation) error

// need is what a command finds in its invocation.
type need int

const (
	nothing       need = iota
	configuration      // cfg and log
	database           // db, too
)

// invocation is a parsed command line.
type invocation struct {
	command        string // its words; "" if the command is unknown
	args           []string
	envFile        string
	json           bool
	since          time.Time
	reason, job    string
	order          credit.Order
	user, receipt  string
	confirm        bool
	failed         bool
	credits        int64 // from the arguments
	stdout, stderr io.Writer
	cfg            config.Config
	log            *slog.Logger
	db             *db.DB
}

// lookUp finds the command at the start of the arguments, one word or two. The name is "" if there is none.
func lookUp(args []string) (name string, rest []string) {
	for n := min(2, len(args)); n > 0; n-- {
		name = strings.Join(args[:n], " ")
		if _, found := commands[name]; found {
			return name, args[n:]
		}
	}
	return "", nil
}

// parse parses flags and arguments, in any order.
func (v *invocation) parse(c command, args []string) error {
	fs := flag.NewFlagSet("cutroom", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.StringVar(&v.envFile, "env-file", "", "")
	fs.BoolVar(&v.json, "json", false, "")
	fs.BoolVar(&v.confirm, "confirm", false, "")
	fs.BoolVar(&v.failed, "failed", false, "")
	fs.StringVar(&v.reason, "reason", "", "")
	fs.StringVar(&v.job, "job", "", "")
	fs.StringVar(&v.user, "user", "", "")
	fs.StringVar(&v.receipt, "receipt", "", "")
	fs.Func("since", "", v.parseSince)
	fs.Func("order", "", func(s string) (err error) {
		v.order, err = credit.ParseOrder(s)
		return err
	})
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		if args = fs.Args(); len(args) == 0 {
			break
		}
		v.args = append(v.args, args[0])
		args = args[1:]
	}
	var given []string
	fs.Visit(func(f *flag.Flag) { given = append(given, f.Name) })
	for _, name := range given {
		if !slices.Contains(strings.Fields("env-file json "+c.flags), name) {
			return fmt.Errorf("%w: %s has no flag --%s", errUsage, v.command, name)
		}
	}
	if c.must != "" && !slices.Contains(given, c.must) {
		return fmt.Errorf("%w: %s needs --%s", errUsage, v.command, c.must)
	}
	if len(v.args) > c.args || len(v.args) < c.args-c.fewer {
		return fmt.Errorf("%w: got %d, but the command takes %d", errUsage, len(v.args), c.args)
	}
	return nil
}

// parseSince parses a day in UTC or a time.
func (v *invocation) parseSince(s string) (err error) {
	if v.since, err = time.Parse(time.DateOnly, s); err != nil {
		v.since, err = time.Parse(time.RFC3339, s)
	}
	if err != nil {
		return errors.New("write a date as 2026-11-22, or a time as 2026-11-22T14:03:00Z")
	}
	return nil
}

// errorsOnOneLine joins the lines of an error, such as those of several attempts to connect, so that a search for its
// cause finds the whole error.
func errorsOnOneLine(_ []string, a slog.Attr) slog.Attr {
	if err, isError := a.Value.Any().(error); isError && strings.Contains(err.Error(), "\n") {
		return slog.String(a.Key, oneLine(err.Error()))
	}
	return a
}

// load reads the configuration and creates the log that it configures.
func (v *invocation) load() (err error) {
	v.cfg, err = config.LoadEnvironment(v.envFile)
	opts := &slog.HandlerOptions{Level: v.cfg.Log.Level, ReplaceAttr: errorsOnOneLine}
	var h slog.Handler = slog.NewTextHandler(v.stderr, opts)
	if v.cfg.Log.JSON {
		h = slog.NewJSONHandler(v.stderr, opts)
	}
	v.log = slog.New(h)
	if err != nil && !v.logsErrors() {
		err = fmt.Errorf("the configuration is not valid:\n%w", err)
	}
	return err
}

// logsErrors reports whether the error that ends the command belongs in its log: programs read it, not people.
func (v *invocation) logsErrors() bool { return commands[v.command].daemon && v.cfg.Log.JSON }

// withDatabase runs a command with the configured database, without migrating it: the command runs beside the
// replicas, and may lack the permission to migrate.
func (v *invocation) withDatabase(ctx context.Context, run runFunc) (err error) {
	if v.db, err = app.OpenDatabase(ctx, v.cfg, nil, v.log, (*db.DB).CheckSchema); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.db.Close()) }()
	return run(ctx, v)
}

// find returns the user that the first argument names.
func (v *invocation) find(ctx context.Context) (user.User, error) {
	return account.Find(ctx, v.db, v.args[0])
}

// actor is the user id of the person who runs a command, for the audit record. Under sudo it is the id of the user who
// called sudo.
func actor() string {
	if id, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32); err == nil {
		return fmt.Sprint("cli:", id)
	}
	return fmt.Sprint("cli:", os.Getuid())
}
