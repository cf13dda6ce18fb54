package ops

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A service that accepts connections and answers nothing must not be reported to systemd as alive.
func TestWatchdogAsksTheListeners(t *testing.T) {
	release := make(chan struct{})
	healthz := func(status int) net.Listener {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status == 0 {
				<-release
				return
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(srv.Close)
		return srv.Listener
	}
	good, broken, hung := healthz(http.StatusOK), healthz(http.StatusInternalServerError), healthz(0)
	t.Cleanup(func() { close(release) })
	patient, hasty := &http.Client{}, &http.Client{Timeout: 50 * time.Millisecond}
	if err := requestHealth(t.Context(), patient, []net.Listener{good, good}); err != nil {
		t.Errorf("two good listeners: %v", err)
	}
	if requestHealth(t.Context(), patient, []net.Listener{good, broken}) == nil {
		t.Error("a listener that answers 500 counts as alive")
	}
	if requestHealth(t.Context(), hasty, []net.Listener{good, hung}) == nil {
		t.Error("a listener that hangs counts as alive")
	}
}
