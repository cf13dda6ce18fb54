// The filters that fit a decoded picture to the canvas: crop, scale, colour, tone mapping, bars. At its end, the check
// of a finished part.

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/film/timeline"
)

// picture returns the filters that fit a decoded frame to the canvas: size, colour, orientation, bars. It crops and
// scales first, because the cost of later filters depends on the pixels. n numbers the labels.
func (s *shot) picture(n int) []string {
	video := s.source.info.Video
	var opaque []string
	if video.Alpha() {
		opaque = s.overBlack()
	}
	if f := s.framing; f.window != (window{}) && !f.blur {
		chain := s.placedOn(f.window, s.canvas.Width, s.canvas.Height)
		return append(append(append(opaque, f.window.crop()), chain...), "setsar=1")
	}
	w, h := contain(s.view.width, s.view.height, s.canvas)
	if s.framing.blur && video.Alpha() {
		return []string{s.overBackdrop(w, h, n), "setsar=1"}
	}
	chain := opaque
	if s.view.cropped {
		chain = append(chain, s.view.window.crop())
	}
	chain = append(chain, s.placedOn(s.view.window, w, h)...)
	x, y := (s.canvas.Width-w)/4*2, (s.canvas.Height-h)/4*2
	switch {
	case s.framing.blur && w < s.canvas.Width:
		left, right := s.bar(x, true, false), s.bar(s.canvas.Width-w-x, true, true)
		chain = append(chain, s.blurred("hstack", left, right, n))
	case s.framing.blur:
		above, below := s.bar(y, false, false), s.bar(s.canvas.Height-h-y, false, true)
		chain = append(chain, s.blurred("vstack", above, below, n))
	case s.padded():
		// Black bars stay black, and moves include them. All of this is linear, so bars and moves may come after the
		// adjustment.
		if s.adjust != (timeline.Adjust{}) {
			chain = append(chain, s.adjusting())
		}
		chain = append(chain, fmt.Sprintf("pad=%d:%d:%d:%d:black", s.canvas.Width, s.canvas.Height, x, y))
	}
	return append(chain, "setsar=1")
}

// padded reports whether the shot's picture lies between black bars.
func (s *shot) padded() bool {
	w, h := contain(s.view.width, s.view.height, s.canvas)
	return s.framing == (framing{}) && (w < s.canvas.Width || h < s.canvas.Height)
}

// overBlack returns the filters that lay pictures with alpha over black. Later filters drop the alpha.
func (s *shot) overBlack() []string {
	video := s.source.info.Video
	format, without := "yuva444p", "yuv444p"
	if isRGB(video.PixelFormat) {
		format, without = "gbrap", "gbrp"
	} else if video.BitDepth > 8 {
		format, without = "yuva444p10", "yuv444p10"
	}
	return []string{"format=" + format, "premultiply=inplace=1", "format=" + without}
}

// overBackdrop lays a picture with alpha, scaled to w x h, over the whole blurred background, because it shows
// between the bars as well.
func (s *shot) overBackdrop(w, h, n int) string {
	placed, opaque := s.placedOn(s.view.window, w, h), s.overBlack()
	first := opaque[0]
	if s.view.cropped {
		first += "," + s.view.window.crop()
	}
	colours := append([]string{opaque[2]}, placed...)
	background := append(append(opaque[1:], placed...), s.backdrop(),
		fmt.Sprintf("scale=%d:%d:flags=bilinear", s.canvas.Width, s.canvas.Height))
	matteW, matteH := w, h
	if s.view.orientation.SwapsSides() {
		matteW, matteH = h, w
	}
	matte := []string{"alphaextract", fmt.Sprintf("scale=%d:%d:flags=bicubic", matteW, matteH), "format=gray"}
	if f := s.view.orientation.Filter(); f != "" {
		matte = append(matte, f)
	}
	branch := func(from string, filters []string, to string) string {
		return fmt.Sprintf("[%s]%s[%s];", label(from, n), strings.Join(filters, ","), label(to, n))
	}
	return fmt.Sprintf("%s,split=3[%s][%s][%s];", first, label("colours", n), label("alpha", n), label("background", n)) +
		branch("colours", colours, "opaque") + branch("alpha", matte, "matte") + branch("background", background, "backdrop") +
		fmt.Sprintf("[%s][%s]alphamerge[%s];[%s][%s]overlay=%d:%d:format=yuv420,format=yuv420p", label("opaque", n), label("matte", n),
			label("front", n), label("backdrop", n), label("front", n), (s.canvas.Width-w)/4*2, (s.canvas.Height-h)/4*2)
}

