// Draws the demonstration's contact sheet: twelve frames, and the waveforms of film and stems.

package demo

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The contact sheet: twelve frames of the film, the waveform of its sound, and those of the stems. Sizes are in
// pixels.
const (
	sheetColumns, sheetRows = 4, 3
	sheetWidth              = 1360
	sheetMargin             = 40
	sheetGap                = 12
	sheetHead               = 96
	laneLabel               = 170
	laneWidth               = sheetWidth - 2*sheetMargin - laneLabel
	laneLeft                = sheetMargin + laneLabel
	laneHeight              = 62
	laneStep                = laneHeight + 10
	laneText                = 16 // for the names of the film's stretches, over its waveform
	laneHead                = 34 // above a lane with a scale in seconds
	cellWidth               = (sheetWidth - 2*sheetMargin - (sheetColumns-1)*sheetGap) / sheetColumns &^ 1
	cellHeight              = cellWidth * 9 / 16 &^ 1
	sheetInk                = "0xf2ead8"
	sheetDim                = "0x8d8fa8"
	sheetBack               = "0x10121f"
	laneBack                = "0x191c2e"
)

// laneInks are the colours of the waveforms, from top to bottom.
var laneInks = []string{"0x5aa9ff", "0xffd166", "0xff8f6b", "0x3fd8b4", "0x8a7bff"}

// lane is a sound in the sheet.
type lane struct {
	name, about string
	path        string
	length      time.Duration
}

// lanes returns the sounds of the sheet, the film's first.
func (j *judge) lanes() []lane {
	all := []lane{{"film", "its sound", j.video, j.film.length()}}
	for _, s := range j.stems {
		all = append(all, lane{s.Label, "stem", s.path, time.Duration(s.DurationMs) * time.Millisecond})
	}
	return all
}

// laneTop returns the y position of a lane. The lanes of the stems have a scale of their own.
func laneTop(i int) int {
	return sheetHead + sheetRows*(cellHeight+sheetGap) + laneHead + i*laneStep + min(i, 1)*laneHead
}

// drawSheet draws the contact sheet of a film into a JPEG file.
func (j *judge) drawSheet(ctx context.Context, path string) error {
	var args []string
	for _, l := range j.lanes() {
		args = append(args, "-i", "file:"+l.path)
	}
	return ffmpeg(ctx, "draw contact sheet", append(args, "-filter_complex", j.sheetGraph(),
		"-map", "[sheet]", "-frames:v", "1", "-q:v", "2", "-update", "1", "file:"+path)...)
}

// sheetGraph returns the filter graph of the sheet. Its inputs are the lanes' sounds; the first one is the film.
func (j *judge) sheetGraph() string {
	lanes := j.lanes()
	draw := []string{letters("cutroom", 40, "0xffc46b", sheetMargin, "26"),
		letters("a film rendered by the service and the stems that it was mixed from", 17, sheetInk, 236, "30"),
		letters(j.about(), 15, sheetDim, 236, "54")}
	var waves, overlays strings.Builder
	for i, l := range lanes {
		ink, middle := laneInks[i%len(laneInks)], laneTop(i)+laneHeight/2
		text := laneText * (1 - min(i, 1))
		fmt.Fprintf(&waves, "[%d:a]aformat=channel_layouts=mono,showwavespic=s=%dx%d:filter=peak:scale=sqrt:"+
			"draw=full:colors=%s,setpts=0[wave%[1]d];",
			i, laneWidth, laneHeight-text, ink)
		fmt.Fprintf(&overlays, "[sheet%d];[sheet%[1]d][wave%[1]d]overlay=%d:%d", i, laneLeft, laneTop(i)+text)
		draw = append(draw, box(laneLeft, laneTop(i), laneWidth, laneBack), letters(l.name, 17, ink, sheetMargin, fmt.Sprintf("%d-th", middle)),
			letters(l.about, 12, sheetDim, sheetMargin, fmt.Sprint(middle+6)))
		if i > 1 {
			continue // the stems share a scale
		}
		for second := time.Duration(0); second < l.length; second += time.Second {
			draw = append(draw, letters(fmt.Sprintf("%.0f s", second.Seconds()), 13, sheetDim,
				laneLeft+int(laneWidth*second/l.length), fmt.Sprint(laneTop(i)-20)))
		}
	}
	laneX := func(at time.Duration) int { return laneLeft + int(laneWidth*at/j.film.length()) }
	var names []string
	for i, s := range j.film.stretches() {
		shade := []string{"0x1f2338", "0x2b304d"}[i%2]
		draw = append(draw, box(laneX(s.from), laneTop(0), laneX(s.to)-laneX(s.from), shade))
		names = append(names, letters(s.name, 12, sheetInk, laneX(s.from)+6, fmt.Sprint(laneTop(0)+4)))
	}
	return j.framesGraph() + waves.String() + fmt.Sprintf("color=%s:s=%dx%d:r=1:d=1[page];[page][grid]overlay=%d:%d,%s", sheetBack, sheetWidth,
		laneTop(len(lanes))+sheetMargin-10, sheetMargin, sheetHead, strings.Join(draw, ",")) +
		overlays.String() + "," + strings.Join(names, ",") + ",format=yuvj444p[sheet]"
}

