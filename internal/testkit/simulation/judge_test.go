// The judge: what must hold after each step and at the end of a schedule, about states, money, events and files.

package simulation

import (
	"context"
	"fmt"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/domain/separation"
	"cutroom/internal/work/job"
	"cutroom/test/invariants"
)

// judge checks what must hold after each step and at the end.
type judge struct {
	w       *world
	answers map[int]string // job ids, by request
	before  map[string]row
	why     string // what is wrong, "" if nothing is
}

// row is what the judge reads of a job.
type row struct {
	kind, state, owner string
	reason             string // why it failed, unless its owner deleted it
	fence              int64
	// By the database's clock.
	leasedUntil int64
	submitting  int64 // since when, or when it went back
}

func newJudge(w *world) *judge {
	return &judge{w: w, answers: map[int]string{}, before: map[string]row{}}
}

func (j *judge) failed() bool { return j.why != "" }

func (j *judge) fail(format string, args ...any) {
	if j.why == "" {
		j.why = fmt.Sprintf(format, args...)
	}
}

// answered records the answer to a request. All copies of a request get the same answer.
func (j *judge) answered(q request, answer string) {
	if answer == "" {
		return
	}
	if first := j.answers[q.number]; first != "" && first != answer {
		j.fail("request %d was answered %s and %s", q.number, first, answer)
	}
	j.answers[q.number] = answer
}

// after checks a step.
func (j *judge) after(c *call) {
	if j.w.sched.touched.money {
		j.none("balances that are not the sum of their ledger", `SELECT COUNT(*) FROM credit_balances b WHERE balance < 0
			OR balance <> (SELECT COALESCE(SUM(l.amount), 0) FROM credit_ledger l WHERE l.user_id = b.user_id)`)
	}
	if !j.w.sched.touched.jobs {
		return
	}
	now, atProvider := j.rows(), 0
	for id, is := range now {
		if is.kind == "separation" && (is.state == separation.StateSubmitting || is.state == separation.StateProcessing) {
			atProvider++
		}
		if was, known := j.before[id]; known && was != is {
			j.moved(id, was, is, c.from)
		}
	}
	j.before = now
	if atProvider > inFlight {
		j.fail("%d separations are in flight", atProvider)
	}
}

// moved checks a state change that a replica made.
func (j *judge) moved(id string, was, is row, by *replica) {
	now := time.Now().Add(j.w.ahead)
	held := was.owner != "" && was.leasedUntil > now.UnixMilli()
	stuck := was.kind == "separation" && was.submitting < now.Add(-stuckAfter).UnixMilli()
	recovered := is.state == separation.StateQueued || is.reason == "interrupted"
	switch {
	case is.fence < was.fence:
		j.fail("%s: the fence fell", id)
	case ended(was.state) && is.state != was.state && is.state != "DISPOSED":
		j.fail("%s went from %s to %s", id, was.state, is.state)
	case (is.state == "READY" || is.state == "COMPLETED") && was.state != is.state && was.owner != by.name:
		j.fail("%s became %s by %s, which did not hold it: %q did", id, is.state, by.name, was.owner)
	case held && is.owner != "" && is.owner != was.owner:
		j.fail("%s was taken from %s by %s before its lease ran out", id, was.owner, is.owner)
	case held && !stuck && recovered && was.owner != by.name:
		j.fail("%s went from %s to %s by %s as if %s, which held it, were dead", id, was.state, is.state, by.name, was.owner)
	}
}

func ended(state string) bool {
	switch state {
	case "READY", "DISPOSED", "FAILED", "COMPLETED":
		return true
	}
	return false
}

func (j *judge) rows() map[string]row {
	out := map[string]row{}
	err := db.Each(context.Background(), j.w.db, func(rows *db.Rows) error {
		var id string
		var r row
		err := rows.Scan(&id, &r.kind, &r.state, &r.owner, &r.reason, &r.fence, &r.leasedUntil, &r.submitting)
		out[id] = r
		return err
	}, `SELECT id, kind, state, COALESCE(lease_owner, ''), CASE WHEN deleted_at IS NULL THEN COALESCE(error_code, '') ELSE '' END,
			fence, COALESCE(lease_until, 0), COALESCE(d.submitting_at, 0)
		FROM jobs LEFT JOIN separations d ON d.job_id = id`)
	if err != nil {
		j.fail("read jobs: %v", err)
	}
	return out
}

func (j *judge) number(query string, args ...any) (n int64) {
	if err := j.w.db.QueryRow(context.Background(), query, args...).Scan(&n); err != nil {
		j.fail("%s: %v", query, err)
	}
	return n
}

