// Command sandbox runs all of cutroom on one machine without any account: stand-ins for every vendor, and the
// service that uses them. It is for developers, demonstrations and tests, and never part of a deployment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"cutroom/internal/film/media/confine"
	"cutroom/internal/sandbox/demo"
)

const usage = `usage: sandbox [command] [flags]; sandbox <command> -h lists its flags
  up     run the stand-ins and the service until Ctrl-C (the default)
  serve  run the service alone; up starts it
  demo   run the main job end to end, leave the results in demo-output/ and measure them
`

func main() {
	confine.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal restore the default action: a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	err := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
}

// dispatch runs a command until the first Ctrl-C or SIGTERM, which end ctx.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	name := "up"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	switch name {
	case "up":
		return up(ctx, args, stdout, stderr)
	case "serve":
		return serve(ctx, args, stderr)
	case "demo":
		return demo.Run(ctx, args, stdout, stderr)
	case "help":
		_, err := fmt.Fprint(stdout, usage)
		return err
	}
	fmt.Fprint(stderr, usage)
	return fmt.Errorf("no command %q", name)
}
