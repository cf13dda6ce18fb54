// Package kubernetes holds no code, only the manifests that run cutroom on
// Kubernetes. The tests build them as kubectl does, decode them strictly into the
// published types and compare them with the program. It is a separate module, so that
// the service does not depend on any of that.
package kubernetes

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	"sigs.k8s.io/yaml"

	"cutroom/internal/config"
	"cutroom/internal/disk"
)

// scaledObject is the used part of KEDA's type. The module with the full type depends
// on those of every system that KEDA can query.
type scaledObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		ScaleTargetRef  struct{ Name string } `json:"scaleTargetRef"`
		MinReplicaCount int32                 `json:"minReplicaCount"`
		MaxReplicaCount int32                 `json:"maxReplicaCount"`
		PollingInterval int32                 `json:"pollingInterval"`
		Advanced        struct {
			HPA struct {
				Behavior *autoscaling.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type       string                       `json:"type"`
			Name       string                       `json:"name"`
			MetricType autoscaling.MetricTargetType `json:"metricType"`
			Metadata   struct {
				ServerAddress string `json:"serverAddress"`
				Query         string `json:"query"`
				Threshold     string `json:"threshold"`
			} `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// manifests are what kubectl applies.
type manifests struct {
	deployments map[string]*apps.Deployment
	jobs        map[string]*batch.Job
	settings    map[string]*core.ConfigMap
	service     *core.Service
	budgets     []*disruption.PodDisruptionBudget
	policies    map[string]*networking.NetworkPolicy
	ingress     *networking.Ingress
	hpa         *autoscaling.HorizontalPodAutoscaler
	scaled      *scaledObject
	namespace   *core.Namespace
	monitor     *monitoring.PodMonitor
	rules       *monitoring.PrometheusRule
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What is built from the overlay: a part of it and its replacement.
var (
	asIs      = [2]string{`^$`}
	byHPA     = [2]string{`autoscaling/\w+`, "autoscaling/hpa"}
	unpatched = [2]string{`(?s)\npatches:.*`} // with the sizes of the base
)

func build(t *testing.T, change [2]string) manifests {
	t.Helper()
	files := filesys.MakeFsInMemory()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		text := read(t, path)
		if path == "small/kustomization.yaml" {
			text = regexp.MustCompile(change[0]).ReplaceAllString(text, change[1])
		}
		return files.WriteFile("/"+path, []byte(text))
	})
	if err != nil {
		t.Fatal(err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/small")
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, autoscaling.AddToScheme, batch.AddToScheme, core.AddToScheme, networking.AddToScheme, disruption.AddToScheme,
		monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	m := manifests{deployments: map[string]*apps.Deployment{}, jobs: map[string]*batch.Job{}, settings: map[string]*core.ConfigMap{},
		policies: map[string]*networking.NetworkPolicy{}}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		if r.GetKind() != "Namespace" && r.GetNamespace() != "cutroom" {
			t.Errorf("%s %s is in %q", r.GetKind(), r.GetName(), r.GetNamespace())
		}
		if r.GetKind() == "ScaledObject" {
			m.scaled = &scaledObject{}
			if err := yaml.UnmarshalStrict(text, m.scaled); err != nil {
				t.Errorf("ScaledObject: %v", err)
			}
			continue
		}
		object, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", r.GetKind(), r.GetName(), err, text)
		}
		switch o := object.(type) {
		case *apps.Deployment:
			m.deployments[o.Name] = o
		case *batch.Job:
			m.jobs[o.Name] = o
		case *core.ConfigMap:
			m.settings[o.Name] = o
		case *core.Service:
			m.service = o
		case *disruption.PodDisruptionBudget:
			m.budgets = append(m.budgets, o)
		case *networking.NetworkPolicy:
			m.policies[o.Name] = o
		case *networking.Ingress:
			m.ingress = o
		case *autoscaling.HorizontalPodAutoscaler:
			m.hpa = o
		case *core.Namespace:
			m.namespace = o
		case *monitoring.PodMonitor:
			m.monitor = o
		case *monitoring.PrometheusRule:
			m.rules = o
		default:
			t.Errorf("%T %s is not looked at", o, r.GetName())
		}
	}
	if len(m.deployments) != 3 || len(m.jobs) != 1 {
		t.Fatalf("%d deployments, %d jobs", len(m.deployments), len(m.jobs))
	}
	return m
}

// pods returns the pods of all deployments and jobs, by name.
func (m manifests) pods() map[string]core.PodTemplateSpec {
	out := map[string]core.PodTemplateSpec{}
	for name, d := range m.deployments {
		out[name] = d.Spec.Template
	}
	for name, j := range m.jobs {
		out[name] = j.Spec.Template
	}
	return out
}

// secret is small/secret.env.example, filled in.
func secret(t *testing.T) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)=$`).FindAllStringSubmatch(read(t, "small/secret.env.example"), -1) {
		out[m[1]] = m[1] + strings.Repeat("x", 40)
	}
	return out
}

