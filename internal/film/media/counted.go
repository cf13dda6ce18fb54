// Sound whose clock cannot be trusted, because files were joined or its format changes: it is decoded by counting
// samples from the start.

package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/film/media/container"
)

// Sound may change its rate or its channels midway, and in a file that was joined from several, the clock restarts.
// ffmpeg rebuilds its graph at a change, and then no filter knows what came before. So such sound is decoded from the
// start of the file, and the window is cut by counting samples.

// countedRate is the rate, in Hz, at which recount counts.
const countedRate = 48000

// channels returns the number of channels of the layouts that Count decodes to.
func channels(layout string) int {
	return map[string]int{"mono": 1, "stereo": 2, "5.1": 6, "7.1": 8}[layout]
}

// Samples returns how many samples of each channel the window has. It is 0 if the window has no end.
func (s Sound) Samples() int64 {
	return MulDiv(int64(s.To-s.From), int64(s.SampleRate), int64(time.Second))
}

// rebuildSlack is how much longer than its packets a sound without a window may decode.
const rebuildSlack = 100 * time.Millisecond

// agree reports whether decoded sound lasts as long as its packets. At the ends of a file, a codec may add what no
// container has to declare: a frame before the sound and the rest of one after it, at most 85 ms together (HE-AAC, 2 x
// 2048 samples at 48 kHz). The first frame of a cut mp3 lacks its bit reservoir, 72 ms at most. A container's clock may
// have millisecond ticks for packets of 21 ms, or state durations at the rate before a change: half a percent. more is
// the tolerance for other places in the sound.
func agree(decoded, packets, more time.Duration) bool {
	return (decoded - packets).Abs() <= rebuildSlack+packets/200+more
}

// Rebuilt reports whether the number of decoded samples per channel, from a pass with Args, shows that ffmpeg rebuilt
// the graph midway: see Args.
func (s Sound) Rebuilt(samples int64) bool {
	if s.To > 0 {
		return samples > s.Samples()
	}
	return samples > MulDiv(int64(s.End-s.From+rebuildSlack), int64(s.SampleRate), int64(time.Second))
}

// Whole reports whether sound that Count decoded up to end is everything that the packets contain, and no more.
func (s Sound) Whole(end time.Duration) bool {
	return s.Clockless || agree(end-s.First, s.End-s.First, 0)
}

// Count decodes the window to interleaved float32 samples by counting them from the start of the file. It needs a
// layout, and adds Args and Stdout to the pass. It returns when the decoded sound ends, counted from the file's zero;
// compare it with what is expected.
func (r *Runner) Count(ctx context.Context, s Sound, pass Pass, to io.Writer) (end time.Duration, err error) {
	frame := 4 * int64(channels(s.Layout))
	if frame == 0 {
		return 0, fmt.Errorf("%s: cannot count samples of layout %q", pass.Name, s.Layout)
	}
	bytes := func(d time.Duration) int64 { return MulDiv(int64(d), int64(s.SampleRate), int64(time.Second)) * frame }
	w := &byteWindow{to: to, skip: bytes(s.From), left: -1}
	if s.To > 0 {
		w.left = s.Samples() * frame
	}
	if s.First < 0 {
		w.skip += bytes(-s.First)
	} else if err := w.zeros(ctx, bytes(s.First)); err != nil {
		return 0, fmt.Errorf("%s: %w", pass.Name, err)
	}
	links := []int64{0}
	if s.Clockless {
		if links, err = container.Links(s.Path, s.Kind); err != nil {
			return 0, fmt.Errorf("%s: %w", pass.Name, err)
		}
	}
	graph := fmt.Sprintf("[0:%d]%s,aresample=%d[out]", s.Stream.Index, strings.TrimPrefix(s.remix(), ","), s.SampleRate)
	pass.Stdout = w
	for i := range links {
		input := append(s.Stream.decoder(), linkArgs(s.Kind, s.Path, links, i)...)
		pass.Args = append(append([]string{"-vn", "-sn", "-dn", "-threads", "1"}, input...),
			"-filter_complex", graph, "-map", "[out]", "-c:a", "pcm_f32le", "-f", "f32le", "pipe:1")
		before := w.taken
		if _, err := r.Encode(ctx, pass); err != nil {
			return 0, err
		}
		if w.taken == before && len(links) > 1 {
			return 0, fmt.Errorf("%s: %w: nothing of link %d decodes", pass.Name, ErrNotMedia, i)
		}
	}
	return s.First + time.Duration(MulDiv(w.taken/frame, int64(time.Second), int64(s.SampleRate))), nil
}

