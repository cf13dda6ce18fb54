package media

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"cutroom/internal/film/media/container"
)

// ErrTooLong means that sound is longer than the caller asked for.
var ErrTooLong = fmt.Errorf("%w: too long", ErrNotMedia)

// countRate is the rate, in samples a second, at which DecodedLength counts. It bounds the precision.
const countRate = 8000

// DecodedLength decodes a stream of a file of the given kind and returns how long its samples last, one after another.
// Neither the container's clock nor its parameters matter, and rate and channels may change midway. It is 0 if nothing
// can be decoded. Sound that lasts longer than limit ends with ErrTooLong. An hour takes about four seconds of
// processor time.
func (r *Runner) DecodedLength(ctx context.Context, path string, kind container.Kind, stream int, limit time.Duration,
	opts MeasureOptions) (time.Duration, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return 0, fmt.Errorf("count samples: %w", err)
	}
	samples := &sampleCounter{limit: MulDiv(int64(limit), countRate, int64(time.Second))}
	args := []string{"-max_error_rate", "1", "-threads", "1"}
	if opts.IgnoreEdits && kind == container.MP4 {
		args = append(args, "-ignore_editlist", "1")
	}
	args = append(append(args, "-vn", "-sn", "-dn"), InputArgs(kind, path)...)
	// One channel is enough to count. Each change in the stream rebuilds the filters, and then a short filter loses
	// nothing.
	args = append(args, "-map", fmt.Sprintf("0:%d", stream), "-af", fmt.Sprintf("pan=mono|c0=c0,aresample=%d:filter_size=1", countRate),
		"-c:a", "pcm_u8", "-f", "u8", "pipe:1")
	_, err = r.Encode(ctx, Pass{Name: "count samples", Args: args, Inputs: []string{path}, Stdout: samples,
		Timeout: cmp.Or(opts.Timeout, measureTimeout), MaxMemoryBytes: opts.MaxMemoryBytes})
	if BlameFor(err) == BlameFile && samples.err == nil {
		err = nil // what was decoded before the damage counts
	}
	return time.Duration(MulDiv(samples.n, int64(time.Second), countRate)), err
}

// sampleCounter counts bytes, up to a limit.
type sampleCounter struct {
	n, limit int64
	err      error
}

func (c *sampleCounter) Write(p []byte) (int, error) {
	if c.n += int64(len(p)); c.n > c.limit {
		c.err = ErrTooLong
	}
	return len(p), c.err
}
