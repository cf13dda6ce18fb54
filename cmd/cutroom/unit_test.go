package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The programs of systemd are stood in for: the one prints the unit of deploy/ with a
// drop-in, the other notes its arguments and runs the doctor's last words.
func TestDoctorRunsAsTheUnit(t *testing.T) {
	unit, err := filepath.Abs("../../deploy/cutroom.service")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"systemctl": "cat " + unit + "; printf '[Service]\\nEnvironment=LOG_LEVEL=debug\\nExecStart=\\nExecStart=/opt/cutroom serve\\n'",
		"systemd-run": `printf '%s\n' "$@" > ` + dir + `/args
			echo "FAIL  ffmpeg  no landlock"; exit 1`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("ROLES", "")
	var stdout, stderr bytes.Buffer
	if status := run([]string{"doctor", "--as-unit", "--roles", "render"}, &stdout, &stderr); status != 1 || stdout.String() != "FAIL  ffmpeg  no landlock\n" {
		t.Errorf("exit status %d: %s%s", status, &stdout, &stderr)
	}
	noted, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSpace(string(noted)), "\n")
	if end := args[len(args)-4:]; !slices.Equal(end, []string{"--setenv=ROLES=render", "--", "/opt/cutroom", "doctor"}) {
		t.Errorf("it runs %q", end)
	}
	for _, want := range []string{"User=cutroom", "EnvironmentFile=/etc/cutroom/cutroom.env", "Environment=LOG_LEVEL=debug", "ProtectSystem=strict",
		"RestrictNamespaces=user net ipc pid", "SystemCallErrorNumber=EPERM", "StateDirectory=cutroom"} {
		if !slices.Contains(args, "--property="+want) {
			t.Errorf("the transient unit lacks %s", want)
		}
	}
	for _, arg := range args {
		if key, _, _ := strings.Cut(strings.TrimPrefix(arg, "--property="), "="); slices.Contains(supervision, key) || key == "WantedBy" {
			t.Errorf("the transient unit has %s", arg)
		}
	}

	t.Setenv("PATH", t.TempDir())
	if status := run([]string{"doctor", "--as-unit"}, &stdout, &stderr); status != 1 || !strings.Contains(stderr.String(), "needs systemd") {
		t.Errorf("without systemd: exit status %d: %s", status, &stderr)
	}
}
