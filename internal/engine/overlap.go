package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// The frames of a dissolve follow the previous part and precede the next part in their sources. To decode only
// these frames, a pass would have to begin at a key frame, perhaps seconds earlier. So the passes of the two
// neighbours also draw these frames and store them as raw pictures, which the dissolve reads. If another
// machine or the cache supplied a neighbour, the dissolve decodes its source itself and shows the same frames.

// overlap is one of the two shots of a dissolve.
type overlap struct {
	shot *shot
	file string // its frames as raw pictures, in the job's folder
	idle bool   // nobody will read it: the dissolve is finished
}

// ends are the overlaps at a part's two ends, nil where there is none.
type ends struct{ head, tail *overlap }

func (e ends) list() []*overlap {
	return slices.DeleteFunc([]*overlap{e.head, e.tail}, func(o *overlap) bool { return o == nil })
}

const (
	// overlapSpace is how many bytes of raw pictures a render stores at once.
	overlapSpace = 1 << 30
	// longestHold is how many frames of the film may show the same source frame while two outputs read from one
	// graph. ffmpeg buffers frames that one output has not read yet.
	longestHold = 16
)

func (o *overlap) bytes() int64 { return o.shot.frames * o.shot.canvas.pixels() * 3 / 2 }

// overlapBytes is the size of the raw pictures that a dissolve reads.
func (v *videoPart) overlapBytes() (sum int64) {
	for _, o := range v.overlaps {
		sum += o.bytes()
	}
	return sum
}

// planOverlaps lets the neighbours of every dissolve draw its frames.
func (p *Plan) planOverlaps() {
	for i, d := range p.Sequence {
		if len(d.shots) < 2 || d.overlaps != nil || 2*d.Frames*p.Canvas.pixels()*3/2 > overlapSpace/2 {
			continue
		}
		for n, s := range d.shots {
			d.overlaps = append(d.overlaps, &overlap{shot: s, file: fmt.Sprintf("%s.%d.yuv", d.File, n)})
		}
		if i > 0 {
			before := p.Sequence[i-1]
			before.offer(ends{before.beside.head, d.overlaps[0]})
		}
		if i+1 < len(p.Sequence) {
			behind := p.Sequence[i+1]
			behind.offer(ends{d.overlaps[1], behind.beside.tail})
		}
	}
}

// offer lets the part draw overlaps if that does not change its own frames. A part that
// occurs twice in the film keeps the first overlaps.
func (v *videoPart) offer(e ends) {
	taken := v.beside.head != nil && v.beside.head != e.head || v.beside.tail != nil && v.beside.tail != e.tail
	if len(v.shots) == 1 && !taken && v.extended(e) != nil {
		v.beside = e
	}
}

// extended returns a shot with the frames of the previous overlap, of the part and of the next overlap, or nil
// if it would show other frames.
func (v *videoPart) extended(e ends) *shot {
	own := v.shots[0]
	shots := []*shot{own}
	if e.head != nil {
		shots = append([]*shot{e.head.shot}, shots...)
	}
	if e.tail != nil {
		shots = append(shots, e.tail.shot)
	}
	all := *shots[0]
	all.frames, all.last = 0, shots[len(shots)-1].last
	held, before := 0, -1
	for _, s := range shots {
		// A deinterlacer uses the frames before and after each frame.
		if s.source != own.source || s.speed != own.speed || s.framing != own.framing ||
			s.source.info.Video.Interlaced() {
			return nil
		}
		for n := range s.frames {
			shown := s.shows(n)
			if held++; shown != before {
				held, before = 1, shown
			}
			if all.shows(all.frames) != shown || held > longestHold {
				return nil
			}
			all.frames++
		}
	}
	return &all
}

// divide returns the filters that split the drawn frames into the part's own frames and those of its overlaps.
func (v *videoPart) divide(from, out string) string {
	frames := int64(0)
	var labels, cuts []string
	cut := func(name, out string, n int64) {
		labels = append(labels, "["+name+"]")
		cuts = append(cuts, fmt.Sprintf("[%s]trim=start_frame=%d:end_frame=%d,setpts=PTS-STARTPTS[%s]",
			name, frames, frames+n, out))
		frames += n
	}
	if o := v.draws.head; o != nil {
		cut("first", "head", o.shot.frames)
	}
	cut("own", out, v.Frames)
	if o := v.draws.tail; o != nil {
		cut("last", "tail", o.shot.frames)
	}
	return fmt.Sprintf("[%s]split=%d%s;%s", from, len(cuts), strings.Join(labels, ""), strings.Join(cuts, ";"))
}