// open counts jobs, deletions and deliveries that have not ended.
func (j *judge) open() int64 {
	return j.number(`SELECT (SELECT COUNT(*) FROM jobs WHERE ` + job.Waiting + ` OR ` + job.AtWork + `)
		+ (SELECT COUNT(*) FROM users WHERE erasing_at IS NOT NULL)
		+ (SELECT COUNT(*) FROM events WHERE fanned_out_at IS NULL)
		+ (SELECT COUNT(*) FROM event_deliveries WHERE state = 'PENDING')`)
}

// none fails unless the query counts 0.
func (j *judge) none(what, query string, args ...any) {
	if n := j.number(query, args...); n > 0 {
		j.fail("%s: %d", what, n)
	}
}

// end checks the final state.
func (j *judge) end() {
	if n := j.open(); n > 0 {
		j.fail("%d jobs, deletions or deliveries did not come to an end", n)
		return
	}
	for _, what := range invariants.Broken(context.Background(), j.w.db.DB) {
		j.fail("%s", what)
	}
	j.money()
	j.events()
	j.files()
}

// money: nobody was charged and the provider was not paid more than once for a request.
func (j *judge) money() {
	j.none("READY jobs without both stems", `SELECT COUNT(*) FROM jobs j WHERE state = 'READY'
		AND (SELECT COUNT(*) FROM separation_stems s WHERE s.job_id = j.id) <> 2`)
	wanted := map[int]int64{}
	for _, q := range j.w.plan.requests {
		switch q.what {
		case separate:
			wanted[q.user]++
		case buy:
			j.none("a purchase was paid out twice", `SELECT COUNT(*) - 1 FROM credit_ledger WHERE ref_id = $1`, "platform_a-"+q.key())
		}
	}
	for user, n := range wanted {
		if charged := j.number(`SELECT COUNT(*) FROM credit_ledger WHERE kind = 'consume' AND user_id = $1`, userID(user)); charged > n {
			j.fail("user %d was charged %d times for %d requests", user, charged, n)
		}
	}
	for _, p := range j.w.provider.projects {
		if n := j.w.provider.paid(p.title); n > 1 {
			j.fail("the provider was paid %d times for %s", n, p.title)
		}
	}
}

// events: the end of every job is reported, unless its owner deleted it.
func (j *judge) events() {
	j.none("ends without their event", `SELECT COUNT(*) FROM jobs j WHERE deleted_at IS NULL AND (SELECT COUNT(*) FROM events e WHERE e.job_id = j.id
		AND e.type = kind || CASE state WHEN 'FAILED' THEN '.failed' WHEN 'COMPLETED' THEN '.completed' ELSE '.ready' END) <> 1`)
	ids, err := db.Texts(j.w.db.Query(context.Background(), `SELECT event_id FROM event_deliveries WHERE state = 'DELIVERED'
		UNION ALL SELECT id FROM events WHERE id NOT IN (SELECT event_id FROM event_deliveries)`))
	if err != nil {
		j.fail("read deliveries: %v", err)
	}
	for _, id := range ids {
		if j.w.receiver.seen[id] == 0 {
			j.fail("%s was never received", id)
		}
	}
}

// files: after the sweeps the store holds what the rows need, and nothing else.
func (j *judge) files() {
	ctx := context.Background()
	time.Sleep(26 * time.Hour) // longer than the lifetime of any upload
	r := &replica{world: j.w, number: replicas, name: "sweeper"}
	if err := r.build(); err != nil {
		j.fail("%v", err)
		return
	}
	swept := make(chan error, 1)
	go func() { swept <- r.expire(r.context(ctx)) }()
	j.w.sched.run(time.Minute, func() bool { return len(swept) > 0 })
	if err := <-swept; err != nil {
		j.fail("sweep: %v", err)
	}
	var unconfirmed []string
	needed, err := db.Texts(j.w.db.Query(ctx, `SELECT object_key FROM separation_stems UNION ALL SELECT peaks_key FROM separation_stems WHERE peaks_key IS NOT NULL
		UNION ALL SELECT output_key FROM renders WHERE output_key IS NOT NULL UNION ALL SELECT poster_key FROM renders WHERE poster_key IS NOT NULL`))
	if err == nil {
		// If the store did not confirm a poster, the service makes it again on request, under the same key, and deletes
		// it with its film.
		unconfirmed, err = db.Texts(j.w.db.Query(ctx, `SELECT replace(output_key, '.mp4', '.jpg') FROM renders WHERE output_key IS NOT NULL AND poster_key IS NULL`))
	}
	if err != nil {
		j.fail("read objects: %v", err)
	}
	stored := map[string]bool{}
	for _, key := range j.w.bucket.keys("") {
		stored[key] = true
	}
	for _, key := range needed {
		if !stored[key] {
			j.fail("%s is gone", key)
		}
		delete(stored, key)
	}
	for _, key := range unconfirmed {
		delete(stored, key)
	}
	for key := range stored {
		j.fail("%s is left", key)
	}
}
