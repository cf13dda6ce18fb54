// The soak test's history of requests and leases, and the models against which it is checked for linearizability.

package soak

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"cutroom/internal/base/db"
	"cutroom/internal/sandbox/store"
	"cutroom/internal/testkit/apitest"
)

// The history of a run lists the clients' requests and responses with their times. It is linearizable if a sequential
// model gives the same responses when each request takes effect at some moment between its start and its end.

// request is a request about an account: read the balance, submit a job, or present a purchase. A key takes effect
// once. The service itself makes refunds.
type request struct {
	user   string
	kind   string // balance, submit, purchase or refund
	key    string
	amount int // of a refund
}

// answer is the response that the client received. A request with an unknown outcome may take effect at any time or
// never.
type answer struct {
	known   bool
	refused bool // not enough credits
	balance int  // of a balance or a purchase
	result  string
}

// account is the state of the model. It holds the results of the keys that have taken effect.
type account struct {
	balance int
	keys    map[string]string
}

func (a account) with(amount int, key, result string) account {
	keys := maps.Clone(a.keys)
	keys[key] = result
	return account{balance: a.balance + amount, keys: keys}
}

// price is the cost of each submission; product is the number of credits that each purchase grants.
const price, product = 1, 10

// step reports whether the response is valid in this state, and returns the next state.
func (a account) step(in request, out answer) (bool, account) {
	result, done := a.keys[in.key]
	switch in.kind {
	case "balance":
		return a.balance == out.balance, a
	case "refund":
		return true, account{a.balance + in.amount, a.keys}
	case "purchase":
		if !done {
			a = a.with(product, in.key, "granted")
		}
		return !out.known || a.balance == out.balance, a
	}
	switch {
	case out.refused:
		return !done && a.balance < price, a
	case !done && a.balance < price:
		return !out.known, a
	case !done:
		return true, a.with(-price, in.key, out.result)
	case result == "" && out.known: // an earlier response was lost
		return true, a.with(0, in.key, out.result)
	}
	return !out.known || result == out.result, a
}

// accounts is the model of all accounts. Each starts with a balance.
func accounts(begin int) porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			return partition(history, func(op porcupine.Operation) string { return op.Input.(request).user })
		},
		Init: func() any { return account{begin, map[string]string{}} },
		Step: func(state, in, out any) (bool, any) {
			ok, next := state.(account).step(in.(request), out.(answer))
			return ok, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(account), b.(account)
			return x.balance == y.balance && maps.Equal(x.keys, y.keys)
		},
	}
}

func partition(history []porcupine.Operation, by func(porcupine.Operation) string) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, op := range history {
		parts[by(op)] = append(parts[by(op)], op)
	}
	var out [][]porcupine.Operation
	for _, part := range parts {
		out = append(out, part)
	}
	return out
}

// recorder collects the requests and responses of many clients.
type recorder struct {
	mu    sync.Mutex
	began time.Time
	ops   []porcupine.Operation
}

// forever is the latest time at which a request with an unknown outcome takes effect.
const forever = 1 << 62

// ask sends a request and records it with the response.
func (r *recorder) ask(in request, call func() answer) {
	from := time.Since(r.began)
	out := call()
	to := time.Since(r.began)
	if !out.known {
		if in.kind == "balance" {
			return // the request had no effect
		}
		to = forever
	}
	r.add(in, out, from, to)
}

func (r *recorder) add(in request, out answer, from, to time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{Input: in, Output: out, Call: int64(from), Return: int64(to)})
}

