package main

import (
	"context"
	"flag"
	"io"
	"log/slog"

	"cutroom/internal/app"
	"cutroom/internal/base/clock"
	"cutroom/internal/config"
)

// serve runs the service as `cutroom serve` does, with an offset to its clock. Only the sandbox starts it; the
// cutroom program has no such command.
func serve(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("sandbox serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	ahead := flags.Duration("ahead", 0, "how far the clock is ahead")
	if err := flags.Parse(args); err != nil {
		return err
	}
	clock.Advance(*ahead)
	cfg, err := config.LoadEnvironment("")
	if err != nil {
		return err
	}
	a, err := app.New(ctx, cfg, "sandbox", slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: cfg.Log.Level})))
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
