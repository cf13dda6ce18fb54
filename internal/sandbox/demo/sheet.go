package demo

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"os"
	"time"

	"cutroom/internal/sandbox/demo/meter"
	"cutroom/internal/sandbox/demo/picture"
)

// The contact sheet: twelve frames of the film over the lanes of its sound.
const (
	sheetColumns, sheetRows = 4, 3
	sheetWidth              = 1360
	sheetMargin             = 40
	sheetGap                = 12
	sheetHead               = 96
	laneLabel               = 150
	laneHeight              = 62
	laneGap                 = 10
)

var (
	sheetInk   = picture.RGB(0xf2ead8)
	sheetDim   = picture.RGB(0x8d8fa8)
	sheetBack  = picture.RGB(0x10121f)
	laneBack   = picture.RGB(0x191c2e)
	sheetAmber = picture.RGB(0xffc46b)
)

// lane is a row of the sheet's lower half: a waveform, with labels over its
// stretches.
type lane struct {
	name   string
	color  picture.Color
	sound  meter.Sound // as long as the film, as loud as in it
	labels []laneText
}

type laneText struct {
	at   time.Duration
	text string
}

// drawSheet draws the contact sheet of a film into a JPEG file.
func (j *judge) drawSheet(ctx context.Context, path string) error {
	width, height, _ := j.film.canvas()
	inner := sheetWidth - 2*sheetMargin
	cellW := (inner - (sheetColumns-1)*sheetGap) / sheetColumns
	cellH := cellW * 9 / 16
	scale := min(float64(cellW)/float64(width), float64(cellH)/float64(height))
	thumbW, thumbH := int(float64(width)*scale), int(float64(height)*scale)

	times := make([]time.Duration, sheetColumns*sheetRows)
	for i := range times {
		times[i] = j.film.length() * time.Duration(2*i+1) / time.Duration(2*len(times))
	}
	thumbs, err := meter.Frames(ctx, j.video, times, thumbW, thumbH)
	if err != nil {
		return err
	}
	lanes, err := j.lanes(ctx)
	if err != nil {
		return err
	}
	gridBottom := sheetHead + sheetRows*(cellH+sheetGap)
	total := gridBottom + 34 + len(lanes)*(laneHeight+laneGap) + sheetMargin - laneGap
	c := picture.NewCanvas(sheetWidth, total)
	c.Fill(0, 0, c.Width, c.Height, sheetBack, 1)
	j.drawHead(c)
	caption := picture.NewFace(11, 0.15)
	for i, thumb := range thumbs {
		x := sheetMargin + i%sheetColumns*(cellW+sheetGap)
		y := sheetHead + i/sheetColumns*(cellH+sheetGap)
		c.Fill(x, y, cellW, cellH, laneBack, 1)
		c.Paste(thumb, x+(cellW-thumbW)/2, y+(cellH-thumbH)/2)
		text := fmt.Sprintf("%.1f s", times[i].Seconds())
		c.Fill(x+cellW-int(caption.Width(text))-16, y+cellH-25, int(caption.Width(text))+16, 25, sheetBack, 0.72)
		caption.Draw(c, float64(x+cellW)-caption.Width(text)-6, float64(y+cellH)-18, text, sheetInk, 0.95)
	}
	j.drawLanes(c, lanes, gridBottom+34)
	return writeJPEG(c, path)
}

func (j *judge) drawHead(c *picture.Canvas) {
	width, height, rate := j.film.canvas()
	title, about := picture.NewFace(26, 0.16), picture.NewFace(13, 0.14)
	title.Draw(c, sheetMargin, 38, "cutroom", sheetAmber, 1)
	x := sheetMargin + title.Width("cutroom") + 22
	about.Draw(c, x, 38, "a film rendered by the service", sheetInk, 0.9)
	about.Draw(c, x, 59, fmt.Sprintf("%.1f s · %d×%d · %s · H.264 + AAC", j.film.length().Seconds(), width, height, rateText(rate)), sheetDim, 1)
}

// lanes are the film's sound and what it is mixed from.
func (j *judge) lanes(ctx context.Context) ([]lane, error) {
	heard, err := j.decode(ctx, j.video)
	if err != nil {
		return nil, err
	}
	n := meter.Sample(j.film.length())
	silent := func() meter.Sound { return meter.Sound{L: make([]float32, n), R: make([]float32, n)} }
	clips := lane{name: "Clips", color: picture.RGB(0xff8f6b), sound: silent()}
	voice := lane{name: "Voice", color: picture.RGB(0xffd166), sound: silent()}
	background := lane{name: "Background", color: picture.RGB(0x8a7bff), sound: silent()}
	song := lane{name: "Music", color: picture.RGB(0x3fd8b4), sound: silent()}
	byName := map[string]*lane{"voice": &voice, "background": &background, "music": &song}
	cuts := j.film.cuts()
	for i := 1; i < len(cuts); i++ {
		parts, err := j.partsAt(ctx, cuts[i-1])
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if p.gain == 0 {
				continue
			}
			l, label := byName[p.name], fmt.Sprintf("×%.2g", p.gain)
			if l == nil {
				l, label = &clips, p.name+" "+label
			}
			l.add(p, cuts[i-1], cuts[i], label)
		}
	}
	film := lane{name: "Film", color: sheetInk, sound: heard.Cut(0, j.film.length())}
	return []lane{clips, voice, background, song, film}, nil
}

