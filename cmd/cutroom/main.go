// Command cutroom is the production service. Only the environment configures it. It contains no code that can forge an
// identity, a receipt or a stem.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"cutroom/internal/app"
	"cutroom/internal/base/db"
	"cutroom/internal/domain/account"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/work/job"
)

const usage = `usage: cutroom <command> [--env-file <path>] [--json]

  serve                                run the service, or its roles that ROLES lists
  migrate                              apply database migrations and exit
  doctor                               check everything that these roles depend on
  version                              print versions

  admin grant <email or uuid>          give a user the admin role
  admin revoke <email or uuid>         take it away
  admin list                           list the admins
  admin token <email or uuid>          print an access token of 15 minutes for an admin

  user show <email, uuid or order number>
                                       sign-ins, role, balance, ledger, purchases, refused
                                       receipts, jobs
  user export <email or uuid>          the user's own data, as JSON
  user sign-out <email or uuid>        make every token issued until now invalid
  user erase <email or uuid>           delete the account with all its files
  job show <id>                        one job of any user, with the cause of its failure
  job retry <id>                       queue a FAILED render again if its inputs still exist
  jobs --failed [--since <date>]       failed jobs with their causes, newest first
  purchase verify <platform> <transactionId> --user <email or uuid> [--receipt <token>]
                                       verify an order with the store, and grant its credits as
                                       the user's own request would
  credits grant <email or uuid> <n> --reason <text> [--job <id>]
          [--order <platform>:<transactionId>]
                                       give credits; --order marks that order as paid out
  credits revoke <email or uuid> <n> --reason <text> [--job <id>]
                                       take credits back

  pause render|separation              answer new submissions with 503 on all replicas
  resume render|separation             accept them again
  events [--failed]                    events of ended jobs and the state of their web hooks,
                                       newest first; with --failed those that were given up
  events retry <id>                    call the web hook again for an event
  events retry --since <date or time>  call it again for all events since then

  adopt-bucket                         assign the bucket to this database, also from another
  adopt-disk                           assign this machine's disk to this database, if its disk is lost
  sweep [--confirm]                    list the objects that are no longer needed; with --confirm
                                       remove them, even if the service's own sweep is held

  audit [--since <date>]               who did what, newest first
  erasures --since <date>              ids of the accounts deleted since then

The configuration comes from the environment. The file that --env-file names, or else
.env in the working directory, adds the variables that the environment lacks; see
.env.example. --json prints JSON instead of a table.
`

// commands contains every command by its words.
var commands = map[string]command{
	"serve":           {daemon: true, needs: configuration, run: serve},
	"migrate":         {daemon: true, needs: configuration, run: migrate},
	"doctor":          {needs: configuration, run: doctor},
	"version":         {run: version},
	"admin grant":     {args: 1, needs: database, run: setRole(account.RoleAdmin, granted)},
	"admin revoke":    {args: 1, needs: database, run: setRole(account.RoleUser, revoked)},
	"admin list":      {needs: database, run: listAdmins},
	"admin token":     {args: 1, needs: database, run: issueToken},
	"user show":       {args: 1, needs: database, run: showUser},
	"user export":     {args: 1, needs: database, run: exportUser},
	"user sign-out":   {args: 1, needs: database, run: signOutUser},
	"user erase":      {args: 1, needs: database, run: eraseUser},
	"job show":        {args: 1, needs: database, run: showJob},
	"job retry":       {args: 1, check: checkRetry, needs: database, run: retryJob},
	"jobs":            {flags: "failed since", must: "failed", needs: database, run: showFailedJobs},
	"purchase verify": {args: 2, flags: "user receipt", must: "user", check: checkOrder, needs: database, run: verifyPurchase},
	"credits grant":   {args: 2, flags: "reason job order", check: checkSupport, needs: database, run: support(1)},
	"credits revoke":  {args: 2, flags: "reason job", check: checkSupport, needs: database, run: support(-1)},
	"pause":           {args: 1, check: checkKind, needs: database, run: setSubmissions(job.Pause, "paused")},
	"resume":          {args: 1, check: checkKind, needs: database, run: setSubmissions(job.Resume, "resumed")},
	"events":          {flags: "failed", needs: database, run: listEvents},
	"events retry":    {args: 1, fewer: 1, flags: "since", check: checkEvents, needs: database, run: retryEvents},
	"adopt-bucket":    {needs: database, run: adoptBucket},
	"adopt-disk":      {needs: database, run: adoptDisk},
	"sweep":           {flags: "confirm", needs: database, run: sweepObjects},
	"audit":           {flags: "since", needs: database, run: showAudit},
	"erasures":        {flags: "since", must: "since", needs: database, run: showErasures},
}

func main() {
	confine.Main()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// errUsage makes the program print the usage text.
var errUsage = errors.New("invalid arguments")

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go func() {
		<-ctx.Done()
		stop() // the first signal drains the service; a second one then kills it
	}()
	v := &invocation{stdout: stdout, stderr: stderr}
	err := dispatch(ctx, args, v)
	switch {
	case err == nil:
		return 0
	case v.logsErrors():
		for line := range strings.Lines(err.Error()) { // one line per problem
			v.log.Error(strings.TrimSpace(line))
		}
		return 1
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprint(stderr, usage)
		if err != errUsage {
			fmt.Fprintf(stderr, "\n%v\n", err)
		}
		return 2
	}
	fmt.Fprintln(stderr, err)
	return 1
}

func dispatch(ctx context.Context, args []string, v *invocation) error {
	if len(args) == 0 {
		return errUsage
	}
	if slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		return flag.ErrHelp
	}
	name, rest := lookUp(args)
	if name == "" {
		return fmt.Errorf("%w: there is no command %q", errUsage, strings.Join(args, " "))
	}
	v.command = name
	c := commands[name]
	if err := v.parse(c, rest); err != nil {
		return err
	}
	if c.check != nil {
		if err := c.check(v); err != nil {
			return err
		}
	}
	if c.needs == nothing {
		return c.run(ctx, v)
	}
	if err := v.load(); err != nil {
		return err
	}
	if c.needs == configuration {
		return c.run(ctx, v)
	}
	return v.withDatabase(ctx, c.run)
}

func serve(ctx context.Context, v *invocation) error {
	for _, w := range v.cfg.Warnings {
		v.log.Warn(w)
	}
	if err := confine.Hide(); err != nil {
		return fmt.Errorf("hide the memory of the process: %w", err)
	}
	a, err := app.New(ctx, v.cfg, versionString(), v.log)
	if err != nil {
		return err
	}
	// Requests produce much garbage compared with the live heap: a larger limit costs a few MB and saves a tenth of
	// their time. An operator's GOGC wins.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	return a.Run(ctx)
}

func migrate(ctx context.Context, v *invocation) error {
	d, err := app.OpenDatabase(ctx, v.cfg, nil, v.log, (*db.DB).Migrate)
	if err != nil {
		return err
	}
	v.log.Info("the database is up to date")
	return d.Close()
}
