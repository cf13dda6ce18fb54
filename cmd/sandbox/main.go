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
	"syscall"

	"cutroom/internal/media/confine"
	"cutroom/internal/sandbox/demo"
)

// command is one subcommand. run gets the arguments after its name; the
// context ends with the first Ctrl-C or SIGTERM.
type command struct {
	name, summary string
	run           func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// commands lists the commands in the order of the help. The first one runs if none is named.
var commands = []command{
	{"up", "run the stand-ins and the service until Ctrl-C (the default)", up},
	{"serve", "run the service alone; up starts it", serve},
	{"demo", "run the main job end to end, leave the results in demo-output/ and measure them", demo.Run},
}

func main() {
	confine.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal restore the default action: a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	err := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	name := commands[0].name
	if len(args) > 0 && len(args[0]) > 0 && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	if name == "help" {
		help(stdout)
		return nil
	}
	for _, c := range commands {
		if c.name == name {
			return c.run(ctx, args, stdout, stderr)
		}
	}
	help(stderr)
	return fmt.Errorf("no command %q", name)
}

func help(w io.Writer) {
	fmt.Fprintln(w, "usage: sandbox [command] [flags]; sandbox <command> -h lists its flags")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-6s %s\n", c.name, c.summary)
	}
}
