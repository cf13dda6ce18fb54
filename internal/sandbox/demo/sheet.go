package demo

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The contact sheet: twelve frames of the film, its sounds, the levels of voice and
// music, and the waveforms of the stems, which the service provides.
const (
	sheetColumns, sheetRows = 4, 3
	sheetWidth              = 1360
	sheetMargin             = 40
	sheetGap                = 12
	sheetHead               = 96
	laneLabel               = 170
	laneWidth               = sheetWidth - 2*sheetMargin - laneLabel
	laneHeight              = 62
	laneStep                = laneHeight + 10
	cellWidth               = (sheetWidth - 2*sheetMargin - (sheetColumns-1)*sheetGap) / sheetColumns &^ 1
	cellHeight              = cellWidth * 9 / 16 &^ 1
	sheetInk                = "0xf2ead8"
	sheetDim                = "0x8d8fa8"
	sheetBack               = "0x10121f"
	laneBack                = "0x191c2e"
)

// laneInks are the colours of the stems, from top to bottom.
var laneInks = []color.NRGBA{{0xff, 0xd1, 0x66, 0xff}, {0xff, 0x8f, 0x6b, 0xff}, {0x3f, 0xd8, 0xb4, 0xff}, {0x8a, 0x7b, 0xff, 0xff}}

var (
	lanePaper = color.NRGBA{0x19, 0x1c, 0x2e, 0xff}
	musicInk  = color.NRGBA{0x5a, 0xa9, 0xff, 0xff}
)

func laneInk(i int) color.NRGBA { return laneInks[i%len(laneInks)] }

// drawSheet draws the contact sheet of a film into a JPEG file.
func (j *judge) drawSheet(ctx context.Context, scratch, path string) error {
	curves, err := j.levels(ctx)
	if err != nil {
		return fmt.Errorf("measure levels: %w", err)
	}
	lanes := filepath.Join(scratch, "lanes.png")
	if err := j.drawLanes(curves, lanes); err != nil {
		return fmt.Errorf("draw contact sheet: %w", err)
	}
	return ffmpeg(ctx, "draw contact sheet", "-i", "file:"+j.video, "-i", "file:"+lanes, "-filter_complex", j.sheetGraph(),
		"-map", "[sheet]", "-frames:v", "1", "-q:v", "2", "-update", "1", "file:"+path)
}

// The film's lanes. The lanes of the stems are below them.
const (
	heardLane = iota
	voiceLane
	musicLane
	filmLanes
	stemsTop = filmLanes*laneStep + 44 // leaves room for the stems' seconds
)

// drawLanes draws the lanes below each other: the sounds over time, the levels of voice and music with the
// music's gain, and the stems' waveforms.
func (j *judge) drawLanes(c curves, path string) (err error) {
	page := image.NewNRGBA(image.Rect(0, 0, laneWidth, stemsTop+max(len(j.waves)*laneStep, 1)))
	fill := func(x0, y0, x1, y1 int, ink color.Color) {
		draw.Draw(page, image.Rect(x0, y0, x1, y1), image.NewUniform(ink), image.Point{}, draw.Src)
	}
	for i := range filmLanes {
		fill(0, i*laneStep, laneWidth, i*laneStep+laneHeight, lanePaper)
	}
	for i, s := range j.film.stretches() {
		ink := color.NRGBA{0x2b, 0x30, 0x4d, 0xff}
		if i%2 == 1 {
			ink = color.NRGBA{0x3a, 0x40, 0x66, 0xff}
		}
		fill(j.film.laneX(s.from), heardLane*laneStep, j.film.laneX(s.to), heardLane*laneStep+laneHeight, ink)
	}
	for x := range laneWidth {
		w := c.at(float64(x) / laneWidth)
		fill(x, bottomOf(voiceLane)-levelHeight(w.voice), x+1, bottomOf(voiceLane), laneInk(0))
		fill(x, bottomOf(musicLane)-levelHeight(w.music), x+1, bottomOf(musicLane), musicInk)
		if !math.IsNaN(w.gain) {
			y := bottomOf(musicLane) - levelHeight(w.gain-6) // 0 dB is a little below the top
			fill(x, y-1, x+1, y+2, color.White)
		}
	}
	j.drawWaves(fill)
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(png.Encode(file, page), file.Close())
}

// drawWaves draws the waveforms of the stems.
func (j *judge) drawWaves(fill func(x0, y0, x1, y1 int, ink color.Color)) {
	loudest := 1.0
	for _, w := range j.waves {
		for _, v := range w.Data {
			loudest = max(loudest, math.Abs(float64(v)))
		}
	}
	// The square root makes quiet sounds visible next to loud ones.
	height := func(v int) int {
		return int(math.Copysign(math.Sqrt(math.Abs(float64(v))/loudest), float64(v)) * laneHeight / 2)
	}
	for i, w := range j.waves {
		top := stemsTop + i*laneStep
		fill(0, top, laneWidth, top+laneHeight, lanePaper)
		for x := range laneWidth {
			if n := x * (len(w.Data) / 2) / laneWidth; 2*n+1 < len(w.Data) {
				middle := top + laneHeight/2
				fill(x, middle-height(w.Data[2*n+1]), x+1, middle-height(w.Data[2*n])+1, laneInk(i))
			}
		}
	}
}

func bottomOf(lane int) int { return lane*laneStep + laneHeight }

// levelHeight returns the height of a level in dB in a lane that shows 54 dB.
func levelHeight(db float64) int { return int(max(0, min(1, 1+db/54)) * laneHeight) }

// laneX returns the x position of a time of the film in its lanes.
func (f film) laneX(at time.Duration) int { return int(laneWidth * at / f.length()) }

