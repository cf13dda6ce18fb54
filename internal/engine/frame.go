package engine

import (
	"errors"
	"fmt"
	"strings"

	"cutroom/internal/media"
	"cutroom/internal/media/container"
)

// picture is the part of the chain that turns a decoded frame into one of the
// canvas: size, colour, orientation, bars. Cropping and scaling come first, because
// everything after them costs by the pixel. n numbers the labels, see filters.
func (s *shot) picture(n int) []string {
	video := s.source.info.Video
	switch whole := (window{w: video.Width, h: video.Height}); {
	case s.framing.blur:
		return s.blurred(whole, n)
	case s.framing.window != window{}:
		chain := s.placedOn(s.framing.window, s.canvas.Width, s.canvas.Height, sharp)
		return append(append([]string{s.framing.window.crop()}, chain...), "setsar=1")
	default:
		w, h := contain(video.DisplayWidth, video.DisplayHeight, s.canvas)
		chain := s.placedOn(whole, w, h, sharp)
		if w != s.canvas.Width || h != s.canvas.Height {
			x, y := s.margins(w, h)
			chain = append(chain, fmt.Sprintf("pad=%d:%d:%d:%d:black", s.canvas.Width, s.canvas.Height, x, y))
		}
		return append(chain, "setsar=1")
	}
}

// margins returns the place of a picture of w x h on the canvas.
func (s *shot) margins(w, h int) (x, y int) {
	return (s.canvas.Width - w) / 4 * 2, (s.canvas.Height - h) / 4 * 2
}

// blurred puts the whole picture on a background that is blurred while it is small,
// which costs a fraction and looks the same.
func (s *shot) blurred(whole window, n int) []string {
	video := s.source.info.Video
	w, h := contain(video.DisplayWidth, video.DisplayHeight, s.canvas)
	x, y := s.margins(w, h)
	smallW, smallH := backdrop(s.canvas)
	background := append([]string{s.framing.window.crop()}, s.placedOn(s.framing.window, smallW, smallH, coarse)...)
	// Mirroring the picture over its edges keeps the colours of the outermost pixels
	// from spreading.
	const edge = 3 * backdropBlur
	background = append(background, fmt.Sprintf("pad=iw+%d:ih+%[1]d:%d:%[2]d", 2*edge, edge),
		fmt.Sprintf("fillborders=%d:%[1]d:%[1]d:%[1]d:mirror", edge),
		fmt.Sprintf("gblur=sigma=%d:steps=3", backdropBlur), fmt.Sprintf("crop=%d:%d:%d:%[3]d", smallW, smallH, edge),
		fmt.Sprintf("scale=%d:%d:flags=bilinear", s.canvas.Width, s.canvas.Height), "setsar=1")
	front := append(s.placedOn(whole, w, h, sharp), "setsar=1")
	fill, fit, bars, inside := label("fill", n), label("fit", n), label("bars", n), label("inside", n)
	return []string{fmt.Sprintf("split[%s][%s];[%s]%s[%s];[%s]%s[%s];[%s][%s]overlay=%d:%d:format=yuv420",
		fill, fit, fill, strings.Join(background, ","), bars, fit, strings.Join(front, ","), inside, bars, inside, x, y)}
}

// Scaling algorithms; a picture that is blurred afterwards needs no sharp one.
const (
	sharp  = "bicubic"
	coarse = "area"
)

// placedOn turns the pictures of a window of the source into w x h pixels as
// displayed.
func (s *shot) placedOn(from window, w, h int, scaling string) []string {
	video := s.source.info.Video
	if video.Orientation.SwapsSides() { // sizes before turning
		w, h = h, w
	}
	chain := s.colour(from, w, h, scaling)
	if f := video.Orientation.Filter(); f != "" {
		chain = append(chain, f)
	}
	return chain
}

// guard is the name of requireSize's filter in ffmpeg's error messages.
const guard = "crop@same-size"

// requireSize fails the pass if a picture does not have the size that the analysis
// found; it costs nothing. Recordings of calls and screens rotate or change their
// resolution in the middle. ffmpeg would rebuild the graph, which forgets how many
// frames it has seen, and the filters behind count on one size.
func (s *shot) requireSize() string {
	w, h := s.source.info.Video.Width, s.source.info.Video.Height
	return fmt.Sprintf("%s=w='if(eq(iw,%d)*eq(ih,%d),iw,-1)':h=ih:exact=1", guard, w, h)
}

