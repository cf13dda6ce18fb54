package player_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"cutroom/internal/testkit/benchtest"
	"cutroom/internal/testkit/browsertest"
	"cutroom/internal/testkit/mediatest"
)

// Thirty clips of 1080p play in at most 1.3 GB of the page's process.
func TestManyClipsFitIntoMemory(t *testing.T) {
	long(t)
	const count, limit = 30, 1300 << 20
	clip := filepath.Join(t.TempDir(), "clip.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "testsrc2=s=1920x1080:r=30:d=2,noise=alls=8:allf=t", "-f", "lavfi", "-i", "sine=frequency=330:d=2",
		"-c:v", "libx264", "-preset", "ultrafast", "-crf", "23", "-g", "30", "-c:a", "aac", clip)
	content, err := os.ReadFile(clip)
	if err != nil {
		t.Fatal(err)
	}
	var clips []string
	for i := range count { // a box that players skip makes each file another one
		path := filepath.Join(t.TempDir(), fmt.Sprintf("clip%d.mp4", i))
		free := fmt.Appendf([]byte{0, 0, 0, 12, 'f', 'r', 'e', 'e'}, "%04d", i)
		if err := os.WriteFile(path, append(bytes.Clone(content), free...), 0o600); err != nil {
			t.Fatal(err)
		}
		clips = append(clips, path)
	}
	p := browsertest.Open(t)
	p.Go(studio(t))
	p.Fill("input[type=text]", "Thirty Clips")
	p.Click("form button[type=submit]")
	top := 0
	within := func(what string) {
		t.Helper()
		if used := pageMemory(t); used > top {
			top = used
		}
		if top > limit {
			t.Fatalf("%s: the page takes %d MB, want at most %d", what, top>>20, limit>>20)
		}
	}
	addClips(p, clips...)
	within("after adding")
	p.Click(".transport button[aria-label=Play]:not([disabled])")
	p.Until("document.querySelector('.transport button[aria-label=Pause]')")
	for played := 0; played == 0 || p.Eval("!!document.querySelector('.transport button[aria-label=Pause]')") == "true"; played++ {
		within("while it plays")
		time.Sleep(200 * time.Millisecond) // the film plays in real time
	}
	// Late frames are skipped, also the last ones.
	if at, err := strconv.Atoi(p.Eval("document.querySelector('.stage canvas').dataset.frame")); err != nil || at < count*60-30 {
		t.Errorf("the film stopped at frame %d of %d, %v", at, count*60, err)
	}
	t.Logf("at most %d MB", top>>20)
}

// pageMemory returns the memory of the largest page of this program's browser, in bytes. Of what several processes
// share, it counts the page's part.
func pageMemory(t *testing.T) (most int) {
	t.Helper()
	for _, pid := range benchtest.Family(os.Getpid()) {
		process, err := procfs.NewProc(pid)
		if err != nil {
			continue // it has ended
		}
		if args, _ := process.CmdLine(); strings.Contains(strings.Join(args, " "), "--type=renderer") {
			memory, _ := process.ProcSMapsRollup() // zero if it has ended
			most = max(most, int(memory.Pss))
		}
	}
	if most == 0 {
		t.Fatal("the browser has no page")
	}
	return most
}
