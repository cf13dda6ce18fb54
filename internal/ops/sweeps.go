package ops

import "github.com/prometheus/client_golang/prometheus"

// Sweeps are the metrics of the sweeps. They are zero on a replica that does not hold the sweep's lease.
type Sweeps struct {
	leader, held, foreign prometheus.Gauge
	removed               *prometheus.CounterVec
	stored                *prometheus.GaugeVec
}

// NewSweeps returns metrics in the registry. It may be nil: then nobody reads them.
func NewSweeps(r prometheus.Registerer) *Sweeps {
	return &Sweeps{
		leader: newGauge(r, "cutroom_sweep_leader", "1 on the replica that sweeps for all."),
		held: newGauge(r, "cutroom_sweep_held_objects", "Objects that the last sweep did not remove because "+
			"the database does not know suspiciously many; 0 when it was not held."),
		foreign: newGauge(r, "cutroom_bucket_foreign",
			"1 while the bucket carries the id of another installation, or none; sweeps remove nothing then."),
		removed: newCounter(r, "cutroom_swept_objects_total",
			"Objects that sweeps of this process removed, by kind.", "kind"),
		stored: newGauges(r, "cutroom_stored_bytes",
			"Size of the objects that the last sweep found, by kind; of assets, of those that the database knows.", "kind"),
	}
}

// Lead marks this replica as the one that sweeps.
func (s *Sweeps) Lead() { s.leader.Set(1) }

// Resign resets everything that only the sweeping replica reports.
func (s *Sweeps) Resign() {
	for _, g := range []prometheus.Gauge{s.leader, s.held, s.foreign} {
		g.Set(0)
	}
	s.stored.Reset()
}

// SetStored reports the size of all objects of a kind.
func (s *Sweeps) SetStored(kind string, sizeBytes int64) {
	s.stored.WithLabelValues(kind).Set(float64(sizeBytes))
}

// AddRemoved counts objects that a sweep removed.
func (s *Sweeps) AddRemoved(kind string, objects int) {
	s.removed.WithLabelValues(kind).Add(float64(objects))
}

// SetHeld reports how many objects the brake kept in the last sweep.
func (s *Sweeps) SetHeld(objects int) { s.held.Set(float64(objects)) }

// SetForeign reports whether the bucket belongs to another installation.
func (s *Sweeps) SetForeign(foreign bool) { s.foreign.Set(gauge(foreign)) }