// client reads balances, and presents each purchase to two replicas at once, until quit closes.
func (k *soak) client(rng *rand.Rand, quit <-chan struct{}) {
	for {
		select {
		case <-quit:
			return
		case <-time.After(time.Duration(50+rng.IntN(250)) * time.Millisecond):
		}
		k.mu.Lock()
		u := *k.users[rng.IntN(len(k.users))]
		k.mu.Unlock()
		if rng.IntN(12) > 0 {
			k.read(rng, u, request{user: u.Sub, kind: "balance"}, apitest.Request{Path: "/api/v2/credits"})
			continue
		}
		p := u.World.PurchaseA(store.PurchaseA{ProductID: "credits." + strconv.Itoa(product), AccountID: u.Sub})
		var twice sync.WaitGroup
		for range 2 {
			rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
			twice.Go(func() {
				k.read(rng, u, request{user: u.Sub, kind: "purchase", key: p.OrderID}, apitest.Request{Method: http.MethodPost,
					Path: "/api/v2/credits/purchase", JSON: apitest.M{"platform": "platform_a", "transactionId": p.OrderID,
						"receipt": p.Token, "productId": p.ProductID}})
			})
		}
		twice.Wait()
	}
}

// read sends a request to any replica. The response contains a balance.
func (k *soak) read(rng *rand.Rand, u apitest.User, in request, r apitest.Request) {
	i, ok := k.anyUp(rng)
	if !ok {
		return
	}
	u.Server, r.Token = k.direct[i], u.Token
	k.history.ask(in, func() answer {
		res, err := u.TryDo(k.t, r)
		if err != nil || res.Status != http.StatusOK {
			return answer{}
		}
		var body struct{ Balance int }
		res.JSON(&body)
		return answer{known: true, balance: body.Balance}
	})
}

// judgeHistory adds the refunds to the history and fails the test unless it is linearizable. The time in the ledger is
// that of the statement, which precedes the commit.
func (k *soak) judgeHistory() {
	err := db.Each(k.t.Context(), k.db, func(row *db.Rows) error {
		refund, ms := request{kind: "refund"}, int64(0)
		err := row.Scan(&refund.user, &refund.amount, &ms)
		at := time.UnixMilli(ms).Sub(k.began)
		k.history.add(refund, answer{known: true}, at-time.Second, at+10*time.Second)
		return err
	}, `SELECT user_id, amount, created_at FROM credit_ledger WHERE kind = 'refund'`)
	if err != nil {
		k.t.Fatal(err)
	}
	k.linearizable("accounts", accounts(k.credits), k.history.ops)
	k.judgeClaims()
}

func (k *soak) linearizable(what string, model porcupine.Model, history []porcupine.Operation) {
	k.t.Helper()
	const within = 2 * time.Minute
	if len(history) == 0 {
		k.t.Errorf("the history of %s is empty", what)
	}
	switch result := porcupine.CheckOperationsTimeout(model, history, within); result {
	case porcupine.Ok:
		k.t.Logf("%d requests of the history of %s are linearizable", len(history), what)
	case porcupine.Unknown:
		k.t.Errorf("the check of the history of %s, %d requests, did not finish within %v: shorten the run", what, len(history), within)
	default:
		k.t.Errorf("the history of %s is not linearizable:\n%v", what, history)
	}
}

// change is a change of a separation's row, as a trigger recorded it.
type change struct {
	job, state, owner string
	fence, until, now int64
}

// watchClaims makes PostgreSQL record all changes of leases. They are in commit order, because a row is locked from the
// trigger to the commit.
func (k *soak) watchClaims() {
	if !apitest.Postgres() {
		return
	}
	for _, statement := range []string{
		`CREATE TABLE soak_changes (seq BIGSERIAL, job TEXT, state TEXT, owner TEXT, fence BIGINT, lease BIGINT, now BIGINT)`,
		`CREATE FUNCTION soak_change() RETURNS trigger AS $$ BEGIN
			INSERT INTO soak_changes (job, state, owner, fence, lease, now)
			VALUES (NEW.id, NEW.state, COALESCE(NEW.lease_owner, ''), NEW.fence, COALESCE(NEW.lease_until, 0), now_ms());
			RETURN NULL; END $$ LANGUAGE plpgsql`,
		`CREATE TRIGGER soak_change AFTER UPDATE ON jobs FOR EACH ROW WHEN (NEW.kind = 'separation') EXECUTE FUNCTION soak_change()`,
	} {
		if _, err := k.db.Exec(k.t.Context(), statement); err != nil {
			k.t.Fatal(err)
		}
	}
}