// environment is the environment of a pod's only container.
func (m manifests) environment(t *testing.T, pod core.PodSpec) map[string]string {
	t.Helper()
	env := map[string]string{}
	c := pod.Containers[0]
	for _, from := range c.EnvFrom {
		switch {
		case from.ConfigMapRef != nil:
			settings, ok := m.settings[from.ConfigMapRef.Name]
			if !ok {
				t.Fatalf("there is no ConfigMap %s", from.ConfigMapRef.Name)
			}
			for k, v := range settings.Data {
				env[k] = v
			}
		case from.SecretRef != nil && from.SecretRef.Name == "cutroom":
			for k, v := range secret(t) {
				env[k] = v
			}
		default:
			t.Errorf("settings from %+v", from)
		}
	}
	for _, e := range c.Env {
		env[e.Name] = e.Value
		if from := e.ValueFrom; from != nil {
			if from.SecretKeyRef == nil || from.SecretKeyRef.Name != "cutroom-owner" {
				t.Errorf("%s comes from %+v", e.Name, from)
			}
			env[e.Name] = "secret of the owner"
		}
	}
	return env
}

func (m manifests) config(t *testing.T, name string, pod core.PodSpec) config.Config {
	t.Helper()
	env := m.environment(t, pod)
	for k := range env {
		if !slices.ContainsFunc(config.Keys, func(key config.Key) bool { return key.Name == k }) {
			t.Errorf("%s: %s is no key of the service", name, k)
		}
	}
	cfg, err := config.Load(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	if err != nil {
		t.Fatalf("%s is not started: %v", name, err)
	}
	for _, w := range cfg.Warnings {
		t.Errorf("%s is warned: %s", name, w)
	}
	return cfg
}

func TestPodsKeepTheRestrictedProfile(t *testing.T) {
	m := build(t, asIs)
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	if m.namespace.Labels[api.EnforceLevelLabel] != string(level.Level) {
		t.Errorf("the namespace is labelled %v", m.namespace.Labels)
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
		c := pod.Spec.Containers[0]
		user := fmt.Sprintf("USER %d:%d\n", *pod.Spec.SecurityContext.RunAsUser, *pod.Spec.SecurityContext.RunAsGroup)
		if !strings.Contains(read(t, "../Dockerfile"), user) {
			t.Errorf("%s runs as another user than the image's: %s", name, user)
		}
		if *pod.Spec.AutomountServiceAccountToken || *pod.Spec.EnableServiceLinks || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s has more than it needs", name)
		}
		if image, tag, _ := strings.Cut(c.Image, ":"); !strings.HasSuffix(image, "/cutroom") || tag == "" || tag == "latest" {
			t.Errorf("%s: image %s", name, c.Image)
		}
	}
}

func TestSettingsAreTheProgramsOwn(t *testing.T) {
	for _, of := range [][2]string{asIs, unpatched} {
		checkSettings(t, build(t, of))
	}
}