// blurred puts bars of a blurred background around the picture. The background is blurred at a small size, which costs
// a fraction and looks the same.
func (s *shot) blurred(stack, bar1, bar2 string, n int) string {
	small := s.backdrop()
	fit, fill, from1, from2 := label("fit", n), label("fill", n), label("from", 2*n), label("from", 2*n+1)
	out1, out2 := label("bar", 2*n), label("bar", 2*n+1)
	return fmt.Sprintf("split[%s][%s];", fit, fill) +
		fmt.Sprintf("[%s]%s,split[%s][%s];", fill, small, from1, from2) +
		fmt.Sprintf("[%s]%s[%s];", from1, bar1, out1) +
		fmt.Sprintf("[%s]%s[%s];", from2, bar2, out2) +
		fmt.Sprintf("[%s][%s][%s]%s=3", out1, fit, out2, stack)
}

// backdrop returns the filters that turn the picture on the canvas into the small blurred background.
func (s *shot) backdrop() string {
	w, h := backdrop(s.canvas)
	// Mirror the picture at its edges, so that the colours of the outermost pixels do not spread.
	const edge = 3 * backdropBlur
	return strings.Join([]string{
		s.framing.window.crop(),
		fmt.Sprintf("scale=%d:%d:flags=area", w, h),
		fmt.Sprintf("pad=iw+%d:ih+%d:%d:%d", 2*edge, 2*edge, edge, edge),
		fmt.Sprintf("fillborders=%d:%d:%d:%d:mirror", edge, edge, edge, edge),
		fmt.Sprintf("gblur=sigma=%d:steps=3", backdropBlur),
		fmt.Sprintf("crop=%d:%d:%d:%d", w, h, edge, edge),
	}, ",")
}

// bar returns the filters that scale one end of the small background up to a bar of the canvas, cut to whole lines.
func (s *shot) bar(thickness int, upright, last bool) string {
	w, h := backdrop(s.canvas)
	lines, length := h, s.canvas.Height
	if upright {
		lines, length = w, s.canvas.Width
	}
	cut := min(lines, (thickness*lines/length+3)&^1)
	grown := max(thickness, nearestEven(float64(cut*length)/float64(lines)))
	from, over := 0, 0
	if last {
		from, over = lines-cut, grown-thickness
	}
	if upright {
		return fmt.Sprintf("crop=%d:%d:%d:0,", cut, h, from) +
			fmt.Sprintf("scale=%d:%d:flags=bilinear,", grown, s.canvas.Height) +
			fmt.Sprintf("crop=%d:%d:%d:0", thickness, s.canvas.Height, over)
	}
	return fmt.Sprintf("crop=%d:%d:0:%d,", w, cut, from) +
		fmt.Sprintf("scale=%d:%d:flags=bilinear,", s.canvas.Width, grown) +
		fmt.Sprintf("crop=%d:%d:0:%d", s.canvas.Width, thickness, over)
}

// placedOn returns the filters that turn a window of the source's pictures into w x h pixels as displayed.
func (s *shot) placedOn(from window, w, h int) []string {
	if s.view.orientation.SwapsSides() { // sizes before rotation
		w, h = h, w
	}
	chain := s.colour(from, w, h)
	if f := s.view.orientation.Filter(); f != "" {
		chain = append(chain, f)
	}
	return chain
}

// guard is the name of requireSize's filter in ffmpeg's error messages.
const guard = "crop@same-size"

// requireSize fails the pass if a picture does not have the analysed size. Call and screen recordings rotate or
// change their resolution midway. ffmpeg would rebuild the graph, which forgets how many frames it has seen.
func (s *shot) requireSize() string {
	w, h := s.source.info.Video.Width, s.source.info.Video.Height
	return fmt.Sprintf("%s=w='if(eq(iw,%d)*eq(ih,%d),iw,-1)':h=ih:exact=1", guard, w, h)
}

// scaleToSize scales every picture to the analysed size. Only these two filters follow a change of size.
func (s *shot) scaleToSize() string {
	w, h := s.source.info.Video.Width, s.source.info.Video.Height
	return fmt.Sprintf("scale=%d:%d:flags=bicubic:force_original_aspect_ratio=decrease:eval=frame,"+
		"pad=%d:%d:(ow-iw)/2:(oh-ih)/2:black:eval=frame", w, h, w, h)
}

// refusedSize reports whether requireSize failed a pass.
func refusedSize(err error) bool {
	exit, ok := errors.AsType[*media.ExitError](err)
	return ok && strings.Contains(exit.Stderr, guard)
}

// resize returns the filters that bring pictures to w x h: nothing, a crop of an odd line, or a scaler.
func resize(from window, w, h int) string {
	switch dw, dh := from.w-w, from.h-h; {
	case dw == 0 && dh == 0:
		return ""
	case (dw == 0 || dw == 1) && (dh == 0 || dh == 1):
		return fmt.Sprintf("crop=%d:%d:0:0", w, h)
	}
	return fmt.Sprintf("scale=%d:%d:flags=bicubic", w, h)
}

