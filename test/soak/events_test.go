package soak

import (
	"syscall"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/db"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
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
		{"heal", 8, func() { k.s.World.Heal() }},
		{"behaviour", 10, k.changeBehaviour},
		{"kill", 16, k.kill},
		{"stop", 3, k.stop},
		{"jump", 3, k.jump},
		{"read job", 10, k.readJob},
		{"quiet", 3, k.quiet},
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

// quiet causes no faults for a while, so some jobs end between crashes.
func (k *soak) quiet() {
	if !k.restart.IsZero() {
		return
	}
	k.s.World.Heal()
	k.s.World.Separator.Configure(func(b *separator.Behaviour) { b.HoldAtPercent, b.FailAtPercent = 0, 0 })
	time.Sleep(time.Duration(3000+k.rng.IntN(5000)) * time.Millisecond)
}

var steps = []string{separator.StepUploadToken, separator.StepUpload, separator.StepRegister, separator.StepSubmit,
	separator.StepProgress, separator.StepProject, separator.StepDownload}

// fault adds a fault to one or two of the next calls of a step. Delays are the most frequent, because
// they keep a job in a state long enough to kill its replica there.
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
	k.trace.add("fault %+v", rule)
	k.s.World.FailSeparator(k.t, rule)
}

func (k *soak) changeBehaviour() {
	k.s.World.Separator.Configure(func(b *separator.Behaviour) {
		b.ProcessingMs = 50 + k.rng.IntN(1500)
		b.FailAtPercent, b.HoldAtPercent = 0, 0
		switch k.rng.IntN(16) {
		case 0:
			b.FailAtPercent = 1 + k.rng.IntN(99)
		case 1:
			b.HoldAtPercent = 1 + k.rng.IntN(99)
		}
		k.trace.add("behaviour: %d ms, hold at %d, fail at %d", b.ProcessingMs, b.HoldAtPercent, b.FailAtPercent)
	})
}

// kill crashes one replica or all of them. They restart after a while. If another replica is up, the
// restart is sometimes so late that the other replica takes over the jobs.
func (k *soak) kill() {
	victims := k.running()
	if len(victims) == 0 {
		return
	}
	if len(victims) > 1 && k.rng.IntN(4) > 0 {
		victims = victims[k.rng.IntN(len(victims)):][:1]
	}
	if k.rng.IntN(3) > 0 {
		k.waitForState()
	}
	down := time.Duration(100+k.rng.IntN(1500)) * time.Millisecond
	if len(victims) < len(k.up) && k.rng.IntN(6) == 0 {
		down = 13 * time.Second
	}
	for state, n := range k.states() {
		k.hit[state] += n
	}
	k.markUp(false, victims...)
	for _, i := range victims {
		k.s.KillReplica(k.t, i)
		k.kills++
	}
	k.trace.add("kill %v, back in %v", victims, down)
	k.restart = time.Now().Add(down)
}

// waitForState waits up to two seconds for a job in a short-lived state, and then a random part of
// that state's duration.
func (k *soak) waitForState() {
	for _, state := range []string{"SUBMITTING", asking} {
		if k.rng.IntN(2) == 0 {
			continue
		}
		for deadline := time.Now().Add(2 * time.Second); k.states()[state] == 0 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Duration(k.rng.IntN(60)) * time.Millisecond)
		return
	}
	time.Sleep(time.Duration(k.rng.IntN(300)) * time.Millisecond)
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
	k.trace.add("stop %d", i)
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
	k.trace.add("all up")
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

// jump moves all times in the database into the past, as if all clocks had jumped ahead: by less than
// a lease, or by more than a lease, the SUBMITTING threshold, the polling threshold, or all of them.
func (k *soak) jump() {
	by := []time.Duration{5 * time.Second, 12 * time.Second, 12 * time.Second, 70 * time.Second, 130 * time.Second}[k.rng.IntN(5)]
	if k.rng.IntN(12) == 0 {
		by = 31 * time.Minute
	}
	k.trace.add("jump %v", by)
	k.watch.pause()
	err := k.db.InTx(k.t.Context(), func(tx *db.Tx) error {
		for table, columns := range map[string][]string{
			"separation_jobs": {"created_at", "submitting_at", "submit_intent_at", "processing_at", "ready_at", "collected_at", "finished_at", "lease_until"},
			"nodes":           {"seen_at"}, "users": {"erasing_at"}, "idempotency_keys": {"created_at"},
		} {
			set := ""
			for i, c := range columns {
				if i > 0 {
					set += ", "
				}
				set += c + " = " + c + " - $1"
			}
			if _, err := tx.Exec(k.t.Context(), "UPDATE "+table+" SET "+set, by.Milliseconds()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		k.t.Errorf("jump: %v", err)
	}
}

// readJob reads a job as its owner, and downloads a stem if there is one.
func (k *soak) readJob() {
	k.mu.Lock()
	var id, owner string
	for id, owner = range k.accepted {
		break
	}
	k.mu.Unlock()
	i, ok := k.anyUp(k.rng)
	for _, u := range k.users {
		if !ok || u.Sub != owner {
			continue
		}
		at := *u
		at.Server = k.direct[i]
		for _, stem := range at.Separation(k.t, id).Stems {
			// 404 means that the stem was deleted meanwhile.
			res := at.Do(k.t, apitest.Request{Path: stem.URL[len(k.s.Config("PUBLIC_BASE_URL")):]})
			if res.Status != 200 && res.Status != 404 {
				k.t.Errorf("stem: %d", res.Status)
			}
			break
		}
	}
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
	k.trace.add("delete account %s", gone.Sub)
	gone.Server = k.direct[i]
	gone.Send(k.t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account"}).Expect(204)
}