func checkSettings(t *testing.T, m manifests) {
	var all config.Roles
	for name, d := range m.deployments {
		pod := d.Spec.Template.Spec
		cfg := m.config(t, name, pod)
		for role, on := range map[*bool]bool{&all.API: cfg.Roles.API, &all.Render: cfg.Roles.Render, &all.Separation: cfg.Roles.Separation, &all.Sweep: cfg.Roles.Sweep} {
			if *role && on {
				t.Errorf("%s has a role that another deployment has too", name)
			}
			*role = *role || on
		}
		if !strings.Contains(read(t, "../postgres/roles.sql"), "CREATE ROLE "+cfg.Database.User+" LOGIN") {
			t.Errorf("%s has the unknown role %s", name, cfg.Database.User)
		}
		storage := storageOf(t, name, pod, cfg.Storage.Path)
		need := int64(disk.Reserve) + int64(4*max(1, cfg.Render.MaxConcurrent))*cfg.Storage.MaxUploadBytes
		if need += storage * 3 / 8; storage < need { // with the caches
			t.Errorf("%s has a disk of %d MB, and may need %d", name, storage>>20, need>>20)
		}
		// The kernel kills the whole pod if its processes together need more than
		// this.
		limits := pod.Containers[0].Resources.Limits
		cores, memory := limits.Cpu().Value(), limits.Memory().Value()
		analysis := number(t, "../../internal/media/probe.go", `AnalysisLimits = .*MaxMemoryBytes: (\d+) << 20`) << 20
		most := int64(300 << 20)
		if cfg.Roles.API {
			most += cores*analysis + cfg.Media.MaxMemoryBytes
		}
		if cfg.Roles.Render {
			most += int64(cfg.Render.MaxConcurrent) * cfg.Media.MaxMemoryBytes
			if cfg.Render.MaxConcurrent > int(cores) {
				t.Errorf("%s makes %d films on %d cores", name, cfg.Render.MaxConcurrent, cores)
			}
		}
		if cfg.Roles.Separation {
			most += int64(cfg.Separation.MaxInFlight) * cfg.Media.MaxMemoryBytes
		}
		if memory < most {
			t.Errorf("%s may use %d MB, and its limit is %d", name, most>>20, memory>>20)
		}
	}
	if all != config.AllRoles {
		t.Errorf("the deployments have the roles %v", all)
	}
	migrate := m.jobs["migrate"].Spec.Template.Spec
	cfg := m.config(t, "migrate", migrate)
	if owner := cfg.Database.User; !strings.Contains(read(t, "../postgres/roles.sql"), "CREATE ROLE "+owner+" LOGIN") || owner == m.config(t, "api", m.deployments["api"].Spec.Template.Spec).Database.User {
		t.Errorf("migrate runs as %s", owner)
	}
	if !slices.Equal(migrate.Containers[0].Args, []string{"migrate"}) {
		t.Errorf("migrate runs %v", migrate.Containers[0].Args)
	}
	for name := range secret(t) {
		for _, settings := range m.settings {
			if _, both := settings.Data[name]; both {
				t.Errorf("the secret %s is in a ConfigMap", name)
			}
		}
	}
	if host := m.ingress.Spec.Rules[0].Host; cfg.HTTP.PublicBaseURL != "https://"+host || m.ingress.Spec.TLS[0].Hosts[0] != host {
		t.Errorf("clients come by %s, links lead to %s", host, cfg.HTTP.PublicBaseURL)
	}
}