// chosen returns the frames that the sheet shows: evenly spaced, with the middle of each overlap in place of
// the frame nearest to it.
func (j *judge) chosen() []int {
	var frames []int
	n := sheetColumns * sheetRows
	for i := range n {
		frames = append(frames, j.made.frames*(2*i+1)/(2*n))
	}
	for _, s := range j.film.segments {
		if middle := j.film.frameAt(s.start + s.overlap/2); s.overlap > 0 {
			frames[min(n-1, middle*n/j.made.frames)] = middle
		}
	}
	return frames
}

// caption describes a frame of the film.
func (f film) caption(frame int) string {
	at := f.timeOf(frame)
	text := fmt.Sprintf("%.1f s", at.Seconds())
	for i, s := range f.segments {
		switch {
		case at >= s.start && at < s.start+s.overlap:
			return text + " · " + s.join
		case at >= s.start && at < s.end() && f.joinAt(at) == nil:
			text += " · " + f.clips[f.segments[i].clip].name
			if s.fit == "blur" && f.inside(s.clip).left+f.inside(s.clip).top > 0 {
				text += " on its blur"
			}
		}
	}
	return text
}

// sheetGraph returns the filter graph of the sheet. The film is the first input, the lanes are the second.
func (j *judge) sheetGraph() string {
	var g strings.Builder
	width, height, rate := j.film.canvas()
	var chosen, captions []string
	for i, n := range j.chosen() {
		chosen = append(chosen, fmt.Sprintf(`eq(n\,%d)`, n))
		captions = append(captions, fmt.Sprintf("drawtext=font=Sans:text='%s':enable='eq(n,%d)':fontsize=13:fontcolor=%s:"+
			"box=1:boxcolor=%s@0.72:boxborderw=6:x=w-tw-8:y=h-th-8",
			strings.Map(plainLetters, j.film.caption(n)), i, sheetInk, sheetBack))
	}
	fmt.Fprintf(&g, "[0:v]select='%s',scale=%[2]d:%[3]d:force_original_aspect_ratio=decrease:flags=area,pad=%[2]d:%[3]d:-1:-1:%[4]s,%[5]s,"+
		"tile=%[6]dx%[7]d:padding=%[8]d:color=%[9]s,setsar=1,setpts=0[grid];",
		strings.Join(chosen, "+"), cellWidth, cellHeight, laneBack, strings.Join(captions, ","), sheetColumns, sheetRows, sheetGap, sheetBack)
	top, left := sheetHead+sheetRows*(cellHeight+sheetGap)+34, sheetMargin+laneLabel
	fmt.Fprintf(&g, "color=%s:s=%dx%d:r=1:d=1[page];[page][grid]overlay=%d:%d[frames];[frames][1:v]overlay=%d:%d[lanes];",
		sheetBack, sheetWidth, top+stemsTop+len(j.waves)*laneStep+sheetMargin-10, sheetMargin, sheetHead, left, top)
	about := fmt.Sprintf("%.1f s · %d×%d · %s · H.264 + AAC", j.film.length().Seconds(), width, height, rateText(rate))
	const title = "a film rendered by the service, what is heard in it, and the stems that it was mixed from"
	texts := append(j.laneTexts(left, top), letters("cutroom", 40, "0xffc46b", fmt.Sprint(sheetMargin), "26"),
		letters(title, 17, sheetInk, "236", "30"), letters(about, 15, sheetDim, "236", "54"))
	fmt.Fprintf(&g, "[lanes]null,%s,format=yuvj444p[sheet]", strings.Join(texts, ","))
	return g.String()
}

// laneTexts returns the labels of the lanes and the seconds above them.
func (j *judge) laneTexts(left, top int) []string {
	var texts []string
	add := func(text string, size int, ink string, x int, y string) {
		texts = append(texts, letters(strings.Map(plainLetters, text), size, ink, fmt.Sprint(x), y))
	}
	label := func(text, about string, ink color.NRGBA, y int) {
		add(text, 17, hexInk(ink), sheetMargin, fmt.Sprintf("%d-th", top+y+laneHeight/2))
		add(about, 12, sheetDim, sheetMargin, fmt.Sprint(top+y+laneHeight/2+6))
	}
	seconds := func(length time.Duration, y int) {
		for second := time.Duration(0); second < length; second += time.Second {
			add(fmt.Sprintf("%.0f s", second.Seconds()), 13, sheetDim, left+int(laneWidth*second/length), fmt.Sprint(top+y-20))
		}
	}
	seconds(j.film.length(), 0)
	for _, s := range j.film.stretches() {
		add(s.name, 12, sheetInk, left+j.film.laneX(s.from)+6, fmt.Sprintf("%d-th/2", top+laneHeight/2))
	}
	label("heard", "in the film", color.NRGBA{0xf2, 0xea, 0xd8, 0xff}, heardLane*laneStep)
	label("voice", "its level in the film", laneInk(0), voiceLane*laneStep)
	label("music", "its level · gain in white", musicInk, musicLane*laneStep)
	var length time.Duration
	for i, w := range j.waves {
		length = max(length, w.length)
		label(w.label, "stem", laneInk(i), stemsTop+i*laneStep)
	}
	seconds(length, stemsTop)
	return texts
}

func hexInk(c color.NRGBA) string { return fmt.Sprintf("0x%02x%02x%02x", c.R, c.G, c.B) }

// plainLetters keeps only characters that ffmpeg's filters do not interpret.
func plainLetters(r rune) rune {
	if strings.ContainsRune(`\':%,;[]=`, r) {
		return '_'
	}
	return r
}
