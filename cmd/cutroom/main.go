// Command cutroom is the production service. It is configured by the
// environment alone and holds no way to mint an identity, a receipt or a stem.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"cutroom/internal/app"
	"cutroom/internal/config"
	"cutroom/internal/media"
)

const usage = `usage: cutroom <command>

  serve                          run the service
  migrate                        apply database migrations and exit
  admin grant <email or uuid>    give a user the admin role
  admin revoke <email or uuid>   take it away
  admin list                     list the admins
  doctor                         check everything the service depends on
  version                        print versions

The configuration comes from the environment; see .env.example.
`

func main() {
	media.CageMain()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// errUsage is answered with the usage text.
var errUsage = errors.New("usage")

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go func() {
		<-ctx.Done()
		stop() // the first signal drains; with the handler gone, a second one kills
	}()
	err := dispatch(ctx, args, stdout, stderr)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprint(stderr, usage)
		return 2
	}
	fmt.Fprintln(stderr, err)
	return 1
}

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "serve":
		return serve(ctx, stderr)
	case "migrate":
		return migrate(ctx, stderr)
	case "admin":
		return adminRole(ctx, args[1:], stdout, stderr)
	case "doctor":
		return doctor(ctx, stdout, stderr)
	case "version":
		return version(ctx, stdout)
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return nil
	}
	return errUsage
}

// load reads the configuration and makes the log that it asks for.
func load(stderr io.Writer) (config.Config, *slog.Logger, error) {
	cfg, err := config.LoadEnvironment()
	if err != nil {
		return cfg, nil, fmt.Errorf("the configuration is not valid:\n%w", err)
	}
	opts := &slog.HandlerOptions{Level: cfg.Log.Level}
	var h slog.Handler = slog.NewTextHandler(stderr, opts)
	if cfg.Log.JSON {
		h = slog.NewJSONHandler(stderr, opts)
	}
	return cfg, slog.New(h), nil
}

func serve(ctx context.Context, stderr io.Writer) error {
	cfg, log, err := load(stderr)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		log.Warn(w)
	}
	a, err := app.New(ctx, cfg, versionString(), log)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

func migrate(ctx context.Context, stderr io.Writer) error {
	cfg, log, err := load(stderr)
	if err != nil {
		return err
	}
	d, err := app.OpenDatabase(ctx, cfg, log)
	if err != nil {
		return err
	}
	log.Info("the database is up to date")
	return d.Close()
}