// storageOf returns the size of the volume at STORAGE_PATH, whose limit the program
// must be able to see.
func storageOf(t *testing.T, name string, pod core.PodSpec, path string) int64 {
	t.Helper()
	mounts := pod.Containers[0].VolumeMounts
	at := slices.IndexFunc(mounts, func(v core.VolumeMount) bool { return v.MountPath == path })
	if at < 0 {
		t.Fatalf("%s has no volume at %s", name, path)
	}
	for _, v := range pod.Volumes {
		if v.Name == mounts[at].Name && v.Ephemeral != nil && len(v.Ephemeral.VolumeClaimTemplate.Spec.AccessModes) == 1 {
			return v.Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests.Storage().Value()
		}
	}
	t.Fatalf("%s has no disk of its own at %s", name, path)
	return 0
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

// Probes use existing paths on ports that the program opens, and the network allows
// what it needs, in and out.
func TestPortsAndProbesAreThere(t *testing.T) {
	m := build(t, asIs)
	at := map[string]string{"http": read(t, "../../internal/httpapi/server.go"), "ops": read(t, "../../internal/ops/ops.go")}
	var served, watched int32
	for name, d := range m.deployments {
		c := d.Spec.Template.Spec.Containers[0]
		cfg := m.config(t, name, d.Spec.Template.Spec)
		want := map[string]string{"ops": cfg.HTTP.OpsAddr}
		if cfg.Roles.API {
			want["http"] = fmt.Sprintf(":%d", cfg.HTTP.Port)
		}
		for _, p := range c.Ports {
			if want[p.Name] != fmt.Sprintf(":%d", p.ContainerPort) {
				t.Errorf("%s: port %s is %d, the program's %s", name, p.Name, p.ContainerPort, want[p.Name])
			}
			delete(want, p.Name)
			if p.Name == "http" {
				served = p.ContainerPort
			} else {
				watched = p.ContainerPort
			}
		}
		if len(want) > 0 {
			t.Errorf("%s lacks ports %v", name, want)
		}
		probes := map[string]*core.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe}
		for kind, p := range probes {
			if p == nil || !strings.Contains(at[p.HTTPGet.Port.StrVal], `"GET `+p.HTTPGet.Path+`"`) {
				t.Errorf("%s: %s probe %+v asks for what is not there", name, kind, p)
			}
			if p.TimeoutSeconds < 5 { // a failing readiness check takes this long
				t.Errorf("%s: %s probe gives %d s", name, kind, p.TimeoutSeconds)
			}
		}
		if c.StartupProbe.HTTPGet.Path != "/healthz" || c.LivenessProbe.HTTPGet.Path != "/healthz" ||
			cfg.Roles.API && c.ReadinessProbe.HTTPGet.Path != "/healthz" {
			t.Errorf("%s: a bucket that is away must not keep it from starting, restart it or take it from the front", name)
		}
		if d.Spec.Template.Annotations["prometheus.io/port"] != strings.TrimPrefix(cfg.HTTP.OpsAddr, ":") {
			t.Errorf("%s: Prometheus asks %v", name, d.Spec.Template.Annotations)
		}
		spec := d.Spec.Template.Spec
		grace := *spec.TerminationGracePeriodSeconds
		if l := c.Lifecycle; l != nil {
			grace -= l.PreStop.Sleep.Seconds
		} else if cfg.Roles.API {
			t.Errorf("%s closes its port while the front still sends requests", name)
		}
		if least := number(t, "../../internal/app/app.go", `drainTimeout = (\d+) \* time\.Second`) + 30; grace < least {
			t.Errorf("%s is killed %d s after SIGTERM, want %d", name, grace, least)
		}
	}
	if m.service.Spec.Ports[0].TargetPort.StrVal != "http" || m.ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name != m.service.Name ||
		m.ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Name != m.service.Spec.Ports[0].Name {
		t.Errorf("the front does not lead to the service: %+v", m.ingress.Spec)
	}
	let := map[int32]bool{}
	for _, p := range m.policies {
		for _, in := range p.Spec.Ingress {
			for _, port := range in.Ports {
				let[port.Port.IntVal] = true
			}
			if len(in.From) == 0 {
				t.Errorf("%s lets everybody in", p.Name)
			}
		}
	}
	if len(let) != 2 || !let[served] || !let[watched] {
		t.Errorf("ports %v are let in, want %d and %d", let, served, watched)
	}
	all := m.policies["cutroom"].Spec
	out := map[int32]bool{}
	for _, e := range all.Egress {
		for _, port := range e.Ports {
			out[port.Port.IntVal] = true
		}
	}
	if len(all.PolicyTypes) != 2 || !out[53] || !out[5432] || !out[443] || len(out) != 3 {
		t.Errorf("ports %v are let out, by policies of %v", out, all.PolicyTypes)
	}
}