// overlapOutputs returns the outputs of a pass that draws overlaps.
func (v *videoPart) overlapOutputs() (args []string) {
	output := func(label string, o *overlap) {
		if o != nil {
			args = append(args, "-map", label, "-c:v", "rawvideo", "-fps_mode", "passthrough",
				"-f", "rawvideo", unfinished(o.file))
		}
	}
	output("[head]", v.draws.head)
	output("[tail]", v.draws.tail)
	return args
}

// storedInput returns the arguments that open the raw pictures of an overlap.
func (s *shot) storedInput() []string {
	return []string{"-protocol_whitelist", "file", "-format_whitelist", "rawvideo", "-f", "rawvideo",
		"-pixel_format", "yuv420p", "-video_size", fmt.Sprintf("%dx%d", s.canvas.Width, s.canvas.Height),
		"-framerate", s.canvas.Rate.String(), "-i", "file:" + s.stored}
}

// encodeSharing encodes a part together with the overlaps that it draws or reads. It
// reports false if there are none, or if anything about the sources is unusual. The
// caller then encodes the part alone.
func (r *run) encodeSharing(ctx context.Context, p *videoPart, out string) bool {
	defer r.dropOverlaps(p.overlaps...)
	shared := r.sharing(p)
	if shared == nil {
		return false
	}
	got, err := r.encodePart(ctx, shared, out, shared.keyframes(0))
	whole := err == nil && !shared.rebuilt(r.path(out)) &&
		!slices.ContainsFunc(got, func(c coverage) bool { return c.missing > 0 || !c.complete() })
	for _, o := range shared.draws.list() {
		if !whole || !r.storeOverlap(o) {
			r.dropOverlaps(o)
		}
	}
	return whole
}

// sharing returns a copy of the part with the overlaps that its pass draws or reads, or
// nil if there are none.
func (r *run) sharing(p *videoPart) *videoPart {
	shared := *p
	shared.draws = ends{r.wanted(p.beside.head), r.wanted(p.beside.tail)}
	if shared.draws != (ends{}) {
		all := p.extended(shared.draws)
		if all == nil {
			r.dropOverlaps(shared.draws.list()...)
			return nil
		}
		shared.shots = []*shot{all}
		return &shared
	}
	shared.shots = slices.Clone(p.shots)
	found := false
	for i, o := range p.overlaps {
		if st, err := os.Stat(r.path(o.file)); err == nil && st.Size() == o.bytes() {
			stored := *p.shots[i]
			stored.stored = o.file
			shared.shots[i], found = &stored, true
		}
	}
	if !found {
		return nil
	}
	return &shared
}

// wanted returns the overlap, and reserves its space, if the pass should draw it.
func (r *run) wanted(o *overlap) *overlap {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == nil || o.idle || r.overlaps[o] || r.overlapBytes()+o.bytes() > overlapSpace {
		return nil
	}
	r.overlaps[o] = true
	return o
}

// overlapBytes returns the space that overlaps use. The caller holds mu.
func (r *run) overlapBytes() (sum int64) {
	for o := range r.overlaps {
		sum += o.bytes()
	}
	return sum
}

// storeOverlap renames a complete file of raw pictures to its final name if a dissolve
// will read it.
func (r *run) storeOverlap(o *overlap) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.idle {
		return false
	}
	st, err := os.Stat(r.path(unfinished(o.file)))
	return err == nil && st.Size() == o.bytes() && os.Rename(r.path(unfinished(o.file)), r.path(o.file)) == nil
}

// dropOverlaps removes raw pictures that nobody will read.
func (r *run) dropOverlaps(all ...*overlap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range all {
		o.idle = true
		delete(r.overlaps, o)
		for _, name := range []string{o.file, unfinished(o.file)} {
			if err := os.Remove(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				r.log.Warn("an overlap could not be removed", "file", name, "error", err)
			}
		}
	}
}

// inOrder orders parts for encoding: the most expensive first. If dissolves read
// overlaps, the parts keep the order of the film, and each dissolve follows its
// neighbours as late as the space for overlaps allows.
func inOrder(missing []*videoPart) []*videoPart {
	reads := func(v *videoPart) bool { return len(v.overlaps) > 0 }
	if !slices.ContainsFunc(missing, reads) {
		slices.SortStableFunc(missing, mostExpensiveFirst)
		return missing
	}
	var ordered, later []*videoPart
	var waiting int64
	for _, v := range missing {
		if !reads(v) {
			ordered = append(ordered, v)
			continue
		}
		later = append(later, v)
		for waiting += v.overlapBytes(); waiting > overlapSpace/2 && len(later) > 1; later = later[1:] {
			ordered = append(ordered, later[0])
			waiting -= later[0].overlapBytes()
		}
	}
	return append(ordered, later...)
}
