package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Scripts stand in for systemd: systemctl prints the unit of deploy/ with a drop-in, and
// systemd-run records its arguments and fails as an unhealthy doctor does.
func TestDoctorRunsAsTheUnit(t *testing.T) {
	unit, err := filepath.Abs("../../deploy/cutroom.service")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"systemctl": "cat " + unit + "; printf '[Service]\\nEnvironment=DB_PASSWORD_FILE=%%d/db\\nExecStart=\\nExecStart=/opt/cutroom serve\\n'",
		"systemd-run": `printf '%s\n' "$@" > ` + dir + `/args
			echo "FAIL  ffmpeg  no landlock"; exit 1`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("ROLES", "") // undone with what --roles sets
	var stdout, stderr bytes.Buffer
	if status := run([]string{"doctor", "--as-unit", "--roles", "render"}, &stdout, &stderr); status != 1 || stdout.String() != "FAIL  ffmpeg  no landlock\n" {
		t.Errorf("exit status %d: %s%s", status, &stdout, &stderr)
	}
	noted, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSpace(string(noted)), "\n")
	if end := args[len(args)-5:]; !slices.Equal(end, []string{"--", "/opt/cutroom", "doctor", "--roles", "render"}) {
		t.Errorf("it runs %q", end)
	}
	for _, want := range []string{"User=cutroom", "EnvironmentFile=/etc/cutroom/cutroom.env", "ProtectSystem=strict",
		"Environment=DB_PASSWORD_FILE=/run/credentials/" + strings.TrimPrefix(args[0], "--unit=") + "/db",
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