func TestEveryDeploymentHasItsBudget(t *testing.T) {
	m := build(t, asIs)
	for name, d := range m.deployments {
		labels := d.Spec.Template.Labels
		with := func(selector map[string]string) bool {
			for k, v := range selector {
				if labels[k] != v {
					return false
				}
			}
			return len(selector) > 0
		}
		if !with(d.Spec.Selector.MatchLabels) {
			t.Errorf("%s does not select its pods", name)
		}
		if spread := d.Spec.Template.Spec.TopologySpreadConstraints; len(spread) != 1 || !with(spread[0].LabelSelector.MatchLabels) {
			t.Errorf("%s may run on one node alone: %+v", name, spread)
		}
		if n := len(slices.DeleteFunc(slices.Clone(m.budgets), func(b *disruption.PodDisruptionBudget) bool { return !with(b.Spec.Selector.MatchLabels) })); n != 1 {
			t.Errorf("%s has %d disruption budgets", name, n)
		}
		if with(m.service.Spec.Selector) != (name == "api") {
			t.Errorf("the service selects %s: %v", name, with(m.service.Spec.Selector))
		}
		if labels["app.kubernetes.io/name"] != "cutroom" {
			t.Errorf("%s is labelled %v", name, labels)
		}
	}
	if all := m.policies["cutroom"].Spec.PodSelector; len(all.MatchLabels)+len(all.MatchExpressions) > 0 {
		t.Errorf("pods other than %v are free to speak to everybody", all)
	}
}

// Both ways of scaling use the same existing metrics, and the database has
// connections for the largest number of workers.
func TestRenderWorkersFollowTheQueue(t *testing.T) {
	keda, hpa := build(t, asIs), build(t, byHPA).hpa
	s := keda.scaled.Spec
	gauges := read(t, "../../internal/admin/gauges.go")
	for i, trigger := range s.Triggers {
		for _, name := range regexp.MustCompile(`cutroom_\w+|[A-Z]{3,}`).FindAllString(trigger.Metadata.Query, -1) {
			if !strings.Contains(gauges, `"`+name+`"`) {
				t.Errorf("KEDA asks for %s, which the service does not tell", name)
			}
		}
		if !strings.Contains(trigger.Metadata.Query, `type="render"`) || !strings.Contains(trigger.Metadata.Query, "max") || trigger.Type != "prometheus" {
			t.Errorf("KEDA asks %s for %s", trigger.Type, trigger.Metadata.Query)
		}
		metric := hpa.Spec.Metrics[i].External
		value := metric.Target.Value
		if trigger.MetricType == autoscaling.AverageValueMetricType {
			value = metric.Target.AverageValue
		}
		if metric.Target.Type != trigger.MetricType || value.String() != trigger.Metadata.Threshold {
			t.Errorf("KEDA wants %s of %s, the HPA %+v", trigger.Metadata.Threshold, trigger.Name, metric.Target)
		}
		rule := regexp.MustCompile(`(?s)name: \{as: ` + metric.Metric.Name + `\}\n#\s+metricsQuery: (.+?)\n`).FindStringSubmatch(read(t, "autoscaling/hpa/kustomization.yaml"))
		if rule == nil || strings.ReplaceAll(strings.ReplaceAll(rule[1], "<<.LabelMatchers>>, ", ""), "<<.Series>>", regexp.MustCompile(`cutroom_\w+`).FindString(trigger.Metadata.Query)) != trigger.Metadata.Query {
			t.Errorf("the adapter's rule for %s is %v, KEDA asks %s", metric.Metric.Name, rule, trigger.Metadata.Query)
		}
	}
	if len(s.Triggers) != 2 || len(hpa.Spec.Metrics) != 2 {
		t.Errorf("%d and %d metrics", len(s.Triggers), len(hpa.Spec.Metrics))
	}
	target, ok := keda.deployments[s.ScaleTargetRef.Name]
	if !ok || target.Spec.Replicas != nil || hpa.Spec.ScaleTargetRef.Name != s.ScaleTargetRef.Name {
		t.Errorf("%s is scaled, and %s by the HPA; its own number is %v", s.ScaleTargetRef.Name, hpa.Spec.ScaleTargetRef.Name, target.Spec.Replicas)
	}
	if s.MinReplicaCount != *hpa.Spec.MinReplicas || s.MaxReplicaCount != hpa.Spec.MaxReplicas || s.Advanced.HPA.Behavior == nil ||
		fmt.Sprint(s.Advanced.HPA.Behavior) != fmt.Sprint(hpa.Spec.Behavior) {
		t.Errorf("the two scale differently: %+v and %+v", s, hpa.Spec)
	}
	connections := int64(8) // an operator, a backup, a migration, and PostgreSQL's own reserve
	for name, d := range keda.deployments {
		pods := s.MaxReplicaCount
		if d.Spec.Replicas != nil {
			pods = *d.Spec.Replicas
		}
		connections += 2 * int64(pods) * int64(keda.config(t, name, d.Spec.Template.Spec).Database.MaxPool+1)
	}
	if told := number(t, "../../docs/setup.md", `max_connections\W+of (\d+)`); told != connections {
		t.Errorf("docs/setup.md tells of %d connections, the overlay may need %d", told, connections)
	}
}

