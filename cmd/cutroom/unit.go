package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// unitName is the unit that the package installs.
const unitName = "cutroom.service"

// supervision lists the settings of a unit's [Service] that control how systemd starts, watches and ends it.
// They do not suit a check that runs once.
var supervision = []string{"Type", "ExecStart", "ExecReload", "Restart", "RestartSec", "WatchdogSec", "TimeoutAbortSec", "TimeoutStopSec",
	"KillMode", "KillSignal", "OOMPolicy"}

// asUnitFlag adds --as-unit.
func asUnitFlag(fs *flag.FlagSet, v *invocation) {
	rolesFlag(fs, v)
	fs.BoolVar(&v.asUnit, "as-unit", false, "")
}

// doctorAsUnit runs the doctor in a transient unit with the user, settings and sandbox of the service's unit,
// including drop-ins: a shell has other permissions than the service.
func doctorAsUnit(ctx context.Context, v *invocation) error {
	if _, err := exec.LookPath("systemd-run"); err != nil {
		return errors.New("--as-unit needs systemd, which this machine does not have; without the flag doctor checks what this shell may do")
	}
	text, err := exec.CommandContext(ctx, "systemctl", "cat", unitName).Output()
	if err != nil {
		return fmt.Errorf("--as-unit needs the unit %s, and systemctl cat does not find it: %w", unitName, withStderr(err))
	}
	program, properties := transient(string(text))
	if program == "" {
		return fmt.Errorf("the unit %s has no ExecStart", unitName)
	}
	own := fmt.Sprintf("cutroom-doctor-%d.service", os.Getpid())
	args := []string{"--unit=" + own, "--pipe", "--wait", "--collect", "--quiet", "--service-type=exec"}
	for _, p := range properties {
		// systemd-run does not expand the specifier for the folder of the unit's credentials.
		args = append(args, "--property="+strings.ReplaceAll(p, "%d", "/run/credentials/"+own))
	}
	args = append(args, "--", program, "doctor")
	if v.roles != "" { // a flag, because ROLES in an EnvironmentFile overrides --setenv
		args = append(args, "--roles", v.roles)
	}
	if v.json {
		args = append(args, "--json")
	}
	cmd := exec.CommandContext(ctx, "systemd-run", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, v.stdout, v.stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return errUnhealthy // the report, or systemd-run, has printed the reason
	}
	return err
}

// withStderr adds a program's standard error to err.
func withStderr(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

// transient reads the files of a unit, and returns its program and the settings that a transient unit needs.
func transient(unit string) (program string, properties []string) {
	section := ""
	for line := range strings.Lines(strings.ReplaceAll(unit, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		key, value, isSetting := strings.Cut(line, "=")
		if section != "[Service]" || !isSetting || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if key == "ExecStart" && value != "" { // an empty one in a drop-in resets it
			program, _, _ = strings.Cut(value, " ")
		}
		if !slices.Contains(supervision, key) {
			properties = append(properties, line)
		}
	}
	return program, properties
}
