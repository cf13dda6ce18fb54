// Storyboards: single frames of a source, decoded from the nearest key frame and placed side by side in one picture.

package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

// Storyboard is a strip of tiles, each a picture of a film. Width and Height are the size of one tile, and even.
type Storyboard struct {
	Tiles, Width, Height int
}

// Draw decodes the pictures of a storyboard. Tile k shows the film at (k + 1/2) / Tiles of the length of its pictures,
// as a render would show it. dir is a folder that ffmpeg may write to. The limits hold for all passes together. If no
// picture can be decoded, the error is the runner's.
func (b Storyboard) Draw(ctx context.Context, runner *media.Runner, path, dir string, p media.Probe,
	limits media.MeasureOptions) (*image.YCbCr, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("storyboard: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Timeout, fmt.Errorf("storyboard: %w", media.ErrTimeout))
	defer cancel()
	d := &drawer{board: b, runner: runner, dir: dir, source: &Source{Path: path, info: newInfo(p, 1)}, memory: limits.MaxMemoryBytes}
	pictures, err := d.pictures(ctx, b.frames(d.source.info))
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	strip := image.NewYCbCr(image.Rect(0, 0, b.Tiles*b.Width, b.Height), image.YCbCrSubsampleRatio420)
	for k, picture := range pictures {
		b.place(strip, k, picture)
	}
	return strip, nil
}

// frames returns the source frame that each tile shows, as an index into videoInfo.Starts.
func (b Storyboard) frames(info *Info) []int {
	video, frames := info.Video, make([]int, b.Tiles)
	begin := video.start(0, info.Zero)
	length := video.End.Seconds() - begin
	for k := range frames {
		frames[k] = max(0, video.visibleAt(begin+length*(float64(k)+0.5)/float64(b.Tiles), info.Zero))
	}
	return frames
}

// place copies a picture, as planes of 4:2:0, to its place in the strip.
func (b Storyboard) place(strip *image.YCbCr, k int, picture []byte) {
	y := b.Width * b.Height
	rows := func(to []byte, stride int, from []byte, width int) {
		for row := 0; len(from) > 0; row++ {
			copy(to[row*stride+k*width:], from[:width])
			from = from[width:]
		}
	}
	rows(strip.Y, strip.YStride, picture[:y], b.Width)
	rows(strip.Cb, strip.CStride, picture[y:y+y/4], b.Width/2)
	rows(strip.Cr, strip.CStride, picture[y+y/4:], b.Width/2)
}

// drawer decodes single frames of a source.
type drawer struct {
	board  Storyboard
	runner *media.Runner
	dir    string
	source *Source
	memory int64
	uneven bool // pictures of the source differ in size or format
}

// pictures decodes frames, which ascend. Frames that follow the same key frame are decoded in one pass. A frame that
// cannot be decoded gets the picture before it, or else the one after it.
func (d *drawer) pictures(ctx context.Context, frames []int) ([][]byte, error) {
	decoded := map[int][]byte{}
	decode := func(group []int) (complete bool, err error) {
		found, err := d.decode(ctx, group)
		if len(found) < len(group) {
			return false, err
		}
		for i, n := range group {
			decoded[n] = found[i]
		}
		return true, err
	}
	failure := fmt.Errorf("storyboard: %w: no picture can be decoded", media.ErrNotMedia)
	for from := 0; from < len(frames) && ctx.Err() == nil; {
		to := from + 1
		for to < len(frames) && d.shot(frames[to]).keyframe(0) == d.shot(frames[from]).keyframe(0) {
			to++
		}
		group := slices.Compact(slices.Clone(frames[from:to]))
		from = to
		complete, err := decode(group)
		for i := 0; !complete && len(group) > 1 && i < len(group); i++ { // nothing says which of them is missing
			_, err = decode(group[i : i+1])
		}
		failure = cmp.Or(err, failure)
	}
	first := slices.IndexFunc(frames, func(n int) bool { return decoded[n] != nil })
	if first < 0 {
		return nil, failure
	}
	pictures, last := make([][]byte, len(frames)), decoded[frames[first]]
	for k, n := range frames {
		if decoded[n] != nil {
			last = decoded[n]
		}
		pictures[k] = last
	}
	return pictures, nil
}

// shot returns the shot of a single frame on a canvas of a tile's size.
func (d *drawer) shot(n int) *shot {
	return &shot{
		source: d.source, view: newView(d.source.info.Video, timeline.Segment{}),
		canvas: Canvas{Width: d.board.Width, Height: d.board.Height, Rate: media.Rational{Num: 1, Den: 1}},
		frames: 1, first: n, last: n, uneven: d.uneven,
	}
}

// decode decodes frames from the key frame before the first of them. It may find fewer.
func (d *drawer) decode(ctx context.Context, frames []int) ([][]byte, error) {
	var out bytes.Buffer
	_, err := d.runner.Encode(ctx, d.pass(frames, &out))
	if refusedSize(err) && !d.uneven {
		d.uneven = true
		out.Reset()
		_, err = d.runner.Encode(ctx, d.pass(frames, &out))
	}
	size := d.board.Width * d.board.Height * 3 / 2
	var found [][]byte
	for b := out.Bytes(); len(b) >= size; b = b[size:] {
		found = append(found, b[:size])
	}
	return found, err
}

// storyboardTimeout bounds one pass; the limits on the whole storyboard usually end it sooner.
const storyboardTimeout = time.Minute

func (d *drawer) pass(frames []int, out *bytes.Buffer) media.Pass {
	first := d.shot(frames[0])
	steady := first.requireSize()
	if d.uneven {
		steady = first.scaleToSize()
	}
	var wanted []string
	for _, n := range frames {
		from, to := d.shot(n).bounds()
		wanted = append(wanted, fmt.Sprintf("between(pts,%d,%d)", from, to-1))
	}
	chain := []string{steady}
	if filter := first.deinterlace(); filter != "" {
		chain = append(chain, filter) // needs the neighbours of each frame
	}
	chain = append(chain, "select='"+strings.Join(wanted, "+")+"'")
	chain = append(append(chain, first.picture(0)...), "sidedata=mode=delete", neutral,
		"scale="+jpegColours, "format=yuvj420p")
	args := []string{"-max_error_rate", "1", "-copyts"}
	key := first.keyframe(0)
	args = append(args, first.input("2", key)...)
	start := first.timeUntimed(key) + first.tags()
	args = append(args, "-filter_threads", "1", "-filter_complex_threads", "1",
		"-filter_complex", fmt.Sprintf("[0:%d]%s%s[out]", d.source.info.Video.Index, start, strings.Join(chain, ",")),
		"-map", "[out]", "-frames:v", fmt.Sprint(len(frames)), "-fps_mode", "passthrough", "-c:v", "rawvideo", "-f", "rawvideo", "pipe:1")
	return media.Pass{Name: "storyboard", Args: args, Dir: d.dir, Inputs: []string{d.source.Path}, Stdout: out,
		Timeout: storyboardTimeout, MaxMemoryBytes: d.memory}
}

// TileWidth returns the width of a tile of the given height for a picture of the given display size.
func TileWidth(width, height, tileHeight int) int {
	return max(2, nearestEven(float64(tileHeight)*float64(width)/float64(height)))
}
