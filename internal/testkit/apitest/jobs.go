// Submits jobs, waits for them and downloads their files, for tests of the API.

package apitest

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// jobDeadline is generous: test clips are seconds long, but the machine may be busy.
const jobDeadline = 10 * time.Minute

// Stem is a stem of a separation status.
type Stem struct {
	StemID, Label, URL string
	DurationMs         int64
}

// SeparationStatus is the body of GET /separate/{jobId}.
type SeparationStatus struct {
	JobID, Status    string
	Progress         int
	ProgressReason   string
	Error, ErrorCode string
	Stems            []Stem
	ActualDurationMs int64
	QueuePosition    int
	EstimatedWaitSec int
	ExpiresAt        int64
}

// Stem returns the stem with the id, and ends the test if there is none.
func (s SeparationStatus) Stem(t testing.TB, id string) Stem {
	t.Helper()
	for _, stem := range s.Stems {
		if stem.StemID == id {
			return stem
		}
	}
	t.Fatalf("%s has no stem %s", s.JobID, id)
	return Stem{}
}

// SeparationForm is the multipart body of a separation.
func SeparationForm(path string) []Part {
	return []Part{
		{Name: "file", Path: path, Filename: filepath.Base(path), Type: "audio/wav"},
		{Name: "spec", Text: `{"sourceLanguageCode":"auto"}`},
	}
}

// Separate submits an audio file and returns the job's id.
func (u *User) Separate(t testing.TB, path string) string {
	t.Helper()
	return u.Send(t, Request{Method: http.MethodPost, Path: "/api/v2/separate",
		Form: SeparationForm(path), Valid: true}).Job(http.StatusAccepted)
}

// Separation returns the current status of a separation.
func (u *User) Separation(t testing.TB, jobID string) SeparationStatus {
	t.Helper()
	var s SeparationStatus
	u.Get(t, "/api/v2/separate/"+jobID).Expect(http.StatusOK).JSON(&s)
	return s
}

// WaitReady waits until a separation is READY; FAILED ends the test.
func (u *User) WaitReady(t testing.TB, jobID string) SeparationStatus {
	t.Helper()
	return u.WaitSeparation(t, jobID, "READY")
}

// WaitSeparation waits until a separation has a status. It ends the test if the separation ends with another status,
// and fails it if the progress falls.
func (u *User) WaitSeparation(t testing.TB, jobID, want string) SeparationStatus {
	t.Helper()
	var last SeparationStatus
	Eventually(t, jobDeadline, func() bool {
		s := u.Separation(t, jobID)
		if s.Progress < last.Progress {
			t.Errorf("%s: progress fell from %d to %d", jobID, last.Progress, s.Progress)
		}
		last = s
		if s.Status == want {
			return true
		}
		if s.Status == "FAILED" || s.Status == "DISPOSED" || s.Status == "READY" && want != "DISPOSED" {
			t.Fatalf("%s is %s, want %s: %s", jobID, s.Status, want, s.Error)
		}
		return false
	}, func() string { return jobID + " is " + last.Status + ", want " + want })
	return last
}

// DownloadStem downloads a stem to a temporary file, without a bearer token.
func (s *Server) DownloadStem(t testing.TB, stem Stem) string {
	t.Helper()
	res := s.Do(t, Request{Path: s.pathOf(t, stem.URL), Valid: true}).Expect(http.StatusOK)
	return save(t, stem.StemID+extension(res), res.Body)
}

// RenderStatus is the body of GET /render/{jobId}/status.
type RenderStatus struct {
	JobID, Status  string
	Progress       int
	ProgressReason string
	Error          string
	ErrorCode      string
	Field          string
}

// M is a JSON object of a request.
type M = map[string]any

// RenderForm returns the multipart body of a render: config, marshalled unless it is a string, and the media parts.
func RenderForm(t testing.TB, config any, media ...Part) []Part {
	t.Helper()
	text, isText := config.(string)
	if !isText {
		b, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	return append(media, Part{Name: "config", Text: text})
}

// File is a media part.
func File(name, path string) Part { return Part{Name: name, Path: path} }

// Render submits a multipart render and returns the job's id.
func (u *User) Render(t testing.TB, config any, media ...Part) string {
	t.Helper()
	return u.Send(t, Request{Method: http.MethodPost, Path: "/api/v2/render",
		Form: RenderForm(t, config, media...), Valid: true}).Job(http.StatusOK)
}

// Status returns the current status of a render.
func (u *User) Status(t testing.TB, jobID string) RenderStatus {
	t.Helper()
	var s RenderStatus
	u.Get(t, "/api/v2/render/"+jobID+"/status").Expect(http.StatusOK).JSON(&s)
	return s
}

// WaitRendered waits until a render is COMPLETED; FAILED ends the test.
func (u *User) WaitRendered(t testing.TB, jobID string) {
	t.Helper()
	if s := u.WaitFinished(t, jobID); s.Status != "COMPLETED" {
		t.Fatalf("%s is %s: %s", jobID, s.Status, s.Error)
	}
}

// WaitFinished waits until a render is COMPLETED or FAILED, and fails the test if its progress falls.
func (u *User) WaitFinished(t testing.TB, jobID string) RenderStatus {
	t.Helper()
	var last RenderStatus
	Eventually(t, jobDeadline, func() bool {
		s := u.Status(t, jobID)
		if s.Progress < last.Progress {
			t.Errorf("%s: progress fell from %d to %d", jobID, last.Progress, s.Progress)
		}
		last = s
		return s.Status == "COMPLETED" || s.Status == "FAILED"
	}, func() string { return jobID + " is still " + last.Status })
	return last
}

// Download downloads a rendered file to a temporary file. It follows a redirect to the object store.
func (u *User) Download(t testing.TB, jobID string) string {
	t.Helper()
	res := u.Get(t, "/api/v2/render/"+jobID+"/download")
	if res.Status == http.StatusFound {
		res = u.Outside(t, http.MethodGet, res.Header.Get("Location"), nil, nil)
	}
	res.Expect(http.StatusOK)
	return save(t, jobID+extension(res), res.Body)
}

// RenderFilm submits a render, waits for it and downloads the film.
func (u *User) RenderFilm(t testing.TB, config any, media ...Part) string {
	t.Helper()
	id := u.Render(t, config, media...)
	u.WaitRendered(t, id)
	return u.Download(t, id)
}

// Segment returns a segment of a multipart render with its required fields.
func Segment(part string, order int, d time.Duration) M {
	return M{"sourceFileKey": part, "order": order, "durationMs": d.Milliseconds()}
}

// With returns a copy of m with more fields.
func With(m M, more M) M {
	out := maps.Clone(m)
	maps.Copy(out, more)
	return out
}

// Eventually polls until done returns true. After the deadline it ends the test with the message that say returns. The
// interval grows, to leave the CPU to other tests.
func Eventually(t testing.TB, deadline time.Duration, done func() bool, say func() string) {
	t.Helper()
	began := time.Now()
	for !done() {
		waited := time.Since(began)
		if waited > deadline {
			t.Fatalf("after %v: %s", deadline, say())
		}
		time.Sleep(min(max(waited/10, 20*time.Millisecond), 300*time.Millisecond))
	}
}

func extension(res *Response) string {
	switch res.Header.Get("Content-Type") {
	case "video/mp4":
		return ".mp4"
	case "audio/mp4":
		return ".m4a"
	case "audio/flac", "audio/x-flac":
		return ".flac"
	case "audio/mpeg":
		return ".mp3"
	}
	return ".bin"
}

func save(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
