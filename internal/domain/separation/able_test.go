package separation

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"cutroom/internal/film/media"
)

// A replica that cannot work claims no jobs.
func TestJobsGoToTheReplicaThatCanWork(t *testing.T) {
	t.Parallel()
	r := onSQLite(t).withProvider()
	full := r.service(func(o *Options) {
		o.CanWork = func(context.Context) (int64, error) { return 0, errors.New("disk: full") }
	})
	good := r.service()
	id := r.enqueueAudio(good, r.User(1))
	if j, ok, err := full.claim(t.Context()); ok || err != nil {
		t.Fatalf("the full replica claimed %s, %v", j.ID, err)
	}
	defer r.run(full)()
	defer r.run(good)()
	r.waitState(id, StateReady)
}

// A disk that fills while stems are converted hands the job to another replica, and does not blame the provider,
// whichever way ffmpeg shows it.
func TestAFullDiskDuringConversionHandsTheJobOver(t *testing.T) {
	for name, end := range map[string]string{
		"empty file":      `ffmpeg "$@" && truncate -s 0 "$out"`,
		"full at the end": `trap "" XFSZ; ulimit -f 4; ffmpeg "$@"`, // 2 KB: less than ffmpeg keeps in memory
		"lost end":        `ffmpeg "$@" && truncate -s 2000 "$out"`,
		"failed process":  `echo "No space left on device" >&2; exit 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := onSQLite(t).withProvider()
			owner := r.User(1)
			script := filepath.Join(t.TempDir(), "ffmpeg")
			text := `#!/bin/sh
for out; do :; done
out=${out#file:}
case $out in *.flac) ` + end + `;; *) ffmpeg "$@" ;; esac
`
			if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			runner, err := media.New(media.Config{FFmpeg: script, FFprobe: "ffprobe"})
			if err != nil {
				t.Fatal(err)
			}
			var asked atomic.Int64
			full := r.service(func(o *Options) {
				o.Media = runner
				// There is room when the job is claimed, and none when it ends.
				o.CanWork = func(context.Context) (int64, error) {
					if asked.Add(1) > 1 {
						return 0, errors.New("disk: full")
					}
					return 1 << 40, nil
				}
			})
			id := r.enqueueAudio(full, owner)
			defer r.run(full)()
			r.Eventually("handed back", func() bool { x := r.row(id); return x.State == StateProcessing && !x.Leased })
			defer r.run(r.service())()
			if x := r.waitState(id, StateReady); x.Attempts != 1 {
				t.Errorf("%+v", x)
			}
			if titles := r.provider.Titles(); len(titles) != 1 {
				t.Errorf("projects at the provider: %v", titles)
			}
			r.booked(owner, 0)
		})
	}
}
