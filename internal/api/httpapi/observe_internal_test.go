// What log and metrics record of a request: which failures are errors, and that no text from a client becomes a label.

package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"cutroom/internal/base/fault"
	"cutroom/internal/storage/disk"
)

// watched is a Server whose log and counts the test reads.
type watched struct {
	*Server
	log    strings.Builder
	counts []string
}

func newWatched() *watched {
	w := &watched{}
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	w.Server = &Server{o: Options{Log: log, Observe: func(method, pattern string, status int, _ float64) {
		w.counts = append(w.counts, fmt.Sprintf("%s|%s|%d", method, pattern, status))
	}}}
	return w
}

func (s *watched) ask(h handler, method string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.observed(s.serve(h)).ServeHTTP(w, httptest.NewRequest(method, "/api/v2/x?token=s3cr3t", nil))
	return w
}

func TestOnlyFailuresOfOursAreErrorsInTheLog(t *testing.T) {
	for _, tt := range []struct {
		name   string
		h      handler
		status int
		body   string
		failed bool
	}{
		{"panic", func(http.ResponseWriter, *http.Request) error { panic("boom") }, 500, `{"error":"Internal server error"}`, true},
		{"nil pointer", func(http.ResponseWriter, *http.Request) error { var r *http.Request; return r.ParseForm() }, 500, `{"error":"Internal server error"}`, true},
		{"error", func(http.ResponseWriter, *http.Request) error { return errors.New("pq: secret") }, 500, `{"error":"Internal server error"}`, true},
		{"internal fault", func(http.ResponseWriter, *http.Request) error { return fault.Sentencef(fault.Internal, "row 5 of x") }, 500, `{"error":"Internal server error"}`, true},
		{"full disk", func(http.ResponseWriter, *http.Request) error { return fmt.Errorf("x: %w", disk.ErrFull) }, 503,
			`{"error":"The service is short of storage, please try again later"}`, true},
		{"full quota of the store", func(http.ResponseWriter, *http.Request) error {
			return fmt.Errorf("store upload: %w", &os.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT})
		}, 503, `{"error":"The service is short of storage, please try again later"}`, true},
		{"client's", func(http.ResponseWriter, *http.Request) error {
			return fault.Invalidf("no").WithCause(errors.New("why"))
		}, 400, `{"error":"no"}`, false},
		{"provider's", func(http.ResponseWriter, *http.Request) error {
			return fault.New(fault.BadGateway, "provider_unavailable").WithCause(errors.New("why"))
		}, 502, `{"error":"provider_unavailable"}`, false},
	} {
		s := newWatched()
		w := s.ask(tt.h, "GET")
		if w.Code != tt.status || strings.TrimSpace(w.Body.String()) != tt.body {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
		if failed := strings.Contains(s.log.String(), "level=ERROR"); failed != tt.failed {
			t.Errorf("%s: logged as\n%s", tt.name, s.log.String())
		}
		if tt.failed && !strings.Contains(s.log.String(), w.Header().Get("X-Request-Id")) {
			t.Errorf("%s: the log does not name request %s", tt.name, w.Header().Get("X-Request-Id"))
		}
		if strings.Contains(s.log.String(), "s3cr3t") {
			t.Errorf("%s: the log holds the query", tt.name)
		}
	}
}

func TestMetricsKnowNoStrangersWords(t *testing.T) {
	s := newWatched()
	for _, method := range []string{"GET", "BREW", "X", "OPTIONS"} {
		s.ask(func(w http.ResponseWriter, _ *http.Request) error { return ok(w, 1) }, method)
	}
	want := []string{"GET|unmatched|200", "other|unmatched|200", "other|unmatched|200", "OPTIONS|unmatched|200"}
	if fmt.Sprint(s.counts) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", s.counts, want)
	}
}

// A client that seems to have disconnected may have closed only its half of the connection, so an aborted request must
// not look to it as if it had succeeded.
func TestAClientThatHungUpIsNoFailure(t *testing.T) {
	s := newWatched()
	srv := httptest.NewServer(s.observed(s.serve(func(_ http.ResponseWriter, r *http.Request) error {
		<-r.Context().Done()
		return fmt.Errorf("read balance: %w", r.Context().Err())
	})))
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /api/v2/x HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	srv.Close()
	if strings.Contains(s.log.String(), "ERROR") || fmt.Sprint(s.counts) != "[GET|unmatched|499]" || len(answer) > 0 || err != nil {
		t.Errorf("counted %v, answered %q, %v, logged\n%s", s.counts, answer, err, s.log.String())
	}
}

func TestErrorsOfEveryKindHaveAStatus(t *testing.T) {
	for kind := fault.Internal; kind <= fault.Unavailable; kind++ {
		w := httptest.NewRecorder()
		writeError(w, fault.New(kind, "x"))
		var body errorBody
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code < 400 || body.Error != "x" {
			t.Errorf("kind %d: %d %s", kind, w.Code, w.Body)
		}
	}
}

// A body of many empty items is refused before it is decoded into structs, which take a hundred times its size.
func TestManyEmptyItemsAreRefusedQuickly(t *testing.T) {
	for _, item := range []string{"{}", "0", "null", "[]", `{"durationMs":1}`} {
		body := []byte(`{"segments":[` + strings.TrimSuffix(strings.Repeat(item+",", 60_000), ",") + `]}`)
		var cfg configWire
		used := testing.AllocsPerRun(10, func() { // other goroutines allocate as well
			err := decoder{}.decode("the body", body, &cfg)
			if f := fault.As(err); f == nil || f.Detail != "the JSON has more than 50000 values" {
				t.Errorf("answer: %v", err)
			}
		})
		if used > 10 {
			t.Errorf("%s: it took %v allocations", item, used)
		}
	}
	var cfg configWire
	if err := (decoder{}).decode("the body", []byte(`{"segments":[`+strings.Repeat("{},", 40_000)+`{}]}`), &cfg); err != nil || len(cfg.Segments) != 40_001 {
		t.Errorf("fewer values: %v", err)
	}
}