// linkArgs returns the arguments that open file i of those that were joined into path. links are the offsets at which
// they begin.
func linkArgs(kind container.Kind, path string, links []int64, i int) []string {
	if len(links) == 1 {
		return InputArgs(kind, path)
	}
	end := int64(0) // the end of the file
	if i+1 < len(links) {
		end = links[i+1]
	}
	name := kind.Demuxer()
	return []string{"-protocol_whitelist", "file,subfile", "-format_whitelist", name, "-f", name,
		"-i", fmt.Sprintf("subfile,,start,%d,end,%d,,:%s", links[i], end, inputURL(path))}
}

// recount measures the sound of joined files by decoding it, and compares it with their packets. It leaves other
// streams as they are. The error wraps ErrNotMedia if ffmpeg cannot decode what follows a join.
func (r *Runner) recount(ctx context.Context, path string, kind container.Kind, opts MeasureOptions, m *Measured) error {
	if m.Type != "audio" || m.Packets == 0 {
		return nil
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("count sound: %w", err)
	}
	links, err := container.Links(path, kind)
	if errors.Is(err, container.ErrTooManyLinks) {
		err = fmt.Errorf("%w: %w", ErrNotMedia, err)
	}
	if err != nil {
		return fmt.Errorf("count sound: %w", err)
	}
	frames, err := container.ReadFrames(path, kind)
	if err != nil {
		return fmt.Errorf("count sound: %w", err)
	}
	if m.Clockless = m.Clockless || len(links) > 1 || frames.Joined; !m.Clockless {
		return nil
	}
	// The time-out covers all joined files together, however many there are.
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(opts.Timeout, measureTimeout), ErrTimeout)
	defer cancel()
	packets := m.Duration()
	switch {
	case frames.Duration > 0:
		packets = frames.Duration - (m.Span - m.Duration()) // without the delay and padding that the tag declares
	case len(links) > 1:
		if packets, err = r.linked(ctx, path, kind, links, opts, m.Index); err != nil {
			return err
		}
	}
	sound := Sound{Path: path, Kind: kind, Stream: &AudioStream{Index: m.Index}, SampleRate: countedRate, Layout: "mono", Clockless: true}
	length, err := r.Count(ctx, sound, Pass{Name: "count sound", Inputs: []string{path},
		Timeout: cmp.Or(opts.Timeout, measureTimeout), MaxMemoryBytes: opts.MaxMemoryBytes}, io.Discard)
	if _, exited := errors.AsType[*ExitError](err); exited {
		return notMediaIfExit(err)
	}
	if err != nil {
		return err
	}
	if !agree(length, packets, frames.Around+time.Duration(len(links)-1)*rebuildSlack) {
		return fmt.Errorf("count sound: %w: %v of %v decode", ErrNotMedia, length, packets)
	}
	m.End, m.Span, m.Samples, m.Gaps = m.First+length, length, length, nil
	return nil
}

// linked returns how long a stream of joined files lasts by its packets. It reads the files one by one, because ffmpeg
// skips some that follow another.
func (r *Runner) linked(ctx context.Context, path string, kind container.Kind, links []int64, opts MeasureOptions, stream int) (
	length time.Duration, err error) {
	for i := range links {
		scan := newPacketScan(opts)
		if _, err := r.scan(ctx, "measure link", path, kind, linkArgs(kind, path, links, i), scan); err != nil {
			return 0, err
		}
		for _, m := range scan.finish() {
			if m.Index == stream {
				length += m.Duration()
			}
		}
	}
	return length, nil
}

// byteWindow passes on a window of the bytes written to it.
type byteWindow struct {
	to    io.Writer
	skip  int64 // still to skip
	left  int64 // still to pass on; negative for all
	taken int64 // bytes written to it, apart from zeros
}

func (w *byteWindow) Write(p []byte) (int, error) {
	w.taken += int64(len(p))
	return len(p), w.pass(p)
}

func (w *byteWindow) pass(p []byte) error {
	skip := min(w.skip, int64(len(p)))
	w.skip -= skip
	p = p[skip:]
	if w.left >= 0 {
		p = p[:min(w.left, int64(len(p)))]
		w.left -= int64(len(p))
	}
	if len(p) == 0 {
		return nil
	}
	_, err := w.to.Write(p)
	return err
}

// zeros passes on n zeros.
func (w *byteWindow) zeros(ctx context.Context, n int64) error {
	skip := min(w.skip, n)
	w.skip -= skip
	buffer := make([]byte, 32<<10)
	for n -= skip; n > 0 && w.left != 0; {
		some := min(n, int64(len(buffer)))
		if err := cmp.Or(context.Cause(ctx), w.pass(buffer[:some])); err != nil {
			return err
		}
		n -= some
	}
	return nil
}
