// The drill of a synchronous standby that hangs: outages while jobs run, ended by the commands of operations.md.

package drill

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/dbtest"
	"cutroom/test/invariants"
)

// The synchronous standby hangs, and with it every commit, while two replicas run renders and separations.
// CUTROOM_DRILL_OUTAGES lists the durations. The operator resumes the standby after the first outage, and removes it
// with the runbook's command in the others. No job may fail or lose an attempt.
func TestStoppedStandby(t *testing.T) {
	outages := strings.Fields(os.Getenv("CUTROOM_DRILL_OUTAGES"))
	if len(outages) == 0 {
		t.Skip("runs in make drill-standby")
	}
	d := startStandbyDrill(t, 20*time.Second)
	for i, text := range outages {
		outage, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(text, func(*testing.T) { d.outage(outage, i > 0) })
	}
}

type standbyDrill struct {
	*testing.T
	s          *apitest.Server
	pair       *dbtest.Pair
	users      []*apitest.User
	film       time.Duration
	clip, song string

	mu       sync.Mutex
	accepted []string
	refused  int
}

func (d *standbyDrill) outage(length time.Duration, without bool) {
	stop := d.submitJobs()
	defer stop()
	d.wait("work under way", time.Minute, func() bool { return d.count(`state = 'PROCESSING' AND lease_owner IS NOT NULL`) >= 3 })
	d.must(d.pair.StopStandby())
	stopped := time.Now()
	d.wait("the database accepts no writes", time.Minute, func() bool {
		status, body := d.s.Ops("/readyz")
		return status == 503 && strings.Contains(body, "accepts no writes")
	})
	d.Logf("/readyz reports the database after %v", time.Since(stopped).Round(time.Millisecond))
	if status, out := d.s.Command(d.T, "doctor"); status == 0 || !strings.Contains(out, "accepts no writes") {
		d.Errorf("doctor: %d %s", status, out)
	}
	time.Sleep(time.Until(stopped.Add(length)))
	if without {
		d.runbook("CutroomNotReady")
	}
	d.must(d.pair.ContinueStandby())
	d.wait("ready", time.Minute, func() bool { status, _ := d.s.Ops("/readyz"); return status == 200 })
	time.Sleep(5 * time.Second) // clients submit more
	stop()
	d.waitEnded()
	d.judge()
	if n := d.count(`state NOT IN ('COMPLETED', 'READY')`); n > 0 {
		d.Errorf("%d jobs failed", n)
	}
	if n := d.count(`attempts <> 1`); n > 0 {
		d.Errorf("%d jobs lost an attempt", n)
	}
}

func (d *standbyDrill) waitEnded() {
	d.Helper()
	d.wait("all jobs ended", 10*time.Minute, func() bool { return d.count(`state IN ('PENDING', 'QUEUED', 'SUBMITTING', 'PROCESSING')`) == 0 })
}

// submitJobs makes every user submit a render and a separation every few seconds.
func (d *standbyDrill) submitJobs() (stop func()) {
	done := make(chan struct{})
	var users sync.WaitGroup
	for i, u := range d.users {
		users.Go(func() {
			pause := time.NewTimer(time.Duration(i) * time.Second)
			for {
				select {
				case <-done:
					return
				case <-pause.C:
				}
				film := apitest.M{"segments": []apitest.M{apitest.Segment("video_0", 0, d.film)}}
				d.submit(u, "/api/v2/render", apitest.RenderForm(d.T, film, apitest.File("video_0", d.clip)))
				d.submit(u, "/api/v2/separate", apitest.SeparationForm(d.song))
				pause.Reset(10 * time.Second)
			}
		})
	}
	return sync.OnceFunc(func() { close(done); users.Wait() })
}

func (d *standbyDrill) submit(u *apitest.User, path string, form []apitest.Part) {
	res := u.Send(d.T, apitest.Request{Method: "POST", Path: path, Form: form})
	var job struct{ JobID string }
	d.mu.Lock()
	defer d.mu.Unlock()
	switch res.Status {
	case 200, 202:
		res.JSON(&job)
		d.accepted = append(d.accepted, job.JobID)
	case 503:
		d.refused++
	default:
		d.Errorf("%s: %d %s", path, res.Status, res.Body)
	}
}

// runbook runs the commands in a section of docs/operations.md.
func (d *standbyDrill) runbook(section string) {
	page, err := os.ReadFile("../../docs/operations.md")
	d.must(err)
	_, text, _ := strings.Cut(string(page), "\n### "+section+"\n")
	text, _, _ = strings.Cut(text, "\n### ")
	block := regexp.MustCompile("(?s)\n```sh\n(.*?)\n```").FindStringSubmatch(text)
	if block == nil {
		d.Fatalf("the section %s has no commands", section)
	}
	d.Log(d.shell("db() { shift; " + d.pair.PSQL() + ` "$@"; }` + "\n" + block[1]))
}

func (d *standbyDrill) shell(script string) string {
	out, err := exec.CommandContext(d.Context(), "sh", "-ec", script).CombinedOutput()
	if err != nil {
		d.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// count counts the jobs that match a condition.
func (d *standbyDrill) count(where string) (n int) {
	query := `SELECT count(*) FROM jobs WHERE ` + where
	_, err := fmt.Sscan(d.shell(d.pair.PSQL()+" -d pair -Atqc \""+query+"\""), &n)
	d.must(err)
	return n
}

func (d *standbyDrill) judge() {
	d.Logf("%d jobs accepted, %d submissions answered 503, %d jobs in all", len(d.accepted), d.refused, d.count(`TRUE`))
	if n := d.count(`id IN ('` + strings.Join(d.accepted, `','`) + `')`); n != len(d.accepted) {
		d.Errorf("%d of %d accepted jobs exist", n, len(d.accepted))
	}
	invariants.Check(d.T, d.s.Database(d.T))
}

func (d *standbyDrill) wait(what string, limit time.Duration, done func() bool) {
	d.Helper()
	apitest.Eventually(d.T, limit, done, func() string { return "not reached: " + what })
}

func (d *standbyDrill) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}