// framesGraph returns the filters that draw the frames, ending in [grid].
func (j *judge) framesGraph() string {
	var chosen, captions []string
	for i, n := range j.chosen() {
		chosen = append(chosen, fmt.Sprintf(`eq(n\,%d)`, n))
		captions = append(captions, fmt.Sprintf("drawtext=font=Sans:text='%s':enable='eq(n,%d)':fontsize=13:fontcolor=%s:"+
			"box=1:boxcolor=%s@0.72:boxborderw=6:x=w-tw-8:y=h-th-8",
			strings.Map(plainLetters, j.film.caption(n)), i, sheetInk, sheetBack))
	}
	return fmt.Sprintf("[0:v]select='%s',scale=%[2]d:%[3]d:force_original_aspect_ratio=decrease:flags=area,pad=%[2]d:%[3]d:-1:-1:%[4]s,%[5]s,"+
		"tile=%[6]dx%[7]d:padding=%[8]d:color=%[9]s,setsar=1,setpts=0[grid];",
		strings.Join(chosen, "+"), cellWidth, cellHeight, laneBack, strings.Join(captions, ","), sheetColumns, sheetRows, sheetGap, sheetBack)
}

// box returns the filter that fills the height of a lane.
func box(x, y, width int, color string) string {
	return fmt.Sprintf("drawbox=%d:%d:%d:%d:%s:fill", x, y, width, laneHeight, color)
}

// about describes the film in a line.
func (j *judge) about() string {
	width, height, rate := j.film.canvas()
	return fmt.Sprintf("%.1f s · %d×%d · %s · H.264 + AAC", j.film.length().Seconds(), width, height, rateText(rate))
}

// chosen returns the frames that the sheet shows: evenly spaced, with the middle of each overlap in place of the frame
// nearest to it.
func (j *judge) chosen() []int {
	var frames []int
	n, all := sheetColumns*sheetRows, j.made.First("video").Packets
	for i := range n {
		frames = append(frames, all*(2*i+1)/(2*n))
	}
	for _, s := range j.film.segments {
		if middle := j.film.frameAt(s.start + s.overlap/2); s.overlap > 0 {
			frames[min(n-1, middle*n/all)] = middle
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

// stretch is a range of the film in which the same sounds are audible. It has no name where two segments overlap.
type stretch struct {
	from, to time.Duration
	name     string
}

// stretches returns the stretches of the film's sound, in order.
func (f film) stretches() []stretch {
	var all []stretch
	for i, s := range f.segments {
		from, to := f.alone(i)
		if s.overlap > 0 {
			all = append(all, stretch{from: s.start, to: from})
		}
		if i == 0 { // the remixes are in the first segment
			all = append(all, stretch{from, f.remixes[0].from, "own sound"})
			for _, r := range f.remixes {
				all, from = append(all, stretch{r.from, r.to, r.name()}), r.to
			}
		}
		if from < to {
			all = append(all, stretch{from, to, f.clips[s.clip].name + " · own sound"})
		}
	}
	return all
}

func (r remix) name() string {
	switch {
	case r.voice == 0 && r.background == 0:
		return "silent"
	case r.voice > 1:
		return "voice up · music down"
	}
	return "stems unchanged"
}

// letters returns the filter that writes a text, without the letters that ffmpeg's filters would interpret.
func letters(text string, size int, color string, x int, y string) string {
	return fmt.Sprintf("drawtext=font=Sans:text='%s':fontsize=%d:fontcolor=%s:shadowx=1:shadowy=1:x=%d:y=%s",
		strings.Map(plainLetters, text), size, color, x, y)
}

// plainLetters keeps only characters that ffmpeg's filters do not interpret.
func plainLetters(r rune) rune {
	if strings.ContainsRune(`\':%,;[]=`, r) {
		return '_'
	}
	return r
}