var update = flag.Bool("update", false, "write monitoring/prometheusrule.yaml")

// Prometheus scrapes the operators' port under the job name that the rules select,
// and the rules are those of ../alerts.yml.
func TestTheOperatorScrapesAndAlerts(t *testing.T) {
	const path = "monitoring/prometheusrule.yaml"
	text := "# By go test -update, from ../../alerts.yml.\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: cutroom}\nspec:\n"
	for line := range strings.Lines(read(t, "../alerts.yml")) {
		if strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		text += line
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, path) != text {
		t.Errorf("%s is not ../alerts.yml: go test -update", path)
	}
	m := build(t, asIs)
	if len(m.rules.Spec.Groups) < 2 {
		t.Errorf("%d groups of rules", len(m.rules.Spec.Groups))
	}
	endpoints := m.monitor.Spec.PodMetricsEndpoints
	if len(endpoints) != 1 || *endpoints[0].Port != "ops" {
		t.Fatalf("it scrapes %+v", endpoints)
	}
	for name, d := range m.deployments {
		labels := d.Spec.Template.Labels
		if !strings.Contains(text, `job="`+labels[m.monitor.Spec.JobLabel]+`"`) {
			t.Errorf("no rule asks for %s's job %q", name, labels[m.monitor.Spec.JobLabel])
		}
		for k, v := range m.monitor.Spec.Selector.MatchLabels {
			if labels[k] != v {
				t.Errorf("%s is not scraped", name)
			}
		}
	}
}

// The front accepts what the service accepts, and waits as long as the given nginx
// does.
func TestTheFrontIsLargeAndPatientEnough(t *testing.T) {
	m := build(t, asIs)
	const of = "nginx.ingress.kubernetes.io/proxy-"
	annotations := m.ingress.Annotations
	body, err := strconv.ParseInt(strings.TrimSuffix(annotations[of+"body-size"], "m"), 10, 64)
	if largest := m.config(t, "api", m.deployments["api"].Spec.Template.Spec).Storage.MaxUploadBytes; err != nil || body<<20 <= largest {
		t.Errorf("bodies of %s pass, the service takes %d MB (%v)", annotations[of+"body-size"], largest>>20, err)
	}
	for key, want := range map[string]string{"read-timeout": "600", "send-timeout": "600", "buffering": "off", "request-buffering": "off"} {
		if annotations[of+key] != want {
			t.Errorf("%s is %q, want %q", key, annotations[of+key], want)
		}
	}
}
