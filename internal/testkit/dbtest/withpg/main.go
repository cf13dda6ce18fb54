// Command withpg starts a private PostgreSQL cluster with a migrated template and runs a command that finds both in its
// environment (see package dbtest). The packages of one `go test ./...` then share them:
//
//	go run ./internal/testkit/dbtest/withpg go test ./...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"cutroom/internal/testkit/dbtest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withpg command [argument ...]")
		os.Exit(2)
	}
	os.Exit(run(os.Args[1:]))
}

func run(argv []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cluster, err := dbtest.Start(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
		return 1
	}
	status := runWith(ctx, cluster.URL, argv)
	if err := cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
	}
	return status
}

// runWith runs a command that uses a cluster, and returns its exit status.
func runWith(ctx context.Context, cluster string, argv []string) int {
	template, err := dbtest.MakeTemplate(ctx, cluster)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
		return 1
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), dbtest.EnvURL+"="+cluster, dbtest.EnvTemplate+"="+template)
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "withpg:", err)
		return 1
	}
	return 0
}
