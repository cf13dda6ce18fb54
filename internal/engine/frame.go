package engine

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"cutroom/internal/media"
	"cutroom/internal/media/container"
)

// canvasSize is the size of the output for a first segment with video v: as it
// is displayed, with each side made even.
func canvasSize(v *videoInfo) (width, height int) {
	return max(16, v.DisplayWidth&^1), max(16, v.DisplayHeight&^1)
}

// fit scales w x h into the canvas keeping its shape. A side that would fall
// short of the canvas by up to half a percent fills it: a hairline of black
// looks worse than that much stretching.
func fit(w, h, canvasW, canvasH int) (int, int) {
	ratio := min(float64(canvasW)/float64(w), float64(canvasH)/float64(h))
	side := func(n, limit int) int {
		s := int(math.Round(float64(n)*ratio/2)) * 2
		if limit-s <= max(2, limit/200) {
			return limit
		}
		return max(2, s)
	}
	return side(w, canvasW), side(h, canvasH)
}

// picture is the part of the chain that turns a decoded frame into one of the
// canvas: size, colour, orientation, bars. Scaling comes first, because all
// that follows costs by the pixel.
func (v *videoPart) picture() []string {
	video := v.source.info.Video
	w, h := fit(video.DisplayWidth, video.DisplayHeight, v.canvas.Width, v.canvas.Height)
	codedW, codedH := w, h // before turning
	if video.Orientation.SwapsSides() {
		codedW, codedH = h, w
	}
	chain := v.colour(codedW, codedH)
	if f := video.Orientation.Filter(); f != "" {
		chain = append(chain, f)
	}
	if w != v.canvas.Width || h != v.canvas.Height {
		chain = append(chain, fmt.Sprintf("pad=%d:%d:%d:%d:black", v.canvas.Width, v.canvas.Height,
			(v.canvas.Width-w)/4*2, (v.canvas.Height-h)/4*2))
	}
	return append(chain, "setsar=1")
}

// guard names the filter of sameSize where ffmpeg reports what it refuses.
const guard = "crop@same-size"

// sameSize lets pictures of the size that the analysis found through, at no
// cost, and refuses others. Recordings of calls and screens turn or change their
// resolution in the middle: ffmpeg then builds the graph anew, which forgets how
// many frames it has seen, and everything behind counts on one size.
func (v *videoPart) sameSize() string {
	w, h := v.source.info.Video.Width, v.source.info.Video.Height
	return fmt.Sprintf("%s=w='if(eq(iw,%d)*eq(ih,%d),iw,-1)':h=ih:exact=1", guard, w, h)
}

// oneSize fits every picture, by its own size, into the one that the analysis
// found, in one format. The graph stays as it is: these two filters alone follow
// the change.
func (v *videoPart) oneSize() string {
	w, h := v.source.info.Video.Width, v.source.info.Video.Height
	return fmt.Sprintf("scale=%d:%d:flags=bicubic:force_original_aspect_ratio=decrease:eval=frame,"+
		"pad=%d:%d:(ow-iw)/2:(oh-ih)/2:black:eval=frame", w, h, w, h)
}

// refusedSize reports whether a pass ended because of sameSize.
func refusedSize(err error) bool {
	exit, ok := errors.AsType[*media.ExitError](err)
	return ok && strings.Contains(exit.Stderr, guard)
}

// rebuilt reports whether ffmpeg built the graph anew in the middle of a part, as
// it does for another format, too: the times then begin again.
func (v *videoPart) rebuilt(path string) bool {
	m, err := container.ReadMovie(path)
	return err == nil && (!m.Video.Uniform || m.Video.Samples != v.Frames)
}

// resize is the way to w x h: nothing, the loss of an odd line, or scaling.
func (v *videoPart) resize(w, h int) string {
	video := v.source.info.Video
	switch dw, dh := video.Width-w, video.Height-h; {
	case dw == 0 && dh == 0:
		return ""
	case (dw == 0 || dw == 1) && (dh == 0 || dh == 1):
		return fmt.Sprintf("crop=%d:%d:0:0", w, h)
	}
	return fmt.Sprintf("scale=%d:%d:flags=bicubic", w, h)
}

// colour scales to w x h and leaves 8-bit 4:2:0 in BT.709 and limited range,
// whatever the source is in.
func (v *videoPart) colour(w, h int) []string {
	video := v.source.info.Video
	if video.HDR() {
		return v.toneMap(w, h)
	}
	var chain []string
	matrix, in := v.matrix(), "tv"
	if isRGB(video.PixelFormat) {
		chain = append(chain, fmt.Sprintf("scale=%d:%d:flags=bicubic:out_color_matrix=bt709:out_range=tv", w, h), "format=yuv420p")
		matrix = "bt709"
	} else {
		if resize := v.resize(w, h); resize != "" {
			chain = append(chain, resize)
		}
		if fullRange(video) {
			in = "pc"
		}
	}
	primaries := v.primaries()
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
		"colorspace=ispace=%s:space=bt709:irange=%s:range=tv:iprimaries=%s:primaries=bt709:itrc=gamma22:trc=gamma22:format=yuv420p", matrix, in, primaries))
}

// primaries are those of the source in the colorspace filter's words, where they
// are wide enough that taking them for BT.709 would pale the picture. Those of
// other SDR systems differ by less than players care about, and converting them
// would cost a detour over light.
func (v *videoPart) primaries() string {
	switch p := v.source.info.Video.ColorPrimaries; p {
	case "smpte431", "smpte432", "bt2020":
		return p
	}
	return "bt709"
}

// matrix is the YUV matrix of the source in the colorspace filter's words.
// Files that do not say follow the habit players rely on: BT.601 for standard
// definition, BT.709 above.
func (v *videoPart) matrix() string {
	switch video := v.source.info.Video; video.ColorSpace {
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
func (v *videoPart) toneMap(w, h int) []string {
	video := v.source.info.Video
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
