package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/benchtest"
	"cutroom/internal/mediatest"
)

// The films for real replicas: each of realSegments clips, which are its parts.
const (
	realSegments = 3
	realLength   = 3 * time.Second // of a segment
)

// replicas is what the real service took for the batch.
type batchOfReplicas struct {
	wall time.Duration
	each []replicaShare
}

// replicaShare is what one process did of it.
type replicaShare struct {
	cpu             time.Duration // with its children
	rendered, parts int           // jobs of its own, parts made for others
}

// replicas measures one replica, and then two.
func (o options) replicas(add row) {
	if o.films == 0 {
		return
	}
	var alone, two batchOfReplicas
	inTest(func(t testing.TB) { alone = o.measureReplicas(t, 1) })
	alone.lines(add, alone)
	inTest(func(t testing.TB) { two = o.measureReplicas(t, 2) })
	two.lines(add, alone)
}

const headReplicas = `Replicas | Process | Wall | CPU | Share of the CPU | Jobs rendered | Parts made for the other | CPU against one replica`

func (r batchOfReplicas) cpu() (sum time.Duration) {
	for _, s := range r.each {
		sum += s.cpu
	}
	return sum
}

func (r batchOfReplicas) lines(add row, alone batchOfReplicas) {
	for i, s := range r.each {
		if len(r.each) > 1 {
			add("%d | %d | | %.1f s | %.0f %% | %d | %d |", len(r.each), i+1, s.cpu.Seconds(), 100*s.cpu.Seconds()/r.cpu().Seconds(), s.rendered, s.parts)
		}
	}
	rendered, parts := 0, 0
	for _, s := range r.each {
		rendered, parts = rendered+s.rendered, parts+s.parts
	}
	add("%d | all | %.1f s | %.1f s | 100 %% | %d | %d | %+.1f %%", len(r.each), r.wall.Seconds(), r.cpu().Seconds(), rendered, parts,
		100*(r.cpu().Seconds()/alone.cpu().Seconds()-1))
}

// measureReplicas runs n processes of the program on one database and one
// bucket, and submits the batch to them in turn.
func (o options) measureReplicas(t testing.TB, n int) batchOfReplicas {
	if !apitest.Postgres() {
		t.Fatal("replicas share a PostgreSQL database: CUTROOM_TEST_DB=postgres")
	}
	s := apitest.Start(t, apitest.Bucket(true), apitest.Replicas(n), apitest.Env("RENDER_MAX_CONCURRENT", "1"))
	u := s.SignIn(t)
	type film struct {
		config apitest.M
		files  []apitest.Part
	}
	films := make([]film, o.films)
	for i := range films {
		var segments []apitest.M
		for k := range realSegments {
			name := fmt.Sprintf("video_%d", k)
			// The tone makes every source another file, whose parts no cache has.
			clip := mediatest.Clip(t, mediatest.Spec{Width: 960, Height: 540, Duration: realLength, Tone: 200 + 20*float64(realSegments*i+k)})
			segments = append(segments, apitest.Segment(name, k, realLength))
			films[i].files = append(films[i].files, apitest.File(name, clip))
		}
		films[i].config = apitest.M{"segments": segments, "quality": "high"}
	}
	r := batchOfReplicas{each: make([]replicaShare, n)}
	for i := range r.each {
		r.each[i].cpu = -benchtest.TreeCPU(s.PID(i))
	}
	began := time.Now()
	var ids []string
	for _, f := range films {
		ids = append(ids, u.Render(t, f.config, f.files...))
	}
	for _, id := range ids {
		u.WaitRendered(t, id)
	}
	r.wall = time.Since(began)
	logs := []string{s.Logs()}
	if n > 1 {
		logs = strings.Split(s.Logs(), "--- replica ")[1:]
	}
	for i := range r.each {
		r.each[i].cpu += benchtest.TreeCPU(s.PID(i))
		r.each[i].rendered = len(renderedLine.FindAllString(logs[i], -1))
		for _, m := range assistedLine.FindAllStringSubmatch(logs[i], -1) {
			parts, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			r.each[i].parts += parts
		}
	}
	return r
}

var (
	renderedLine = regexp.MustCompile(`"msg":"render ended".*"state":"COMPLETED"`)
	assistedLine = regexp.MustCompile(`"msg":"assisted a render".*"parts":(\d+)`)
)
