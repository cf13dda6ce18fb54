package timeline

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Limits of the points of a segment's speed, part of the API's contract.
const (
	minSpeedPoints = 2
	maxSpeedPoints = 16
)

// SpeedPoint is the speed of a segment at an instant of its source. Between two points the speed is linear in source
// time; after the last it is constant.
type SpeedPoint struct {
	At    time.Duration `json:"atNs"`  // strictly ascending from 0; source time from the start of the trim
	Speed float64       `json:"speed"` // 0.1..10
}

// Pace maps the source time of a segment to the time in which the film plays it, and back. Both count in seconds from
// the segment's start. Where the speed v changes by m per second, the film's time is the integral of ds/v, which is
// log(v/v0)/m; its inverse is exponential.
type Pace struct{ points []pacePoint }

type pacePoint struct {
	source, film float64 // seconds
	speed        float64
	slope        float64 // of the speed, up to the next point
}

// Pace returns the map of the segment's speed points, nil if it has none.
func (s Segment) Pace() *Pace {
	if len(s.SpeedPoints) == 0 {
		return nil
	}
	p := &Pace{}
	for _, point := range s.SpeedPoints {
		at := point.At.Seconds()
		if n := len(p.points); n > 0 {
			before := &p.points[n-1]
			if at <= before.source { // two times that saturated
				continue
			}
			before.slope = (point.Speed - before.speed) / (at - before.source)
			p.points = append(p.points, pacePoint{source: at, film: before.filmAt(at), speed: point.Speed})
			continue
		}
		p.points = append(p.points, pacePoint{speed: point.Speed})
	}
	return p
}

// filmAt returns the film's time at a source time at or after the point.
func (p pacePoint) filmAt(source float64) float64 {
	ds := source - p.source
	if p.slope == 0 {
		return p.film + ds/p.speed
	}
	return p.film + math.Log1p(p.slope*ds/p.speed)/p.slope
}

// FilmTime returns the film's time at which a source time plays. Before the segment's start, it continues at the first
// speed.
func (p *Pace) FilmTime(source float64) float64 {
	if source < 0 {
		return source / p.points[0].speed
	}
	n, found := slices.BinarySearchFunc(p.points, source, func(q pacePoint, t float64) int { return cmp.Compare(q.source, t) })
	if !found {
		n--
	}
	return p.points[n].filmAt(source)
}

// At returns the source time that plays at a time of the film, and the speed there.
func (p *Pace) At(film float64) (source, speed float64) {
	if film < 0 {
		return film * p.points[0].speed, p.points[0].speed
	}
	n, found := slices.BinarySearchFunc(p.points, film, func(q pacePoint, t float64) int { return cmp.Compare(q.film, t) })
	if !found {
		n--
	}
	q := p.points[n]
	dt := film - q.film
	if q.slope == 0 {
		return q.source + dt*q.speed, q.speed
	}
	growth := math.Expm1(q.slope * dt)
	return q.source + q.speed/q.slope*growth, q.speed * (1 + growth)
}
