package main

import (
	"slices"
	"testing"
	"time"

	"cutroom/internal/testkit/benchtest"
)

// batch is a row of the first table.
type batch struct {
	measured
	workers, jobs     int
	ideal             time.Duration
	dispatch, between []time.Duration // sorted
}

const headBatch = `Workers | Jobs | Wall | Ideal | Efficiency | Job's end to next claim, median | 95 % | ` +
	`Film's end to next film, median | 95 % | Transactions per job | PostgreSQL CPU per job`

func (b batch) line(add row) {
	add("%d | %d | %.2f s | %.2f s | %.1f %% | %s | %s | %s | %s | %.1f | %.1f ms", b.workers, b.jobs, b.wall.Seconds(), b.ideal.Seconds(),
		100*b.ideal.Seconds()/b.wall.Seconds(), benchtest.Median(b.dispatch), benchtest.Slow(b.dispatch),
		benchtest.Median(b.between), benchtest.Slow(b.between), b.transactions/float64(b.jobs), b.cpu.Seconds()*1000/float64(b.jobs))
}

// measureBatch lets n idle workers wake to a full queue and empty it.
func (o options) measureBatch(t testing.TB, n int) batch {
	c := newCrowd(t, n)
	c.become(o.film, 0)
	b := batch{workers: n, jobs: n * jobsPerWorker, ideal: jobsPerWorker * o.film}
	b.measured = c.run(b.jobs, b.ideal)
	for _, e := range c.engines {
		films := e.Films()
		for i := 1; i < len(films); i++ {
			b.between = append(b.between, films[i].Began.Sub(films[i-1].Ended))
			b.dispatch = append(b.dispatch, time.Millisecond*time.Duration(c.Number(`SELECT
				(SELECT started_at FROM jobs WHERE id = $1) - (SELECT finished_at FROM jobs WHERE id = $2)`,
				films[i].JobID, films[i-1].JobID)))
		}
	}
	slices.Sort(b.dispatch)
	slices.Sort(b.between)
	return b
}

// sharedFilm is a row of the second table.
type sharedFilm struct {
	measured
	workers, assistants, made int
	ideal, alone              time.Duration
}

const headFilm = `Workers | Wall | Ideal | Efficiency | Speed-up | Workers that assisted | Parts made twice | ` +
	`Transactions per part | PostgreSQL CPU per part`

func (f sharedFilm) line(add row) {
	add("%d | %.2f s | %.2f s | %.1f %% | %.1f | %d | %d | %.1f | %.1f ms", f.workers, f.wall.Seconds(), f.ideal.Seconds(),
		100*f.ideal.Seconds()/f.wall.Seconds(), f.alone.Seconds()/f.wall.Seconds(), f.assistants, f.made-filmParts,
		f.transactions/filmParts, f.cpu.Seconds()*1000/filmParts)
}

// measureFilm gives n idle workers one film of many parts.
func (o options) measureFilm(t testing.TB, n int) sharedFilm {
	takes := o.film / 2
	c := newCrowd(t, n)
	c.become(takes, filmParts)
	f := sharedFilm{workers: n, alone: filmParts * takes, ideal: takes * time.Duration((filmParts+n-1)/n)}
	f.measured = c.run(1, f.ideal)
	for _, e := range c.engines {
		made, helped := e.Made()
		f.made += made
		f.assistants += min(1, helped)
	}
	return f
}