// scaleToSize fits every picture into the size that the analysis found. Only these
// two filters follow a change of the size; the rest of the graph stays as it is.
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

// resize is the filter that brings pictures to w x h: none, a crop of an odd line, or
// a scaler.
func resize(from window, w, h int, scaling string) string {
	switch dw, dh := from.w-w, from.h-h; {
	case dw == 0 && dh == 0:
		return ""
	case (dw == 0 || dw == 1) && (dh == 0 || dh == 1):
		return fmt.Sprintf("crop=%d:%d:0:0", w, h)
	}
	return fmt.Sprintf("scale=%d:%d:flags=%s", w, h, scaling)
}

// colour scales pictures of the window's size to w x h and converts them to 8-bit
// 4:2:0 in BT.709 and limited range.
func (s *shot) colour(from window, w, h int, scaling string) []string {
	video := s.source.info.Video
	if video.HDR() {
		return s.toneMap(w, h)
	}
	var chain []string
	matrix, in := s.matrix(), "tv"
	if isRGB(video.PixelFormat) {
		chain = append(chain, fmt.Sprintf("scale=%d:%d:flags=%s:out_color_matrix=bt709:out_range=tv", w, h, scaling), "format=yuv420p")
		matrix = "bt709"
	} else {
		if scale := resize(from, w, h, scaling); scale != "" {
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
	// The filter works on planar 4:2:0, 4:2:2 and 4:4:4 of 8 to 12 bits and converts
	// matrix, range, depth and primaries at once. Both sides get a display's transfer
	// function: those of SDR systems differ by less than players care about.
	if !strings.HasPrefix(video.PixelFormat, "yuv4") && !strings.HasPrefix(video.PixelFormat, "yuvj4") && !isRGB(video.PixelFormat) {
		chain = append(chain, "format=yuv420p")
	}
	return append(chain, fmt.Sprintf("colorspace=ispace=%s:space=bt709:irange=%s:range=tv:iprimaries=%s:primaries=bt709:"+
		"itrc=gamma22:trc=gamma22:format=yuv420p", matrix, in, primaries))
}

// primaries names the source's primaries for the colorspace filter if they are so wide
// that reading them as BT.709 would pale the picture. Those of other SDR systems differ
// by less than players care about, and converting them would go through linear light.
func (s *shot) primaries() string {
	switch p := s.source.info.Video.ColorPrimaries; p {
	case "smpte431", "smpte432", "bt2020":
		return p
	}
	return "bt709"
}

// matrix names the source's YUV matrix for the colorspace filter.
// Files that do not say follow the habit players rely on: BT.601 for standard
// definition, BT.709 above.
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
	for _, p := range []string{"rgb", "bgr", "gbr", "argb", "abgr", "0rgb", "0bgr", "pal8", "xyz"} {
		if strings.HasPrefix(pixelFormat, p) {
			return true
		}
	}
	return false
}

func fullRange(v *videoInfo) bool {
	return v.ColorRange == "pc" || strings.HasPrefix(v.PixelFormat, "yuvj")
}

// toneMap converts PQ and HLG to SDR.
func (s *shot) toneMap(w, h int) []string {
	video := s.source.info.Video
	transfer := video.ColorTransfer
	return []string{
		fmt.Sprintf("zscale=w=%d:h=%d:filter=bicubic:tin=%s:min=2020_ncl:pin=2020:t=linear:npl=203", w, h, transfer),
		"format=gbrpf32le",
		"zscale=p=709",
		"tonemap=tonemap=mobius:desat=0",
		"zscale=t=709:m=709:r=limited",
		"format=yuv420p",
	}
}

// rebuilt reports whether ffmpeg rebuilt the graph in the middle of a part, which it
// also does when the pixel format changes: the times then begin again.
func (v *videoPart) rebuilt(path string) bool {
	m, err := container.ReadMovie(path)
	return err == nil && (!m.Video.Uniform || m.Video.Samples != v.Frames)
}

// checkPart makes sure that a part holds what the plan says, and returns its
// decoder configuration.
func (v *videoPart) checkPart(path string) (config string, err error) {
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
		return "", fmt.Errorf("check %s: %w", v.Name, err)
	}
	return m.Video.Config, nil
}
