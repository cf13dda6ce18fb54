package separation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"cutroom/internal/db"
	"cutroom/internal/logtest"
	"cutroom/internal/media"
)

// A replica that cannot work claims no jobs. The log contains what happened to the jobs that another replica
// claimed.
func TestJobsGoToTheReplicaThatCanWork(t *testing.T) {
	oneDatabase(t, func(t *testing.T, d *db.DB) {
		r := newHarness(t, d).withProvider()
		owner := r.User(3)
		full := r.service(func(o *Options) {
			o.CanWork = func(context.Context) (int64, error) { return 0, errors.New("disk: full") }
		})
		var log logtest.Buffer
		good := r.service(func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		id := r.enqueueAudio(good, owner)
		if j, ok, err := full.next(t.Context()); ok || err != nil {
			t.Fatalf("the full replica claimed %s, %v", j.ID, err)
		}
		stopFull := r.run(full)
		stop := r.run(good)
		r.waitState(id, StateReady)
		next := r.enqueueAudio(good, owner)
		r.waitState(next, StateReady)
		stop()
		stopFull()
		for _, job := range []string{id, next} {
			for _, message := range []string{"separation claimed", "separation ended"} {
				want := fmt.Sprintf("msg=%q job=%s owner=%s replica=%s attempt=1", message, job, owner, good.Renewer.Owner())
				if n := strings.Count(log.String(), want); n != 1 {
					t.Errorf("%d lines %s in\n%s", n, want, log.String())
				}
			}
		}
	})
}

// A disk that fills while stems are converted hands the job to another replica, and does not blame the
// provider, whichever way ffmpeg shows it.
func TestAFullDiskDuringConversionHandsTheJobOver(t *testing.T) {
	for name, end := range map[string]string{
		"empty file":     `truncate -s 0 "$out"`,
		"cut file":       `truncate -s -200 "$out"; case "$*" in *-xerror*) exit 1 ;; esac`,
		"failed process": `echo "No space left on device" >&2; exit 1`,
	} {
		t.Run(name, func(t *testing.T) {
			oneDatabase(t, func(t *testing.T, d *db.DB) {
				r := newHarness(t, d).withProvider()
				owner := r.User(1)
				script := filepath.Join(t.TempDir(), "ffmpeg")
				text := `#!/bin/sh
ffmpeg "$@" || exit
for out; do :; done
out=${out#file:}
case $out in *.flac) ` + end + `;; esac
`
				if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
				ffprobe, err := exec.LookPath("ffprobe")
				if err == nil {
					err = os.Symlink(ffprobe, filepath.Join(filepath.Dir(script), "ffprobe"))
				}
				if err != nil {
					t.Fatal(err)
				}
				var log logtest.Buffer
				var asked atomic.Int64
				full := r.service(func(o *Options) {
					o.Log = slog.New(slog.NewTextHandler(&log, nil))
					var err error
					if o.Media, err = media.New(media.Config{FFmpeg: script}); err != nil {
						t.Fatal(err)
					}
					// There is room when the job is claimed, and none when it ends.
					o.CanWork = func(context.Context) (int64, error) {
						if asked.Add(1) > 1 {
							return 0, errors.New("disk: full")
						}
						return 1 << 40, nil
					}
				})
				id := r.enqueueAudio(full, owner)
				stopFull := r.run(full)
				defer stopFull()
				r.Eventually("handed back", func() bool { return strings.Contains(log.String(), "separation handed back") })
				stop := r.run(r.service())
				defer stop()
				if x := r.waitState(id, StateReady); x.Attempts != 1 {
					t.Errorf("%+v", x)
				}
				if titles := r.provider.Titles(); len(titles) != 1 {
					t.Errorf("projects at the provider: %v", titles)
				}
				r.booked(owner, 0)
			})
		})
	}
}
