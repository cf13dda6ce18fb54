// Web hooks and pushes about ended jobs, even after crashes of the sender.

package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/notify"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
)

// shortFilm renders half a second and waits for it.
func shortFilm(t testing.TB, u *apitest.User) string {
	t.Helper()
	id := u.Render(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))
	u.WaitRendered(t, id)
	return id
}

// waitForMessage waits until a stand-in has accepted a message about a job, and returns the message.
func waitForMessage(t testing.TB, messages func() []notify.Message, job string) notify.Message {
	t.Helper()
	find := func() int {
		return slices.IndexFunc(messages(), func(m notify.Message) bool { return m.JobID == job })
	}
	apitest.Eventually(t, maxWait, func() bool { return find() >= 0 }, func() string { return fmt.Sprintf("no message about %s: %+v", job, messages()) })
	return messages()[find()]
}

// countMessages counts the messages about a job.
func countMessages(messages []notify.Message, job string) (n int) {
	for _, m := range messages {
		if m.JobID == job {
			n++
		}
	}
	return n
}

func device(platform, token string) M { return M{"platform": platform, "token": token} }

func register(t testing.TB, u *apitest.User, platform, token string) {
	t.Helper()
	u.Send(t, apitest.Request{Method: "PUT", Path: "/api/v2/devices", JSON: device(platform, token)}).Expect(204)
}

func TestTheEndOfAJobIsReported(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	x := apitest.Start(t)
	w := x.World
	u := x.SignIn(t, apitest.Credits(5))
	const phoneB = "00aa11bb"
	register(t, u, "platform_a", "phone-a")
	register(t, u, "Platform_B ", phoneB)
	register(t, u, "platform_b", "ffee") // the app was removed from this device
	w.PushB.Stale("ffee")
	var features struct{ Features []string }
	u.Get(t, "/api/v2/capabilities").JSON(&features)
	if !slices.Contains(features.Features, "devices.platform_a") || !slices.Contains(features.Features, "devices.platform_b") {
		t.Errorf("features %v", features.Features)
	}

	film := shortFilm(t, u)
	ready := u.Separate(t, mixture(t))
	u.WaitReady(t, ready)
	x.World.FailSeparator(t, fake.Rule{Step: separator.StepSubmit, Kind: fake.KindStatus, Status: 400})
	failed := u.Separate(t, mixture(t))
	u.WaitSeparation(t, failed, "FAILED")
	for job, want := range map[string]string{
		film:   `{"type":"render.completed","data":{"jobId":"` + film + `","userId":"` + u.Sub + `","status":"COMPLETED","errorCode":null}}`,
		ready:  `{"type":"separation.ready","data":{"jobId":"` + ready + `","userId":"` + u.Sub + `","status":"READY","errorCode":null}}`,
		failed: `{"type":"separation.failed","data":{"jobId":"` + failed + `","userId":"` + u.Sub + `","status":"FAILED","errorCode":"provider_rejected"}}`,
	} {
		var expected, got map[string]any
		hook := waitForMessage(t, w.Receiver.Messages, job)
		if err := json.Unmarshal([]byte(hook.Body), &got); err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, fmt.Sprint(got["timestamp"]))
		if err != nil || time.Since(at).Abs() > maxWait {
			t.Errorf("timestamp of %s: %v", hook.Body, err)
		}
		delete(got, "timestamp")
		if err := json.Unmarshal([]byte(want), &expected); err != nil || fmt.Sprint(got) != fmt.Sprint(expected) {
			t.Errorf("%s, want %s, %v", hook.Body, want, err)
		}
		a, b := waitForMessage(t, w.PushA.Messages, job), waitForMessage(t, w.PushB.Messages, job)
		if a.Token != "phone-a" || b.Token != phoneB || a.Type != got["type"] || b.Type != got["type"] {
			t.Errorf("pushes %+v, %+v", a, b)
		}
	}

	// One phone gets a new owner, and one is signed out.
	next := x.SignIn(t, apitest.Credits(5))
	register(t, next, "platform_a", "phone-a")
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/devices", JSON: device("platform_a", "phone-a")}).Expect(204) // registered by another user, so it stays
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/devices", JSON: device("platform_b", phoneB)}).Expect(204)
	register(t, u, "platform_b", "0102")
	u.Post(t, "/api/v2/auth/sign-out", nil).Expect(204)
	apitest.Eventually(t, maxWait, func() bool { return u.Get(t, "/api/v2/credits").Status == 401 }, func() string { return "the token is still valid" })
	u.SignInAgain(t)
	theirs, mine := shortFilm(t, next), shortFilm(t, u)
	waitForMessage(t, w.Receiver.Messages, mine)
	waitForMessage(t, w.PushA.Messages, theirs)
	if countMessages(w.PushB.Messages(), mine)+countMessages(w.PushA.Messages(), mine)+countMessages(w.PushB.Messages(), theirs) != 0 {
		t.Errorf("pushes %+v, %+v", w.PushA.Messages(), w.PushB.Messages())
	}

	for _, method := range []string{"PUT", "DELETE"} {
		send := func(body M) *apitest.Response {
			return u.Send(t, apitest.Request{Method: method, Path: "/api/v2/devices", JSON: body})
		}
		send(device("platform_c", "t")).Error(400, "invalid_platform")
		send(device("platform_a", "")).Sentence(400, "token")
		send(device("platform_a", strings.Repeat("x", 4097))).Sentence(400, "token")
		send(device("platform_a", "a\x00")).Sentence(400, "token")
		send(device("platform_a", strings.Repeat("x", 4096))).Expect(204)
	}
}

