package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/benchtest"
)

// memory is the resident memory of the service during uploads, in MiB.
type memory struct {
	idle, peak, after float64
	quarters          [4]float64 // the highest in each quarter of the time
	took              time.Duration
	sentMB            float64
}

// samplePeriod is how often memory is sampled.
const samplePeriod = 50 * time.Millisecond

// measureUploads lets every client upload its own file, round after round, all clients at once. A client repeats its
// bytes, so the disk holds one file of each.
func (o options) measureUploads(t testing.TB, s *apitest.Server) memory {
	users := make([]*apitest.User, o.uploads)
	for i := range users {
		users[i] = s.SignIn(t)
	}
	m := memory{sentMB: float64(int64(o.uploads) * int64(o.rounds) * o.uploadMB)}
	m.idle = resident(s)
	stop := make(chan struct{})
	sampled := make(chan []float64)
	go func() { sampled <- sample(s, stop) }()
	began := time.Now()
	var all errgroup.Group
	for i, u := range users {
		all.Go(func() error {
			for range o.rounds {
				if err := upload(u, i, o.uploadMB<<20); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := all.Wait()
	m.took = time.Since(began)
	close(stop)
	samples := <-sampled
	if err != nil || len(samples) < 4 {
		t.Fatalf("uploads: %v; %d samples of the memory, upload more if they are few", err, len(samples))
	}
	m.peak = slices.Max(samples)
	for q := range m.quarters {
		m.quarters[q] = slices.Max(samples[len(samples)*q/4 : len(samples)*(q+1)/4])
	}
	m.after = resident(s)
	return m
}

func sample(s *apitest.Server, stop <-chan struct{}) []float64 {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	var out []float64
	for {
		select {
		case <-stop:
			return out
		case <-tick.C:
			out = append(out, resident(s))
		}
	}
}

// resident is the service's resident memory in MiB, without the ffmpeg processes that it may run.
func resident(s *apitest.Server) float64 { return float64(benchtest.Resident(s.PID(0))) / (1 << 20) }

// upload sends a video of the given size to the input cache.
func upload(u *apitest.User, client int, size int64) error {
	const boundary = "bench"
	head := "--" + boundary + "\r\nContent-Disposition: form-data; name=\"video\"; filename=\"a.mp4\"\r\n\r\n"
	tail := "\r\n--" + boundary + "--\r\n"
	// Each client has its own bytes, whose start identifies them as a video.
	start := fmt.Appendf(nil, "\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isommp41client %06d ", client)
	body := io.MultiReader(strings.NewReader(head), bytes.NewReader(start),
		io.LimitReader(&filler{byte(client)}, size-int64(len(start))), strings.NewReader(tail))
	req, err := http.NewRequest(http.MethodPost, u.URL+"/api/v2/render/inputs", body)
	if err != nil {
		return err
	}
	req.ContentLength = int64(len(head)) + size + int64(len(tail))
	req.Header.Set("Authorization", "Bearer "+u.Token)
	req.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer struct{ VideoSizeBytes int64 }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return fmt.Errorf("status %d: %w", res.StatusCode, err)
	}
	if answer.VideoSizeBytes != size {
		return fmt.Errorf("%d bytes arrived of %d", answer.VideoSizeBytes, size)
	}
	return nil
}

// filler is an endless reader of one byte, which costs the sender little.
type filler struct{ of byte }

func (f *filler) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = f.of
	}
	return len(p), nil
}
