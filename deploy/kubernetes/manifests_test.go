// Package kubernetes holds no code, only the manifests that run cutroom on Kubernetes. The tests build them as kubectl
// does, decode them strictly into the published types and compare them with the program. It is a separate module, so
// that the service does not depend on any of that.
package kubernetes

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"cutroom/internal/config"
)

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// manifests are what kubectl applies, by kind and name.
type manifests map[string]runtime.Object

func build(t *testing.T) manifests {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "small")
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, autoscaling.AddToScheme, batch.AddToScheme,
		core.AddToScheme, networking.AddToScheme, disruption.AddToScheme, monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	m := manifests{}
	for _, r := range resources.Resources() {
		name := r.GetKind() + "/" + r.GetName()
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		if r.GetKind() != "Namespace" && r.GetNamespace() != "cutroom" {
			t.Errorf("%s is in %q", name, r.GetNamespace())
		}
		if r.GetKind() == "ScaledObject" {
			continue // the module with KEDA's types depends on those of every system that KEDA can query
		}
		if m[name], _, err = decoder.Decode(text, nil, nil); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
	}
	if _, _, err := decoder.Decode([]byte(read(t, "autoscaling/hpa/hpa.yaml")), nil, nil); err != nil {
		t.Errorf("the alternative to KEDA: %v", err)
	}
	return m
}

// get returns the manifest of a kind and name.
func get[T runtime.Object](t *testing.T, m manifests, name string) T {
	t.Helper()
	object, ok := m[name].(T)
	if !ok {
		t.Fatalf("there is no %s among %v", name, slices.Sorted(maps.Keys(m)))
	}
	return object
}

// pods returns the pods of the deployments and of the job, by name.
func (m manifests) pods() map[string]core.PodTemplateSpec {
	out := map[string]core.PodTemplateSpec{}
	for _, object := range m {
		switch o := object.(type) {
		case *apps.Deployment:
			out[o.Name] = o.Spec.Template
		case *batch.Job:
			out[o.Name] = o.Spec.Template
		}
	}
	return out
}

// config is the configuration of a pod whose secrets are filled in. No secret may be in a ConfigMap.
func (m manifests) config(t *testing.T, name string) config.Config {
	t.Helper()
	c, env := m.pods()[name].Spec.Containers[0], map[string]string{}
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			maps.Copy(env, get[*core.ConfigMap](t, m, "ConfigMap/"+from.ConfigMapRef.Name).Data)
		}
	}
	for _, k := range regexp.MustCompile(`(?m)^(\w+)=$`).FindAllStringSubmatch(read(t, "small/secret.env.example"), -1) {
		if env[k[1]] != "" {
			t.Errorf("the secret %s is in a ConfigMap", k[1])
		}
		env[k[1]] = k[1] + strings.Repeat("x", 40)
	}
	for _, e := range c.Env {
		if env[e.Name] = e.Value; e.ValueFrom != nil {
			env[e.Name] = "of " + e.ValueFrom.SecretKeyRef.Name
		}
	}
	for k := range env {
		if !slices.ContainsFunc(config.Keys, func(key config.Key) bool { return key.Name == k }) {
			t.Errorf("%s: %s is no key of the service", name, k)
		}
	}
	cfg, err := config.Load(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	if err != nil || len(cfg.Warnings) > 0 {
		t.Fatalf("%s: %v, warnings %q", name, err, cfg.Warnings)
	}
	return cfg
}

func TestPodsKeepTheRestrictedProfile(t *testing.T) {
	m := build(t)
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	if labels := get[*core.Namespace](t, m, "Namespace/cutroom").Labels; labels[api.EnforceLevelLabel] != string(level.Level) {
		t.Errorf("the namespace is labelled %v", labels)
	}
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, pod := range m.pods() {
		for _, result := range checks.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
			if !result.Allowed {
				t.Errorf("%s: %s: %s", name, result.ForbiddenReason, result.ForbiddenDetail)
			}
		}
		if user := *pod.Spec.SecurityContext.RunAsUser; !strings.Contains(read(t, "../Dockerfile"), fmt.Sprintf("USER %d:", user)) {
			t.Errorf("%s runs as %d, another user than the image's", name, user)
		}
		if *pod.Spec.AutomountServiceAccountToken || !*pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s has more than it needs", name)
		}
	}
}

