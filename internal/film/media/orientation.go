package media

import (
	"math"
	"strconv"
	"strings"
)

// Orientation defines how to turn a coded frame into the displayed one: mirror it left-right first if Mirrored,
// then turn it clockwise by Degrees.
type Orientation struct {
	Degrees  int // 0, 90, 180 or 270, clockwise
	Mirrored bool
}

// SwapsSides reports whether width and height change places.
func (o Orientation) SwapsSides() bool { return o.Degrees == 90 || o.Degrees == 270 }

// Then returns the orientation that applies o, then turns the picture clockwise by degrees, a multiple of 90, and then
// exchanges left and right if mirrored.
func (o Orientation) Then(degrees int, mirrored bool) Orientation {
	o.Degrees += degrees
	if mirrored { // mirroring after a turn is the opposite turn after mirroring
		o.Degrees, o.Mirrored = -o.Degrees, !o.Mirrored
	}
	o.Degrees = (o.Degrees%360 + 360) % 360
	return o
}

// filters maps each orientation to ffmpeg's filters.
var filters = map[Orientation]string{
	{90, false}: "transpose=clock", {180, false}: "hflip,vflip", {270, false}: "transpose=cclock",
	{0, true}: "hflip", {90, true}: "transpose=clock_flip", {180, true}: "vflip", {270, true}: "transpose=cclock_flip",
}

// Filter returns the ffmpeg filter (or chain) that applies the orientation to a stream decoded with -noautorotate, or
// "" if nothing is to be done. It does not depend on how a version of ffmpeg handles mirrored frames.
func (o Orientation) Filter() string { return filters[o] }

// parseDisplayMatrix parses the 3x3 matrix as ffprobe prints it, in lines such as "00000000: 0 65536 0". It maps a
// coded point (x, y), y downwards, to (a*x + c*y, b*x + d*y), with a, b in the first line and c, d in the second. Other
// angles are rounded to the nearest right angle. A matrix that is not a rotation is ignored.
func parseDisplayMatrix(text string) Orientation {
	var m []float64
	for line := range strings.Lines(text) {
		_, numbers, _ := strings.Cut(line, ":")
		for field := range strings.FieldsSeq(numbers) {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return Orientation{}
			}
			m = append(m, float64(n))
		}
	}
	if len(m) != 9 {
		return Orientation{}
	}
	a, b, c, d := m[0], m[1], m[3], m[4]
	det := a*d - b*c
	if det == 0 {
		return Orientation{}
	}
	o := Orientation{Mirrored: det < 0}
	if o.Mirrored {
		a, b = -a, -b
	}
	quarter := int(math.Round(math.Atan2(b, a) / (math.Pi / 2)))
	o.Degrees = (quarter%4 + 4) % 4 * 90
	return o
}
