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
// all that follows costs by the pixel. n tells the labels from another shot's.
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

// margins are where a picture of w x h lies on the canvas.
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
	// Mirrored over its edges, the picture is not blurred into the colours that happen
	// to lie on them.
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

// How a picture is scaled: what is blurred anyway needs no sharp scaling.
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

// guard names the filter of sameSize where ffmpeg reports what it refuses.
const guard = "crop@same-size"

// sameSize lets pictures of the size that the analysis found through, at no
// cost, and refuses others. Recordings of calls and screens turn or change their
// resolution in the middle: ffmpeg then builds the graph anew, which forgets how
// many frames it has seen, and everything behind counts on one size.
func (s *shot) sameSize() string {
	w, h := s.source.info.Video.Width, s.source.info.Video.Height
	return fmt.Sprintf("%s=w='if(eq(iw,%d)*eq(ih,%d),iw,-1)':h=ih:exact=1", guard, w, h)
}

// oneSize fits every picture, by its own size, into the one that the analysis
// found, in one format. The graph stays as it is: these two filters alone follow
// the change.
func (s *shot) oneSize() string {
	w, h := s.source.info.Video.Width, s.source.info.Video.Height
	return fmt.Sprintf("scale=%d:%d:flags=bicubic:force_original_aspect_ratio=decrease:eval=frame,"+
		"pad=%d:%d:(ow-iw)/2:(oh-ih)/2:black:eval=frame", w, h, w, h)
}

// refusedSize reports whether a pass ended because of sameSize.
func refusedSize(err error) bool {
	exit, ok := errors.AsType[*media.ExitError](err)
	return ok && strings.Contains(exit.Stderr, guard)
}

// resize is the way to w x h: nothing, the loss of an odd line, or scaling.
func resize(from window, w, h int, scaling string) string {
	switch dw, dh := from.w-w, from.h-h; {
	case dw == 0 && dh == 0:
		return ""
	case (dw == 0 || dw == 1) && (dh == 0 || dh == 1):
		return fmt.Sprintf("crop=%d:%d:0:0", w, h)
	}
	return fmt.Sprintf("scale=%d:%d:flags=%s", w, h, scaling)
}

// colour scales pictures of the window's size to w x h and leaves 8-bit 4:2:0 in
// BT.709 and limited range, whatever the source is in.
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
	// The filter works on planar 4:2:0, 4:2:2 and 4:4:4 of 8 to 12 bits and
	// converts matrix, range, depth and primaries in one go. The transfer is that of
	// a display on both sides: between SDR systems it differs by less than players
	// care about.
	if !strings.HasPrefix(video.PixelFormat, "yuv4") && !strings.HasPrefix(video.PixelFormat, "yuvj4") && !isRGB(video.PixelFormat) {
		chain = append(chain, "format=yuv420p")
	}
	return append(chain, fmt.Sprintf(
		"colorspace=ispace=%s:space=bt709:irange=%s:range=tv:iprimaries=%s:primaries=bt709:itrc=gamma22:trc=gamma22:format=yuv420p",
		matrix, in, primaries))
}

// primaries are those of the source in the colorspace filter's words, where they
// are wide enough that taking them for BT.709 would pale the picture. Those of
// other SDR systems differ by less than players care about, and converting them
// would cost a detour over light.
func (s *shot) primaries() string {
	switch p := s.source.info.Video.ColorPrimaries; p {
	case "smpte431", "smpte432", "bt2020":
		return p
	}
	return "bt709"
}

// matrix is the YUV matrix of the source in the colorspace filter's words.
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

// toneMap brings PQ and HLG down to SDR.
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

// rebuilt reports whether ffmpeg built the graph anew in the middle of a part, as
// it does for another format, too: the times then begin again.
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
