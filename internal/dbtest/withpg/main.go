// Command withpg runs a command beside a private PostgreSQL cluster, whose
// address it finds in CUTROOM_TEST_PG_URL, so that the packages of one
// `go test ./...` share one cluster:
//
//	go run ./internal/dbtest/withpg go test ./...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"cutroom/internal/dbtest"
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
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), dbtest.EnvURL+"="+cluster.URL)
	err = cmd.Run()
	if stopErr := cluster.Stop(); stopErr != nil {
		fmt.Fprintln(os.Stderr, "withpg:", stopErr)
	}
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