// Any running process repeats a failed delivery, with the same id. Events of a deleted job are not sent.
func TestEventsOutliveACrash(t *testing.T) {
	t.Parallel()
	x := apitest.Start(t)
	w := x.World
	u := x.SignIn(t)
	address := w.Receiver.Addr()
	if err := w.Receiver.Close(); err != nil {
		t.Fatal(err)
	}
	list := func(args ...string) (out []struct{ ID, JobID, Webhook, LastError string }) {
		t.Helper()
		command(t, x, &out, append([]string{"events"}, args...)...)
		return out
	}
	deleted := shortFilm(t, u)
	apitest.Eventually(t, maxWait, func() bool { tried := list(); return len(tried) == 1 && tried[0].LastError != "" },
		func() string { return fmt.Sprintf("no attempt: %+v", list()) })
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/render/" + deleted}).Expect(204)
	film := shortFilm(t, u)
	failed := func() bool {
		for line := range strings.Lines(x.Logs()) {
			if strings.Contains(line, "event delivery failed") && strings.Contains(line, film) {
				return true
			}
		}
		return false
	}
	apitest.Eventually(t, maxWait, failed, func() string { return "the event of " + film + " was not attempted" })
	x.Kill9(t) // before the second attempt, because the third would be five minutes later
	if err := w.Receiver.Listen(address); err != nil {
		t.Fatal(err)
	}
	x.Restart(t)
	hook := waitForMessage(t, w.Receiver.Messages, film)
	var listed []struct{ ID, JobID, Webhook, LastError string }
	apitest.Eventually(t, maxWait, func() bool { listed = list(); return len(listed) == 1 && listed[0].Webhook == "DELIVERED" },
		func() string { return fmt.Sprintf("events %+v", listed) })
	if listed[0].ID != hook.ID || listed[0].JobID != film {
		t.Errorf("%+v was delivered as %s", listed, hook.ID)
	}

	// An operator sends the event again, by its id and by a time.
	for i, args := range [][]string{{hook.ID}, {"--since", hook.At.Add(-time.Hour).UTC().Format(time.RFC3339)}, {"--since", hook.At.Add(-24 * time.Hour).UTC().Format(time.DateOnly)}} {
		if out := succeeds(t, x, append([]string{"events", "retry"}, args...)...); !strings.Contains(out, "1 event") {
			t.Errorf("events retry %v: %s", args, out)
		}
		apitest.Eventually(t, maxWait, func() bool { return countMessages(w.Receiver.Messages(), film) >= i+2 }, func() string { return "not sent again" })
	}
	for _, m := range w.Receiver.Messages() {
		if m.JobID == deleted || m.ID != hook.ID || m.Body != hook.Body {
			t.Errorf("%+v, want %+v again", m, hook)
		}
	}
	for _, args := range [][]string{{"evt-unknown"}, {}, {hook.ID, "--since", "2026-01-01"}, {"--since", "yesterday"}} {
		if status, out := x.Command(t, append([]string{"events", "retry"}, args...)...); status == 0 {
			t.Errorf("events retry %v: %s", args, out)
		}
	}
	if failed := list("--failed"); len(failed) != 0 {
		t.Errorf("failed events: %+v", failed)
	}
	var page struct {
		Events []struct{ ID, Webhook string }
	}
	x.Admin(t).Get(t, "/api/v2/admin/events?limit=5").Expect(200).JSON(&page)
	if len(page.Events) != 1 || page.Events[0].ID != hook.ID {
		t.Errorf("the admin app sees %+v", page)
	}
	u.Get(t, "/api/v2/admin/events").Error(403, "admin_required")
}