// add writes a part into the lane. Equal labels that follow each other are
// written once.
func (l *lane) add(p part, a, b time.Duration, label string) {
	s := p.sound.Cut(p.from, p.from+b-a)
	first := meter.Sample(a)
	for i := range s.L {
		if at := first + i; at < len(l.sound.L) {
			l.sound.L[at] += s.L[i] * float32(p.gain)
			l.sound.R[at] += s.R[i] * float32(p.gain)
		}
	}
	if n := len(l.labels); n > 0 && l.labels[n-1].text == label {
		return
	}
	l.labels = append(l.labels, laneText{a, label})
}

func (j *judge) drawLanes(c *picture.Canvas, lanes []lane, top int) {
	name, label := picture.NewFace(13, 0.15), picture.NewFace(10, 0.15)
	left := sheetMargin + laneLabel
	width := sheetWidth - sheetMargin - left
	at := func(d time.Duration) float64 {
		return float64(left) + float64(width)*d.Seconds()/j.film.length().Seconds()
	}
	bottom := top + len(lanes)*(laneHeight+laneGap) - laneGap
	for second := time.Duration(0); second < j.film.length(); second += time.Second {
		text := fmt.Sprintf("%.0f s", second.Seconds())
		label.Draw(c, at(second), float64(top)-18, text, sheetDim, 0.9)
	}
	var loudest float64
	for _, l := range lanes {
		loudest = max(loudest, l.sound.Peak())
	}
	for i, l := range lanes {
		y := top + i*(laneHeight+laneGap)
		c.Fill(left, y, width, laneHeight, laneBack, 1)
		name.Draw(c, sheetMargin, float64(y)+laneHeight/2-6, l.name, l.color, 1)
		drawWave(c, l, left, y, width, loudest)
		for _, t := range l.labels {
			x := at(t.at) + 7
			c.Fill(int(x)-4, y+4, int(label.Width(t.text))+8, 18, laneBack, 0.75)
			label.Draw(c, x, float64(y)+8, t.text, sheetInk, 0.95)
		}
	}
	// The film's cuts run through all lanes.
	for _, cut := range j.film.cuts() {
		if cut > 0 && cut < j.film.length() {
			c.Fill(int(at(cut)), top-4, 1, bottom-top+8, sheetInk, 0.35)
		}
	}
}

// drawWave draws the range of the samples behind every column, and the root
// mean square inside it brighter.
func drawWave(c *picture.Canvas, l lane, left, top, width int, loudest float64) {
	middle := float64(top) + laneHeight/2
	half := float64(laneHeight)/2 - 3
	for x := range width {
		from, to := x*len(l.sound.L)/width, (x+1)*len(l.sound.L)/width
		var peak, sum float64
		for i := from; i < to; i++ {
			for _, v := range [2]float64{float64(l.sound.L[i]), float64(l.sound.R[i])} {
				peak = max(peak, math.Abs(v))
				sum += v * v
			}
		}
		if to <= from || peak == 0 {
			continue
		}
		// A root makes quiet sounds visible beside loud ones.
		outer := math.Pow(peak/loudest, 0.75) * half
		inner := math.Pow(math.Sqrt(sum/float64(2*(to-from)))/loudest, 0.75) * half
		for y := int(middle - outer); y <= int(middle+outer); y++ {
			alpha := float32(0.45)
			if math.Abs(float64(y)+0.5-middle) <= inner {
				alpha = 0.95
			}
			c.Blend(left+x, y, l.color, alpha)
		}
	}
}

func writeJPEG(c *picture.Canvas, path string) (err error) {
	img := image.NewRGBA(image.Rect(0, 0, c.Width, c.Height))
	for i := range c.Width * c.Height {
		copy(img.Pix[4*i:], c.Pix[3*i:3*i+3])
		img.Pix[4*i+3] = 255
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write contact sheet: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := jpeg.Encode(file, img, &jpeg.Options{Quality: 90}); err != nil {
		return fmt.Errorf("write contact sheet: %w", err)
	}
	return nil
}
