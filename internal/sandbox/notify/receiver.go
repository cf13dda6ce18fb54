package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/sandbox/fake"
)

// StepHook is the receiver's only step: POST /webhook.
const StepHook = "webhook"

// Receiver is an operator's web hook. It refuses calls without a valid signature of Standard Webhooks 1.0.
type Receiver struct {
	*inbox
	secret []byte
}

// NewReceiver returns a receiver. secret is whsec_ followed by base64.
func NewReceiver(secret string, arrive func(line string)) *Receiver {
	r := &Receiver{inbox: newInbox("web hook", arrive),
		secret: fake.Must(base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")))}
	r.Handle(StepHook, "POST "+HookPath, r.receive)
	return r
}

// HookPath is the path of web hooks.
const HookPath = "/webhook"

// maxAge is how far a web hook's timestamp may be from now.
const maxAge = 5 * time.Minute

func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 64<<10))
	id, at := req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp")
	seconds, timeErr := strconv.ParseInt(at, 10, 64)
	mac := hmac.New(sha256.New, r.secret)
	mac.Write([]byte(id + "." + at + "." + string(body)))
	want, signed := "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), false
	for signature := range strings.FieldsSeq(req.Header.Get("webhook-signature")) {
		signed = signed || hmac.Equal([]byte(signature), []byte(want))
	}
	var event struct {
		Type string `json:"type"`
		Data struct {
			JobID string `json:"jobId"`
		} `json:"data"`
	}
	switch {
	case err != nil || json.Unmarshal(body, &event) != nil:
		w.WriteHeader(http.StatusBadRequest)
	case !signed, id == "", timeErr != nil, math.Abs(time.Since(time.Unix(seconds, 0)).Seconds()) > maxAge.Seconds():
		w.WriteHeader(http.StatusUnauthorized)
	default:
		r.accept(Message{ID: id, Type: event.Type, JobID: event.Data.JobID, Body: string(body)})
		w.WriteHeader(http.StatusNoContent)
	}
}
