// Command storebench moves one large object to and from a real S3 server, with this module's Bucket and with
// the plain AWS SDK client, and records speed and memory of each:
//
//	scripts/s3.sh run go run ./internal/objectstore/storebench -report docs/benchmarks.md
//
// Every transfer runs in its own process, so that its peak memory and processor time are measured alone. The
// ways alternate, so that a busy machine slows all of them alike.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"cutroom/internal/benchtest"
	"cutroom/internal/disk"
	"cutroom/internal/objectstore"
)

const objectKey = "storebench/object.bin"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "storebench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	report := flag.String("report", "", "page to write to; blank only prints")
	megabytes := flag.Int64("mb", 500, "size of the object, in MiB")
	rounds := flag.Int("rounds", 7, "how often each way is measured; odd")
	child := flag.String("child", "", "used by the program itself: the way to measure")
	file := flag.String("file", "", "used by the program itself: the local file")
	flag.Parse()
	target, err := parseTarget(os.Getenv("CUTROOM_TEST_S3"))
	if err != nil {
		return err
	}
	if *child != "" {
		return measureHere(ctx, target, *child, *file)
	}
	b := bench{target: target, sizeBytes: *megabytes << 20, rounds: *rounds, results: map[string][]result{}}
	section := benchtest.New("bench-store", "The object store")
	if err := b.run(ctx); err != nil {
		return err
	}
	b.write(section)
	if *report == "" {
		return nil
	}
	return section.Save(*report)
}

// result is the cost of one transfer.
type result struct {
	Seconds    float64
	CPUSeconds float64 // of the client, user and system
	PeakMiB    float64 // largest resident set of the client
}

// measureHere performs one transfer and prints its duration, excluding the start of the program and the
// creation of the client.
func measureHere(ctx context.Context, at objectstore.BucketConfig, name, file string) error {
	i := slices.IndexFunc(ways, func(w way) bool { return w.name == name })
	if i < 0 {
		return fmt.Errorf("no way %q", name)
	}
	move := ways[i].open(at)
	started := time.Now()
	if err := move(ctx, objectKey, file); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result{Seconds: time.Since(started).Seconds()})
}

// bench runs all ways alternately.
type bench struct {
	target    objectstore.BucketConfig
	sizeBytes int64
	rounds    int
	results   map[string][]result // by way
}

func (b *bench) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "storebench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	if err := randomFile(src, b.sizeBytes); err != nil {
		return err
	}
	for round := range b.rounds {
		// Each round begins with another way, because the first one has the least disk traffic to compete with.
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			if w.upload {
				err = b.measure(ctx, w.name, src)
			} else if err = b.measure(ctx, w.name, dst); err == nil {
				err = errors.Join(same(src, dst), os.Remove(dst))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return objectstore.NewBucket(b.target).Delete(ctx, objectKey)
}

func (b *bench) measure(ctx context.Context, name, file string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe, "-child", name, "-file", file)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return err
	}
	r.CPUSeconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	r.PeakMiB = peakMiB(cmd.ProcessState)
	b.results[name] = append(b.results[name], r)
	fmt.Fprintf(os.Stderr, "%-26s %6.2f s  %6.2f s cpu  %5.0f MiB\n", name, r.Seconds, r.CPUSeconds, r.PeakMiB)
	return nil
}

// median returns the median of a figure over the rounds.
func (b *bench) median(w way, figure func(result) float64) float64 {
	var all []float64
	for _, r := range b.results[w.name] {
		all = append(all, figure(r))
	}
	slices.Sort(all)
	return benchtest.Quantile(all, 50)
}

func (b *bench) write(s *benchtest.Section) {
	seconds := func(r result) float64 { return r.Seconds }
	s.Say(`One object of %d MiB, random bytes, to and from a real S3 server (versitygw) on the same machine over plain HTTP. Medians of
%d rounds in which the ways take turns; each transfer is a process of its own. The files of both sides are in %s.

"Bucket" is how cutroom moves objects: parts of 16 MiB, 4 at a time. "SDK, one stream" is one PutObject or GetObject of the
AWS SDK for Go with its defaults, "SDK, parts" is the same client with parts of 5 MiB, 5 at a time, which are the defaults
of the SDK's transfer manager.`, b.sizeBytes>>20, b.rounds, os.TempDir())
	s.Table("way", "MiB/s", "time", "client's CPU", "peak memory")
	for _, w := range ways {
		took := b.median(w, seconds)
		s.Row("%s | %.0f | %.2f s | %.2f s | %.0f MiB", w.name, float64(b.sizeBytes>>20)/took, took,
			b.median(w, func(r result) float64 { return r.CPUSeconds }), b.median(w, func(r result) float64 { return r.PeakMiB }))
	}
	s.Say(`Speed of Bucket against the faster of the two plain ways (the goal is 0.9 or more): **upload %.2f, download %.2f**.

Memory does not depend on the size of the object: no part is held in it. On a disk that is slower than the line, parts cost
more than one stream, because this server writes them once as they come and once more when it puts them together; they are
kept because a broken connection then costs one part and not the whole upload.`, b.ratio(ways[:3], seconds), b.ratio(ways[3:], seconds))
}

// ratio compares the speed of the first way with the best of the others.
func (b *bench) ratio(of []way, seconds func(result) float64) float64 {
	best := b.median(of[1], seconds)
	for _, w := range of[2:] {
		best = min(best, b.median(w, seconds))
	}
	return best / b.median(of[0], seconds)
}

func randomFile(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.Reader, size)
	return errors.Join(err, f.Close())
}

// same compares two files: a fast transfer of wrong bytes is worthless.
func same(a, b string) error {
	ctx := context.Background()
	sumA, _, errA := disk.Digest(ctx, a)
	sumB, _, errB := disk.Digest(ctx, b)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if sumA != sumB {
		return errors.New("other bytes came back")
	}
	return nil
}