// Every role runs once, in pods that start, have their disk and time to stop, and are not killed for their memory.
func TestPodsRunEveryRole(t *testing.T) {
	m := build(t)
	var roles []string
	for _, name := range []string{"api", "render", "separation"} {
		cfg, spec := m.config(t, name), m.pods()[name].Spec
		roles = append(roles, cfg.Roles.String())
		c := spec.Containers[0]
		if !slices.ContainsFunc(c.VolumeMounts, func(v core.VolumeMount) bool { return v.MountPath == cfg.Storage.Path }) {
			t.Errorf("%s has no volume at %s", name, cfg.Storage.Path)
		}
		films := map[string]int64{"api": 1, "render": int64(cfg.Render.MaxConcurrent), "separation": int64(cfg.Separation.MaxInFlight)}[name]
		most := 300<<20 + films*cfg.Media.MaxMemoryBytes
		if name == "api" { // an analysis on each core
			most += c.Resources.Limits.Cpu().Value() * number(t, "../../internal/film/media/probe.go", `AnalysisLimits = .*MaxMemoryBytes: (\d+) << 20`) << 20
		}
		if memory := c.Resources.Limits.Memory().Value(); memory < most {
			t.Errorf("%s may use %d MB, and its limit is %d", name, most>>20, memory>>20)
		}
		grace := *spec.TerminationGracePeriodSeconds
		if c.Lifecycle != nil {
			grace -= c.Lifecycle.PreStop.Sleep.Seconds
		}
		if least := number(t, "../../internal/app/app.go", `drainTimeout = (\d+) \* time\.Second`) + 30; grace < least {
			t.Errorf("%s is killed %d s after SIGTERM, want %d", name, grace, least)
		}
		if cfg.Database.User != "cutroom_service" {
			t.Errorf("%s uses the database as %s", name, cfg.Database.User)
		}
	}
	if got := strings.Join(roles, " "); got != "api render separation,sweep" {
		t.Errorf("the deployments have the roles %s", got)
	}
	if owner := m.config(t, "migrate").Database; owner.User != "cutroom_owner" || owner.Password.Reveal() != "of cutroom-owner" {
		t.Errorf("migrate uses the database as %s", owner.User)
	}
}

// number returns the single match of a pattern's group in a file.
func number(t *testing.T, path, pattern string) int64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, path), -1)
	if len(found) != 1 {
		t.Fatalf("%s: %d matches of %s, want 1", path, len(found), pattern)
	}
	n, err := strconv.ParseInt(found[0][1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Clients, Prometheus and probes find the ports, and the network lets nobody else in and little out.
func TestPortsAreOpenToThoseWhoNeedThem(t *testing.T) {
	m := build(t)
	in, out := map[int32]bool{}, map[int32]bool{}
	for _, name := range []string{"cutroom", "api"} {
		spec := get[*networking.NetworkPolicy](t, m, "NetworkPolicy/"+name).Spec
		for _, rule := range spec.Ingress {
			if len(rule.From) == 0 {
				t.Errorf("%s lets everybody in", name)
			}
			in[rule.Ports[0].Port.IntVal] = true
		}
		for _, rule := range spec.Egress {
			out[rule.Ports[0].Port.IntVal] = true
		}
	}
	all := get[*networking.NetworkPolicy](t, m, "NetworkPolicy/cutroom").Spec
	if !maps.Equal(in, map[int32]bool{8080: true, 9090: true}) || !maps.Equal(out, map[int32]bool{53: true, 5432: true, 443: true}) ||
		len(all.PolicyTypes) != 2 || len(all.PodSelector.MatchLabels)+len(all.PodSelector.MatchExpressions) > 0 {
		t.Errorf("ports %v are let in and %v out, of %+v", in, out, all.PodSelector)
	}
	for name, pod := range m.pods() {
		c := pod.Spec.Containers[0]
		selected := true
		for k, v := range get[*core.Service](t, m, "Service/api").Spec.Selector {
			selected = selected && pod.Labels[k] == v
		}
		if selected != (name == "api") {
			t.Errorf("the service selects %s: %v", name, selected)
		}
		if name == "migrate" {
			continue
		}
		cfg, ports := m.config(t, name), map[string]string{}
		for _, p := range c.Ports {
			ports[p.Name] = fmt.Sprintf(":%d", p.ContainerPort)
		}
		if ports["ops"] != cfg.HTTP.OpsAddr || cfg.HTTP.OpsAddr != ":9090" || cfg.Roles.API && ports["http"] != fmt.Sprintf(":%d", cfg.HTTP.Port) {
			t.Errorf("%s has the ports %v", name, ports)
		}
		// A bucket that is away must not keep it from starting, restart it or take it from the front.
		if c.StartupProbe.HTTPGet.Path != "/healthz" || c.LivenessProbe.HTTPGet.Path != "/healthz" ||
			cfg.Roles.API && c.ReadinessProbe.HTTPGet.Path != "/healthz" {
			t.Errorf("%s is not probed at /healthz", name)
		}
	}
	// The front takes the largest file, by the host of the links.
	ingress, cfg := get[*networking.Ingress](t, m, "Ingress/api"), m.config(t, "api")
	size := ingress.Annotations["nginx.ingress.kubernetes.io/proxy-body-size"]
	if n, err := strconv.ParseInt(strings.TrimSuffix(size, "m"), 10, 64); err != nil || n<<20 <= cfg.Storage.MaxUploadBytes ||
		cfg.HTTP.PublicBaseURL != "https://"+ingress.Spec.Rules[0].Host {
		t.Errorf("bodies of %s pass, to %s", size, ingress.Spec.Rules[0].Host)
	}
}

var update = flag.Bool("update", false, "write monitoring/prometheusrule.yaml")

func TestTheAlertsAreThoseOfTheFile(t *testing.T) {
	const path = "monitoring/prometheusrule.yaml"
	text := "# By go test -update, from ../../alerts.yml.\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n" +
		"metadata: {name: cutroom}\nspec:\n" + regexp.MustCompile(`(?m)^(.*\S)`).ReplaceAllString(read(t, "../alerts.yml"), "  $1")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, path) != text {
		t.Errorf("%s is not ../alerts.yml: go test -update", path)
	}
}