// A hanging receiver delays neither a push nor another event. If the process of an attempt crashes, the attempt is
// repeated within a minute.
func TestEventsOutliveACrashDuringAnAttempt(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	x := apitest.Start(t)
	receiver := x.World.Receiver
	u := x.SignIn(t)
	register(t, u, "platform_a", "phone-a")
	if err := receiver.Faults.Add(fake.Rule{Step: notify.StepHook, Kind: fake.KindStall, Times: 1}); err != nil {
		t.Fatal(err)
	}
	film := shortFilm(t, u)
	waitForMessage(t, x.World.PushA.Messages, film)
	apitest.Eventually(t, maxWait, func() bool { return receiver.Faults.Count(notify.StepHook) == 1 }, func() string { return "the receiver was not called" })
	waitForMessage(t, receiver.Messages, shortFilm(t, u))
	x.Kill9(t)
	crashed := time.Now()
	receiver.Faults.Clear()
	x.Restart(t)
	if after := waitForMessage(t, receiver.Messages, film).At.Sub(crashed); after > time.Minute {
		t.Errorf("delivered %v after the crash", after)
	}
}

func TestEventsWithoutReceivers(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("WEBHOOK_URL", ""), apitest.Env("WEBHOOK_SECRET", ""),
		apitest.Env("PUSH_PLATFORM_A_SERVICE_ACCOUNT", ""), apitest.Env("PUSH_PLATFORM_B_KEY", ""))
	u := s.SignIn(t)
	for _, platform := range []string{"platform_a", "platform_b"} {
		u.Send(t, apitest.Request{Method: "PUT", Path: "/api/v2/devices", JSON: device(platform, "t")}).Error(503, "push_disabled")
	}
	var features struct{ Features []string }
	if u.Get(t, "/api/v2/capabilities").JSON(&features); slices.Contains(features.Features, "devices.platform_a") {
		t.Errorf("features %v", features.Features)
	}
	shortFilm(t, u)
	apitest.Eventually(t, maxWait, func() bool { _, out := s.Command(t, "events", "--json"); return strings.TrimSpace(out) == "[]" },
		func() string { return "events without receivers are kept" })
	if status, out := s.Command(t, "events", "retry", "--since", "2026-01-01"); status == 0 || !strings.Contains(out, "WEBHOOK_URL") {
		t.Errorf("events retry: %d %s", status, out)
	}
}
