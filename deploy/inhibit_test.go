package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// inhibition is a rule of alertmanager.yml: while an alert matches the source, those that match the target are not sent.
type inhibition struct {
	Source []string `yaml:"source_matchers"`
	Target []string `yaml:"target_matchers"`
	Equal  []string `yaml:"equal"`
}

// The route of alertmanager.yml sends one message for all effects of one fault.
func TestOneMessageForOneCause(t *testing.T) {
	var file struct {
		Rules []inhibition `yaml:"inhibit_rules"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "alertmanager.yml")), &file); err != nil {
		t.Fatal(err)
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
		var firing []map[string]string
		for _, name := range test.fire {
			labels := map[string]string{}
			for label := range strings.FieldsSeq("alertname=" + name) {
				key, value, _ := strings.Cut(label, "=")
				labels[key] = value
			}
			if !slices.ContainsFunc(alerts(t), func(a alert) bool { return a.Alert == labels["alertname"] }) {
				t.Errorf("no alert %s", name)
			}
			firing = append(firing, labels)
		}
		var sent []string
		for i, labels := range firing {
			if !slices.ContainsFunc(file.Rules, func(r inhibition) bool { return r.inhibits(t, labels, firing) }) {
				sent = append(sent, test.fire[i])
			}
		}
		if !slices.Equal(sent, test.sent) {
			t.Errorf("%s: %q send %q, want %q", fault, test.fire, sent, test.sent)
		}
	}
}

// inhibits reports whether the rule keeps an alert from being sent while others fire.
func (r inhibition) inhibits(t *testing.T, target map[string]string, firing []map[string]string) bool {
	return matches(t, r.Target, target) && slices.ContainsFunc(firing, func(source map[string]string) bool {
		return matches(t, r.Source, source) && !slices.ContainsFunc(r.Equal, func(label string) bool { return source[label] != target[label] })
	})
}

func matches(t *testing.T, matchers []string, labels map[string]string) bool {
	return !slices.ContainsFunc(matchers, func(matcher string) bool {
		m := regexp.MustCompile(`^(\w+)(=|=~|!~)"(.*)"$`).FindStringSubmatch(matcher)
		if m == nil {
			t.Fatalf("the matcher %s has no form that this test knows", matcher)
		}
		fits := m[3] == labels[m[1]]
		if m[2] != "=" {
			fits = regexp.MustCompile("^(?:" + m[3] + ")$").MatchString(labels[m[1]])
		}
		return fits == (m[2] == "!~")
	})
}
