// What the soak test does at random: faults, kills, stops, restarts and deletions.

package soak

import (
	"syscall"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
)

// event is something that the test does. Its probability is in proportion to weight.
type event struct {
	name   string
	weight int
	do     func()
}

// step does one random event.
func (k *soak) step() {
	if !k.restart.IsZero() && time.Now().After(k.restart) {
		k.restartAll()
	}
	events := []event{
		{"fault", 24, k.fault},
		{"heal", 12, func() { k.s.World.Heal() }},
		{"kill", 16, k.kill},
		{"stop", 3, k.stop},
		{"delete account", 1, k.deleteAccount},
	}
	total := 0
	for _, e := range events {
		total += e.weight
	}
	pick := k.rng.IntN(total)
	for _, e := range events {
		if pick -= e.weight; pick < 0 {
			k.events[e.name]++
			e.do()
			break
		}
	}
	time.Sleep(time.Duration(k.rng.IntN(700)) * time.Millisecond)
}

var steps = []string{separator.StepUploadToken, separator.StepUpload, separator.StepRegister, separator.StepSubmit,
	separator.StepProgress, separator.StepProject, separator.StepDownload}

// fault adds a fault to one or two of the next calls of a step. Delays are the most frequent, because they keep a job
// in a state long enough for its replica to be killed there.
func (k *soak) fault() {
	rule := fake.Rule{Step: steps[k.rng.IntN(len(steps))], Times: 1 + k.rng.IntN(2), Nth: 1 + k.rng.IntN(2)}
	switch n := k.rng.IntN(20); {
	case n < 11:
		rule.Kind, rule.DelayMs = fake.KindDelay, 200+k.rng.IntN(1800)
	case n < 13:
		rule.Kind, rule.Status = fake.KindStatus, []int{401, 402, 404, 429, 500, 503}[k.rng.IntN(6)]
	case n < 15:
		rule.Kind, rule.Effect = fake.KindClose, k.rng.IntN(2) == 0
	case n < 16:
		rule.Kind = fake.KindGarbage
	case n < 17:
		rule.Kind = fake.KindCut
	case n < 18:
		rule.Kind, rule.DelayMs = fake.KindStall, 5000
	case n < 19:
		rule.Kind = fake.KindLength
	default:
		rule.Kind = fake.KindCutUpload
	}
	k.log("fault %+v", rule)
	k.s.World.FailSeparator(k.t, rule)
}

// kill crashes one replica or all of them. They restart after a while. If another replica is up, the restart is
// sometimes so late that the other replica takes over the jobs.
func (k *soak) kill() {
	victims := k.running()
	if len(victims) == 0 {
		return
	}
	if len(victims) > 1 && k.rng.IntN(4) > 0 {
		victims = victims[k.rng.IntN(len(victims)):][:1]
	}
	down := time.Duration(100+k.rng.IntN(1500)) * time.Millisecond
	if len(victims) < len(k.up) && k.rng.IntN(6) == 0 {
		down = 13 * time.Second
	}
	k.markUp(false, victims...)
	for _, i := range victims {
		k.s.KillReplica(k.t, i)
		k.kills++
	}
	k.log("kill %v, back in %v", victims, down)
	k.restart = time.Now().Add(down)
}

// stop stops a replica with SIGTERM and waits until it has handed back its jobs.
func (k *soak) stop() {
	victims := k.running()
	if len(victims) == 0 {
		return
	}
	i := victims[k.rng.IntN(len(victims))]
	k.markUp(false, i)
	pid := k.s.PID(i)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		k.t.Errorf("SIGTERM: %v", err)
	}
	k.log("stop %d", i)
	apitest.Eventually(k.t, 2*time.Minute, func() bool { return syscall.Kill(pid, 0) != nil }, func() string { return "a replica does not stop" })
	k.restart = time.Now().Add(time.Duration(k.rng.IntN(1000)) * time.Millisecond)
}

func (k *soak) restartAll() {
	k.s.Restart(k.t)
	k.restart = time.Time{}
	all := make([]int, len(k.up))
	for i := range all {
		all[i] = i
	}
	k.markUp(true, all...)
	k.log("all up")
}

func (k *soak) markUp(up bool, replicas ...int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range replicas {
		k.up[i] = up
	}
}

func (k *soak) running() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []int
	for i, up := range k.up {
		if up {
			out = append(out, i)
		}
	}
	return out
}

func (k *soak) deleteAccount() {
	i, ok := k.anyUp(k.rng)
	if !ok {
		return
	}
	fresh := k.direct[i].SignIn(k.t, apitest.Credits(60))
	k.mu.Lock()
	n := k.rng.IntN(len(k.users))
	gone := *k.users[n]
	k.users[n] = fresh
	k.mu.Unlock()
	k.log("delete account %s", gone.Sub)
	gone.Server = k.direct[i]
	gone.Send(k.t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account"}).Expect(204)
}