func (k *soak) judgeClaims() {
	if !apitest.Postgres() {
		return
	}
	var history []porcupine.Operation
	err := db.Each(k.t.Context(), k.db, func(row *db.Rows) error {
		var c change
		err := row.Scan(&c.job, &c.state, &c.owner, &c.fence, &c.until, &c.now)
		at := int64(2 * len(history))
		history = append(history, porcupine.Operation{Input: c, Call: at, Return: at + 1})
		return err
	}, `SELECT job, state, owner, fence, lease, now FROM soak_changes ORDER BY seq`)
	if err != nil {
		k.t.Fatal(err)
	}
	k.linearizable("claims", leases(), history)
}

// leases is the model of a job's lease. A lease has one holder. The holder changes only if the lease is free or
// expired, and never after the job has ended.
func leases() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			return partition(history, func(op porcupine.Operation) string { return op.Input.(change).job })
		},
		Init: func() any { return change{} },
		Step: func(state, in, _ any) (bool, any) {
			was, is := state.(change), in.(change)
			ended := was.state == "READY" || was.state == "FAILED" || was.state == "DISPOSED"
			switch {
			case is.fence < was.fence, ended && is.owner != "":
				return false, was
			case is.owner != "" && is.owner != was.owner, is.fence > was.fence && is.owner != "":
				return is.fence > was.fence && (was.owner == "" || was.until <= is.now), is
			}
			return true, is
		},
	}
}

// Without this test, a checker that accepts everything would go unnoticed.
func TestHistoriesThatAreNotLinearizableAreRefused(t *testing.T) {
	op := func(from, to int64, in request, out answer) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: from, Return: to}
	}
	balance := func(from, to int64, n int) porcupine.Operation {
		return op(from, to, request{kind: "balance"}, answer{known: true, balance: n})
	}
	submit := func(from, to int64, key, job string) porcupine.Operation {
		return op(from, to, request{kind: "submit", key: key}, answer{known: job != "", result: job})
	}
	claim := func(at int64, owner string, fence, until, now int64) porcupine.Operation {
		return porcupine.Operation{Input: change{state: "SUBMITTING", owner: owner, fence: fence, until: until, now: now}, Call: 2 * at, Return: 2*at + 1}
	}
	for name, c := range map[string]struct {
		model porcupine.Model
		bad   bool
		ops   []porcupine.Operation
	}{
		"charged once":             {accounts(5), false, []porcupine.Operation{submit(0, 1, "k", "a"), submit(2, 3, "k", "a"), balance(4, 5, 4)}},
		"charged twice":            {accounts(5), true, []porcupine.Operation{submit(0, 1, "k", "a"), submit(2, 3, "k", "a"), balance(4, 5, 3)}},
		"two jobs of a key":        {accounts(5), true, []porcupine.Operation{submit(0, 9, "k", "a"), submit(0, 9, "k", "b")}},
		"a charge seen and unseen": {accounts(5), true, []porcupine.Operation{submit(0, 9, "k", "a"), balance(1, 2, 4), balance(3, 4, 5)}},
		"a lost answer":            {accounts(5), false, []porcupine.Operation{submit(0, forever, "k", ""), balance(1, 2, 5), balance(3, 4, 4), submit(5, 6, "k", "a")}},
		"a refund from nowhere":    {accounts(5), true, []porcupine.Operation{balance(1, 2, 6)}},
		"a lease that ran out":     {leases(), false, []porcupine.Operation{claim(0, "x", 1, 10, 0), claim(1, "y", 2, 30, 11)}},
		"two holders":              {leases(), true, []porcupine.Operation{claim(0, "x", 1, 10, 0), claim(1, "y", 2, 30, 9)}},
		"a new holder's old fence": {leases(), true, []porcupine.Operation{claim(0, "x", 1, 10, 0), claim(1, "y", 1, 30, 11)}},
	} {
		if got := porcupine.CheckOperations(c.model, c.ops); got == c.bad {
			t.Errorf("%s: linearizable %v", name, got)
		}
	}
}
