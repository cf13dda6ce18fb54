// Compares alerts, dashboard and inhibitions with the metrics that the service exports.

package deploy

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// metricNames are the metrics that the service exports.
func metricNames(t testing.TB) []string {
	t.Helper()
	var out []string
	files, err := filepath.Glob("../internal/ops/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
	for _, file := range append(files, "../internal/domain/admin/gauges.go") {
		for _, m := range regexp.MustCompile(`"(cutroom_[a-z_]+)"`).FindAllStringSubmatch(read(t, file), -1) {
			out = append(out, m[1])
		}
	}
	if len(out) < 8 {
		t.Fatalf("only %v found", out)
	}
	return out
}

// checkExpression fails the test unless the service exports every metric and every state in a query.
func checkExpression(t testing.TB, where, expr string) {
	t.Helper()
	names := metricNames(t)
	exported := 0
	series := regexp.MustCompile(`_(bucket|count|sum)$`) // of a histogram
	for _, name := range regexp.MustCompile(`\b(cutroom|process|go|up)([_:][a-z0-9_:]+)?\b`).FindAllString(withoutStrings(expr), -1) {
		exported++
		switch {
		case slices.Contains(names, name), slices.Contains(names, series.ReplaceAllString(name, "")):
		case strings.Contains(read(t, "alerts.yml"), "- record: "+name+"\n"):
		case name == "up", strings.HasPrefix(name, "process_"), strings.HasPrefix(name, "go_"): // the standard collectors'
		default:
			t.Errorf("%s asks for %s, which the service does not export", where, name)
		}
	}
	if exported == 0 {
		t.Errorf("%s asks for no metric of the service: %s", where, expr)
	}
	for _, m := range regexp.MustCompile(`\bstate=~?"([^"]*)"`).FindAllStringSubmatch(expr, -1) {
		for state := range strings.SplitSeq(m[1], "|") {
			if !strings.Contains(read(t, "../internal/domain/render/render.go")+read(t, "../internal/domain/separation/separation.go"), `"`+state+`"`) {
				t.Errorf("%s asks for state %s, which no job has", where, state)
			}
		}
	}
	for _, m := range regexp.MustCompile(`\broute=~"([^"]*)"`).FindAllStringSubmatch(expr, -1) {
		route, err := regexp.Compile("^(?:" + m[1] + ")$")
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		hits := 0
		for _, r := range regexp.MustCompile(`s\.handle\("([^"]+)"`).FindAllStringSubmatch(read(t, "../internal/api/httpapi/server.go"), -1) {
			if route.MatchString(r[1]) {
				hits++
			}
		}
		if hits == 0 {
			t.Errorf("%s: no route matches %s", where, m[1])
		}
	}
}

// withoutStrings drops label values, which may look like metrics.
func withoutStrings(expr string) string {
	return regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expr, `""`)
}

type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t testing.TB) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "alerts.yml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, slices.DeleteFunc(g.Rules, func(a alert) bool { return a.Alert == "" })...) // recording rules
	}
	if len(all) < 10 {
		t.Fatalf("alerts.yml has %d alerts", len(all))
	}
	return all
}

func TestAlertsAskForWhatIsExported(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		if !strings.HasPrefix(a.Alert, "Cutroom") || seen[a.Alert] {
			t.Errorf("alert %q", a.Alert)
		}
		seen[a.Alert] = true
		checkExpression(t, a.Alert, a.Expr)
		if a.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) {
			t.Errorf("%s has labels %v and annotations %v", a.Alert, a.Labels, a.Annotations)
		}
		// docs_test.go checks that the section exists.
		if want := "docs/operations.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
	}
}

// An inhibition of an alert that does not exist silences nothing.
func TestInhibitionsNameAlerts(t *testing.T) {
	for _, m := range regexp.MustCompile(`alertname=~?"([^"]*)"`).FindAllStringSubmatch(read(t, "alertmanager.yml"), -1) {
		for name := range strings.SplitSeq(m[1], "|") {
			if !slices.ContainsFunc(alerts(t), func(a alert) bool { return regexp.MustCompile("^(?:" + name + ")$").MatchString(a.Alert) }) {
				t.Errorf("alertmanager.yml speaks of %s, which is no alert", name)
			}
		}
	}
}

// alerts_test.yml, which make check-alerts runs, lets every alert fire and rest on made-up series.
func TestEveryAlertIsTried(t *testing.T) {
	var file struct {
		Tests []struct {
			Rules []struct {
				Alert  string `yaml:"alertname"`
				Expect []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "alerts_test.yml")), &file); err != nil {
		t.Fatal(err)
	}
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, r := range test.Rules {
			fires[r.Alert] = fires[r.Alert] || len(r.Expect) > 0
			rests[r.Alert] = rests[r.Alert] || len(r.Expect) == 0
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !rests[a.Alert] {
			t.Errorf("alerts_test.yml tries %s: fires %v, rests %v", a.Alert, fires[a.Alert], rests[a.Alert])
		}
	}
}

func TestDashboardAsksForWhatIsExported(t *testing.T) {
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text := read(t, "dashboard.json")
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			checkExpression(t, "panel "+p.Title, target.Expr)
		}
	}
	for _, name := range metricNames(t) {
		if !strings.Contains(text, name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