// colour returns the filters that scale pictures of the window's size to w x h and convert them to 8-bit 4:2:0 in
// BT.709 and limited range.
func (s *shot) colour(from window, w, h int) []string {
	video := s.source.info.Video
	if video.HDR() {
		return s.toneMap(w, h)
	}
	var chain []string
	matrix, in := s.matrix(), "tv"
	if isRGB(video.PixelFormat) {
		chain = append(chain, fmt.Sprintf("scale=%d:%d:flags=bicubic:out_color_matrix=bt709:out_range=tv", w, h), "format=yuv420p")
		matrix = "bt709"
	} else {
		if scale := resize(from, w, h); scale != "" {
			chain = append(chain, scale)
		}
		if fullRange(video) {
			in = "pc"
		}
	}
	primaries := s.primaries()
	if matrix == "bt709" && in == "tv" && primaries == "bt709" {
		return append(chain, "format=yuv420p")
	}
	// The filter works on planar 4:2:0, 4:2:2 and 4:4:4 of 8 to 12 bits and converts matrix, range, depth and primaries
	// at once. Both sides get a display's transfer function: those of SDR systems differ by less than players care
	// about.
	if !strings.HasPrefix(video.PixelFormat, "yuv4") && !strings.HasPrefix(video.PixelFormat, "yuvj4") && !isRGB(video.PixelFormat) {
		chain = append(chain, "format=yuv420p")
	}
	return append(chain, fmt.Sprintf("colorspace=ispace=%s:space=bt709:irange=%s:range=tv:iprimaries=%s:primaries=bt709:"+
		"itrc=gamma22:trc=gamma22:format=yuv420p", matrix, in, primaries))
}

// primaries names the source's primaries for the colorspace filter if they are so wide that reading them as BT.709
// would desaturate the picture. Other SDR primaries differ too little to matter.
func (s *shot) primaries() string {
	switch p := s.source.info.Video.ColorPrimaries; p {
	case "smpte431", "smpte432", "bt2020":
		return p
	}
	return "bt709"
}

// matrix names the source's YUV matrix for the colorspace filter. For files that state none, assume what players
// assume: BT.601 for standard definition, BT.709 above.
func (s *shot) matrix() string {
	switch video := s.source.info.Video; video.ColorSpace {
	case "smpte170m", "bt470bg", "smpte240m", "fcc":
		return video.ColorSpace
	case "bt2020nc", "bt2020c":
		return "bt2020ncl"
	case "bt709":
		return "bt709"
	default:
		if long, short := max(video.Width, video.Height), min(video.Width, video.Height); long <= 1024 && short <= 576 {
			return "smpte170m"
		}
		return "bt709"
	}
}

func isRGB(pixelFormat string) bool {
	return slices.ContainsFunc([]string{"rgb", "bgr", "gbr", "argb", "abgr", "0rgb", "0bgr", "pal8", "xyz"},
		func(p string) bool { return strings.HasPrefix(pixelFormat, p) })
}

func fullRange(v *videoInfo) bool {
	return v.ColorRange == "pc" || strings.HasPrefix(v.PixelFormat, "yuvj")
}

// toneMap converts PQ and HLG to SDR. 203 cd/m2, the white of paper, becomes 1.0 and ends near 236 of 255. It assumes
// HLG's peak of 1000 cd/m2 for every clip, whatever its metadata claims, so that two clips of one scene look alike.
func (s *shot) toneMap(w, h int) []string {
	video := s.source.info.Video
	transfer := video.ColorTransfer
	return []string{
		fmt.Sprintf("zscale=w=%d:h=%d:filter=bicubic:tin=%s:min=2020_ncl:pin=2020:t=linear:npl=203", w, h, transfer),
		"format=gbrpf32le",
		"zscale=p=709",
		"tonemap=tonemap=mobius:param=0.7:peak=4.926:desat=0",
		"zscale=t=709:m=709:r=limited",
		"format=yuv420p",
	}
}

// rebuilt reports whether ffmpeg rebuilt the graph in the middle of a part, which it also does when the pixel format
// changes. The timestamps then start over.
func (v *videoPart) rebuilt(path string) bool {
	m, err := container.ReadMovie(path)
	return err == nil && (!m.Video.Uniform || m.Video.Samples != v.Frames)
}

// check makes sure that the part's file matches the plan, and sets the part's decoder configuration.
func (v *videoPart) check(path string) error {
	m, err := container.ReadMovie(path)
	switch t := m.Video; {
	case err != nil:
	case t.Samples != v.Frames:
		err = fmt.Errorf("%d frames of %d", t.Samples, v.Frames)
	case !t.Uniform:
		err = errors.New("frames of unequal length")
	case !t.Neutral():
		err = errors.New("it is turned, or of HDR")
	}
	if err != nil {
		return fmt.Errorf("check %s: %w", v.Name, err)
	}
	v.config = m.Video.Config
	return nil
}
