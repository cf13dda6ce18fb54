// Package notify stands in for the receivers of job notifications: the push services of the two platforms and an
// operator's web hook. Each performs the checks of the real service and stores the messages that it accepts.
package notify

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"cutroom/internal/sandbox/fake"
)

// ProjectID is the project of platform_a's push service.
const ProjectID = "sandbox-project"

// Message is a message that a stand-in accepted.
type Message struct {
	Token string    `json:"token,omitempty"` // of the device
	ID    string    `json:"id,omitempty"`    // of the web hook
	Type  string    `json:"type"`
	JobID string    `json:"jobId"`
	Body  string    `json:"body"`
	At    time.Time `json:"at"`
}

// inbox stores the accepted messages of a stand-in and the tokens of removed apps.
type inbox struct {
	*fake.Host
	name   string
	arrive func(line string)

	mu       sync.Mutex
	messages []Message
	stale    sync.Map
}

// newInbox returns an inbox that calls arrive, unless nil, with a line of text for each message.
func newInbox(name string, arrive func(line string)) *inbox {
	if arrive == nil {
		arrive = func(string) {}
	}
	b := &inbox{Host: fake.NewHost(nil), name: name, arrive: arrive}
	b.HandleControl("GET", "messages", "what was accepted, oldest first", nil, func(*http.Request) (any, error) { return b.Messages(), nil })
	b.HandleControl("DELETE", "messages", "forget what was accepted", nil, func(*http.Request) (any, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.messages = nil
		return nil, nil
	})
	return b
}

type staleToken struct {
	Token string `json:"token"`
	Why   string `json:"why,omitempty"`   // platform_a: the code of its refusal; default UNREGISTERED
	AgoMs int64  `json:"agoMs,omitempty"` // platform_b: how long the token has been invalid already

	since time.Time
}

// Stale makes the platform forget a device, as if its app had been removed.
func (b *inbox) Stale(token string) { b.forget(staleToken{Token: token}) }

func (b *inbox) forget(t staleToken) {
	t.since = time.Now().Add(-time.Duration(t.AgoMs) * time.Millisecond)
	b.stale.Store(t.Token, t)
}

func (b *inbox) isStale(token string) bool {
	_, stale := b.stale.Load(token)
	return stale
}

func (b *inbox) whyStale(token string) string {
	t, _ := b.stale.Load(token)
	return t.(staleToken).Why
}

func (b *inbox) staleSince(token string) time.Time {
	t, _ := b.stale.Load(token)
	return t.(staleToken).since
}

// controlStale adds the control call behind Stale. refusal is the answer to such a device's token.
func (b *inbox) controlStale(refusal string, example staleToken) {
	fake.Control(b.Host, "POST", "stale", "answer a device's token with "+refusal+" from now on", example,
		func(_ context.Context, t staleToken) (any, error) { b.forget(t); return nil, nil })
}

// Messages returns the messages accepted so far, oldest first.
func (b *inbox) Messages() []Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Message{}, b.messages...)
}

// maxMessages is how many messages are kept.
const maxMessages = 1000

func (b *inbox) accept(m Message) {
	m.At = time.Now()
	b.mu.Lock()
	if len(b.messages) == maxMessages {
		b.messages = slices.Delete(b.messages, 0, maxMessages/10)
	}
	b.messages = append(b.messages, m)
	b.mu.Unlock()
	b.arrive(fmt.Sprintf("%s: %s %s", b.name, m.Type, m.JobID))
}
