package deploy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The route of alertmanager.yml sends one message for all effects of one fault.
// Skipped without Alertmanager (make check-alerts unpacks it).
func TestOneMessageForOneCause(t *testing.T) {
	tools, err := filepath.Abs("../.tools/prometheus/usr")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tools + "/bin/prometheus-alertmanager"); err != nil {
		t.Skip("no Alertmanager here; make check-alerts unpacks it")
	}
	for fault, test := range map[string]struct{ fire, sent []string }{
		"no database": {
			[]string{"CutroomDatabaseUnreachable", "CutroomErrors", "CutroomNotReady reason=database", "CutroomDependencyFails of=database", "CutroomNobodySweeps"},
			[]string{"CutroomDatabaseUnreachable"}},
		"provider down": {
			[]string{"CutroomProviderFails", "CutroomDependencyFails of=separation_provider", "CutroomSeparationQueue",
				"CutroomJobsFail type=separation", "CutroomJobSuccessBurn type=separation", "CutroomJobsFail type=render"},
			[]string{"CutroomProviderFails", "CutroomJobsFail type=render"}},
		"provider's certificate expired": {
			[]string{"CutroomCertificateRefused of=separation_provider", "CutroomCertificateExpires of=separation_provider",
				"CutroomCertificateExpires of=webhook", "CutroomProviderFails", "CutroomDependencyFails of=separation_provider", "CutroomSeparationQueue"},
			[]string{"CutroomCertificateRefused of=separation_provider", "CutroomCertificateExpires of=webhook"}},
		"bucket's certificate expired": {
			[]string{"CutroomCertificateRefused of=bucket", "CutroomNotReady instance=a reason=store", "CutroomDependencyFails of=bucket", "CutroomDependencyFails of=platform_a"},
			[]string{"CutroomCertificateRefused of=bucket", "CutroomDependencyFails of=platform_a"}},
		"bucket away": {
			[]string{"CutroomNotReady instance=a reason=store", "CutroomDependencyFails of=bucket"},
			[]string{"CutroomNotReady instance=a reason=store"}},
		"disk full": {
			[]string{"CutroomNotReady instance=a reason=disk", "CutroomDiskFills instance=a", "CutroomDiskFills instance=b"},
			[]string{"CutroomNotReady instance=a reason=disk", "CutroomDiskFills instance=b"}},
		"requests fail": {[]string{"CutroomErrors", "CutroomAvailabilityBurn"}, []string{"CutroomErrors"}},
		"renders fail":  {[]string{"CutroomJobsFail type=render", "CutroomJobSuccessBurn type=render"}, []string{"CutroomJobsFail type=render"}},
		"films wait":    {[]string{"CutroomIdleWithWork", "CutroomRenderQueue", "CutroomFilmsLate"}, []string{"CutroomIdleWithWork"}},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			address := startAlertmanager(t, tools)
			fire(t, address, test.fire)
			slices.Sort(test.sent)
			var got []string
			for deadline := time.Now().Add(10 * time.Second); !slices.Equal(got, test.sent); { // it handles one alert at a time
				if got = notInhibited(t, address); time.Now().After(deadline) {
					t.Fatalf("%q send %q, want %q", test.fire, got, test.sent)
				}
			}
		})
	}
}

// startAlertmanager starts Debian's Alertmanager. It reads its templates from
// /usr/share, which a mount namespace provides.
func startAlertmanager(t *testing.T, tools string) (address string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", "--map-root-user", "--mount",
		"sh", "-c", `mount --bind "$0/share" /usr/share && exec "$0/bin/prometheus-alertmanager" "$@"`, tools, "--config.file=alertmanager.yml", "--storage.path="+t.TempDir(),
		"--cluster.listen-address=", "--web.listen-address=127.0.0.1:0")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // its end is no result
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if m := regexp.MustCompile(`address=(127\.0\.0\.1:\d+)`).FindStringSubmatch(lines.Text()); m != nil && !strings.HasSuffix(m[1], ":0") {
			return "http://" + m[1] + "/api/v2/alerts"
		}
	}
	t.Fatal("Alertmanager does not start")
	return ""
}

// fire posts alerts: a name, and labels with their values.
func fire(t *testing.T, address string, names []string) {
	t.Helper()
	known := map[string]bool{}
	for _, a := range alerts(t) {
		known[a.Alert] = true
	}
	var posted []map[string]any
	for _, name := range names {
		words := strings.Fields(name)
		if !known[words[0]] {
			t.Fatalf("no alert %s", words[0])
		}
		labels := map[string]string{"alertname": words[0]}
		for _, label := range words[1:] {
			key, value, _ := strings.Cut(label, "=")
			labels[key] = value
		}
		posted = append(posted, map[string]any{"labels": labels})
	}
	body, err := json.Marshal(posted)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(address, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // nothing was written
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}

// notInhibited returns the alerts that are sent, in the form that fire takes, sorted.
func notInhibited(t *testing.T, address string) []string {
	t.Helper()
	resp, err := http.Get(address + "?inhibited=false")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var alerts []struct{ Labels map[string]string }
	if err := json.NewDecoder(resp.Body).Decode(&alerts); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range alerts {
		name := a.Labels["alertname"]
		for _, label := range []string{"instance", "of", "reason", "type"} {
			if a.Labels[label] != "" {
				name += fmt.Sprintf(" %s=%s", label, a.Labels[label])
			}
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
