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

// The contact sheet: twelve frames of the film over the waveforms of the stems,
// which come from the service.
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

func laneInk(i int) color.NRGBA { return laneInks[i%len(laneInks)] }

// drawSheet draws the contact sheet of a film into a JPEG file.
func (j *judge) drawSheet(ctx context.Context, scratch, path string) error {
	lanes := filepath.Join(scratch, "lanes.png")
	if err := drawLanes(j.waves, lanes); err != nil {
		return fmt.Errorf("draw contact sheet: %w", err)
	}
	return ffmpeg(ctx, "draw contact sheet", "-i", "file:"+j.video, "-i", "file:"+lanes, "-filter_complex", j.sheetGraph(),
		"-map", "[sheet]", "-frames:v", "1", "-q:v", "2", "-update", "1", "file:"+path)
}

// drawLanes draws waveforms below each other.
func drawLanes(waves []wave, path string) (err error) {
	page := image.NewNRGBA(image.Rect(0, 0, laneWidth, max(len(waves)*laneStep, 1)))
	loudest := 1.0
	for _, w := range waves {
		for _, v := range w.Data {
			loudest = max(loudest, math.Abs(float64(v)))
		}
	}
	// A root makes quiet sounds visible beside loud ones.
	height := func(v int) int {
		return int(math.Copysign(math.Sqrt(math.Abs(float64(v))/loudest), float64(v)) * laneHeight / 2)
	}
	for i, w := range waves {
		top := i * laneStep
		draw.Draw(page, image.Rect(0, top, laneWidth, top+laneHeight), image.NewUniform(color.NRGBA{0x19, 0x1c, 0x2e, 0xff}),
			image.Point{}, draw.Src)
		for x := range laneWidth {
			if n := x * (len(w.Data) / 2) / laneWidth; 2*n+1 < len(w.Data) {
				middle := top + laneHeight/2
				draw.Draw(page, image.Rect(x, middle-height(w.Data[2*n+1]), x+1, middle-height(w.Data[2*n])+1),
					image.NewUniform(laneInk(i)), image.Point{}, draw.Src)
			}
		}
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(png.Encode(file, page), file.Close())
}

// sheetGraph is the filter graph of the sheet. The film is the first input, the
// lanes are the second.
func (j *judge) sheetGraph() string {
	var g, page strings.Builder
	width, height, rate := j.film.canvas()
	n := sheetColumns * sheetRows
	var chosen []string
	for i := range n {
		chosen = append(chosen, fmt.Sprintf(`eq(n\,%d)`, j.made.frames*(2*i+1)/(2*n)))
	}
	fmt.Fprintf(&g, "[0:v]select='%s',scale=%[2]d:%[3]d:force_original_aspect_ratio=decrease:flags=area,pad=%[2]d:%[3]d:-1:-1:%[4]s,"+
		"drawtext=font=Sans:text='%%{eif\\:t\\:d}.%%{eif\\:floor(mod(t*10,10))\\:d} "+
		"s':fontsize=13:fontcolor=%[5]s:box=1:boxcolor=%[6]s@0.72:boxborderw=6:x=w-tw-8:y=h-th-8,"+
		"tile=%[7]dx%[8]d:padding=%[9]d:color=%[6]s,setsar=1,setpts=0[grid];",
		strings.Join(chosen, "+"), cellWidth, cellHeight, laneBack, sheetInk, sheetBack, sheetColumns, sheetRows, sheetGap)
	top, left := sheetHead+sheetRows*(cellHeight+sheetGap)+34, sheetMargin+laneLabel
	fmt.Fprintf(&g, "color=%s:s=%dx%d:r=1:d=1[page];[page][grid]overlay=%d:%d[frames];[frames][1:v]overlay=%d:%d[lanes];",
		sheetBack, sheetWidth, top+len(j.waves)*laneStep+sheetMargin-10, sheetMargin, sheetHead, left, top)
	var length time.Duration
	for i, w := range j.waves {
		length = max(length, w.length)
		ink := laneInk(i)
		page.WriteString("," + letters(strings.Map(plainLetters, w.label), 17, fmt.Sprintf("0x%02x%02x%02x", ink.R, ink.G, ink.B),
			fmt.Sprint(sheetMargin), fmt.Sprintf("%d-th/2", top+i*laneStep+laneHeight/2)))
	}
	for second := time.Duration(0); second < length; second += time.Second {
		page.WriteString("," + letters(fmt.Sprintf("%.0f s", second.Seconds()), 13, sheetDim,
			fmt.Sprint(left+int(laneWidth*second/length)), fmt.Sprint(top-20)))
	}
	about := fmt.Sprintf("%.1f s · %d×%d · %s · H.264 + AAC", j.film.length().Seconds(), width, height, rateText(rate))
	fmt.Fprintf(&g, "[lanes]null%s,%s,%s,%s,format=yuvj444p[sheet]", page.String(),
		letters("cutroom", 40, "0xffc46b", fmt.Sprint(sheetMargin), "26"),
		letters("a film rendered by the service, and the stems that it was mixed from", 17, sheetInk, "236", "30"),
		letters(about, 15, sheetDim, "236", "54"))
	return g.String()
}

// plainLetters keeps what means nothing to ffmpeg's filters.
func plainLetters(r rune) rune {
	if strings.ContainsRune(`\':%,;[]=`, r) {
		return '_'
	}
	return r
}
