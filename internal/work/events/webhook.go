package events

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/base/httpcall"
)

// webhookName is the channel of the web hook.
const webhookName = "webhook"

// secretPrefix begins the text of a web hook's secret; base64 follows.
const secretPrefix = "whsec_"

// DecodeSecret returns the bytes of a web hook's secret.
func DecodeSecret(text string) ([]byte, error) {
	encoded, found := strings.CutPrefix(text, secretPrefix)
	if !found {
		return nil, fmt.Errorf("the secret does not begin with %s", secretPrefix)
	}
	return base64.StdEncoding.DecodeString(encoded)
}

// Webhook calls the operator's receiver as Standard Webhooks 1.0 specifies.
type Webhook struct {
	URL     string
	Secrets [][]byte // each signs, in this order
	HTTP    *http.Client
}

// maxWebhookAnswer is how many bytes of a receiver's answer are read.
const maxWebhookAnswer = 64 << 10

// send posts an event. Any answer but a 2xx is an error.
func (h *Webhook) send(ctx context.Context, m message) error {
	body, err := json.Marshal(webhookBody(m))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "cutroom")
	req.Header.Set("Webhook-Id", m.eventID)
	req.Header.Set("Webhook-Timestamp", at)
	req.Header.Set("Webhook-Signature", h.sign(m.eventID, at, body))
	resp, err := httpcall.Private(h.HTTP).Do(req)
	if err != nil {
		return httpcall.WithoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written: closing loses nothing
	// If the answer was cut off, the receiver may have failed.
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxWebhookAnswer)); err != nil {
		return fmt.Errorf("status %d, then: %w", resp.StatusCode, httpcall.WithoutURL(err))
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// sign returns a signature for each secret, separated by spaces.
func (h *Webhook) sign(id, at string, body []byte) string {
	var out []string
	for _, secret := range h.Secrets {
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
		out = append(out, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(out, " ")
}

type webhookData struct {
	JobID     string  `json:"jobId"`
	UserID    string  `json:"userId"`
	Status    string  `json:"status"`
	ErrorCode *string `json:"errorCode"`
}

type webhookEvent struct {
	Type      Type        `json:"type"`
	Timestamp string      `json:"timestamp"` // when the job ended, ISO 8601 in UTC
	Data      webhookData `json:"data"`
}

// webhookBody returns the body for m, the same at every attempt.
func webhookBody(m message) webhookEvent {
	return webhookEvent{Type: m.kind, Timestamp: m.created.UTC().Format("2006-01-02T15:04:05.000Z"),
		Data: webhookData{JobID: m.jobID, UserID: m.userID, Status: m.kind.status(), ErrorCode: m.errorCode}}
}
