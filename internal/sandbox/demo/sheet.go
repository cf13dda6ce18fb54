package demo

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The contact sheet: twelve frames of the film over the lanes of its sound.
const (
	sheetColumns, sheetRows = 4, 3
	sheetWidth              = 1360
	sheetMargin             = 40
	sheetGap                = 12
	sheetHead               = 96
	laneLabel               = 150
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

// lane is a row of the sheet's lower half: a waveform, with labels over its
// stretches.
type lane struct {
	name, color string
	sound       audio // as long as the film, as loud as in it
	labels      []laneText
}

type laneText struct {
	at   time.Duration
	text string
}

// drawSheet draws the contact sheet of a film into a JPEG file.
func (j *judge) drawSheet(ctx context.Context, scratch, path string) error {
	lanes, err := j.lanes(ctx)
	if err != nil {
		return err
	}
	var loudest float64
	args := []string{"-i", "file:" + j.video}
	for i, l := range lanes {
		raw := make([]byte, 0, 4*len(l.sound))
		for _, v := range l.sound {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
			loudest = max(loudest, math.Abs(float64(v)))
		}
		name := filepath.Join(scratch, fmt.Sprintf("lane-%d.f32", i))
		if err := os.WriteFile(name, raw, 0o600); err != nil {
			return fmt.Errorf("draw contact sheet: %w", err)
		}
		args = append(args, "-f", "f32le", "-ar", fmt.Sprint(sampleRate), "-ac", "2", "-i", "file:"+name)
	}
	graph := j.sheetGraph(lanes, 1/max(loudest, 1e-6))
	return ffmpeg(ctx, "draw contact sheet", append(args, "-filter_complex", graph, "-map", "[sheet]", "-frames:v", "1", "-q:v", "2", "-update", "1", "file:"+path)...)
}

// sheetGraph is the filter graph of the sheet. The film is the first input, the
// lanes follow.
func (j *judge) sheetGraph(lanes []lane, gain float64) string {
	var g, page strings.Builder
	width, height, rate := j.film.canvas()
	n := sheetColumns * sheetRows
	var chosen []string
	for i := range n {
		chosen = append(chosen, fmt.Sprintf(`eq(n\,%d)`, j.made.frames*(2*i+1)/(2*n)))
	}
	fmt.Fprintf(&g, "[0:v]select='%s',scale=%[2]d:%[3]d:force_original_aspect_ratio=decrease:flags=area,pad=%[2]d:%[3]d:-1:-1:%[4]s,"+
		"drawtext=font=Sans:text='%%{eif\\:t\\:d}.%%{eif\\:floor(mod(t*10,10))\\:d} s':fontsize=13:fontcolor=%[5]s:box=1:boxcolor=%[6]s@0.72:boxborderw=6:x=w-tw-8:y=h-th-8,"+
		"tile=%[7]dx%[8]d:padding=%[9]d:color=%[6]s,setsar=1,setpts=0[grid];",
		strings.Join(chosen, "+"), cellWidth, cellHeight, laneBack, sheetInk, sheetBack, sheetColumns, sheetRows, sheetGap)
	top := sheetHead + sheetRows*(cellHeight+sheetGap) + 34
	fmt.Fprintf(&g, "color=%s:s=%dx%d:r=1:d=1[page];[page][grid]overlay=%d:%d[p0];", sheetBack, sheetWidth, top+len(lanes)*laneStep+sheetMargin-10, sheetMargin, sheetHead)
	left := sheetMargin + laneLabel
	for i, l := range lanes {
		y := top + i*laneStep
		// The range of the samples, and their mean inside it brighter. A root
		// makes quiet sounds visible beside loud ones.
		fmt.Fprintf(&g, "[%[1]d:a]volume=%[2]g,asplit[a%[1]d][b%[1]d];"+
			"[a%[1]d]showwavespic=s=%[3]dx%[4]d:colors=%[5]s:split_channels=0:scale=sqrt:draw=full:filter=peak,format=rgba,colorchannelmixer=aa=.45[peak%[1]d];"+
			"[b%[1]d]showwavespic=s=%[3]dx%[4]d:colors=%[5]s:split_channels=0:scale=sqrt:draw=full:filter=average,format=rgba[mean%[1]d];"+
			"[p%[6]d]drawbox=%[7]d:%[8]d:%[3]d:%[4]d:%[9]s:fill[q%[1]d];[q%[1]d][peak%[1]d]overlay=%[7]d:%[8]d[r%[1]d];[r%[1]d][mean%[1]d]overlay=%[7]d:%[8]d[p%[1]d];",
			i+1, gain, laneWidth, laneHeight, l.color, i, left, y, laneBack)
		page.WriteString("," + letters(l.name, 19, l.color, fmt.Sprint(sheetMargin), fmt.Sprintf("%d-th/2", y+laneHeight/2)))
		for _, t := range l.labels {
			page.WriteString("," + letters(t.text, 13, sheetInk, fmt.Sprint(left+j.column(t.at)+7), fmt.Sprint(y+5)))
		}
	}
	for _, cut := range j.film.cuts() {
		if cut > 0 && cut < j.film.length() { // the film's cuts run through all lanes
			fmt.Fprintf(&page, ",drawbox=%d:%d:1:%d:%s@0.35:fill", left+j.column(cut), top-4, len(lanes)*laneStep-2, sheetInk)
		}
	}
	for second := time.Duration(0); second < j.film.length(); second += time.Second {
		page.WriteString("," + letters(fmt.Sprintf("%.0f s", second.Seconds()), 13, sheetDim, fmt.Sprint(left+j.column(second)), fmt.Sprint(top-20)))
	}
	about := fmt.Sprintf("%.1f s · %d×%d · %s · H.264 + AAC", j.film.length().Seconds(), width, height, rateText(rate))
	fmt.Fprintf(&g, "[p%d]null%s,%s,%s,%s,format=yuvj444p[sheet]", len(lanes), page.String(), letters("cutroom", 40, "0xffc46b", fmt.Sprint(sheetMargin), "26"),
		letters("a film rendered by the service", 17, sheetInk, "236", "30"), letters(about, 15, sheetDim, "236", "54"))
	return g.String()
}

// column is where a time lies in a lane.
func (j *judge) column(d time.Duration) int {
	return int(float64(laneWidth) * d.Seconds() / j.film.length().Seconds())
}

// lanes are the film's sound and what it is mixed from.
func (j *judge) lanes(ctx context.Context) ([]lane, error) {
	heard, err := j.decode(ctx, j.video)
	if err != nil {
		return nil, err
	}
	lanes := []lane{{name: "Clips", color: "0xff8f6b"}, {name: "Voice", color: "0xffd166"}, {name: "Background", color: "0x8a7bff"}, {name: "Music", color: "0x3fd8b4"}}
	for i := range lanes {
		lanes[i].sound = make(audio, at(j.film.length()))
	}
	index := map[string]int{"voice": 1, "background": 2, "music": 3}
	for i, cuts := 1, j.film.cuts(); i < len(cuts); i++ {
		parts, err := j.partsAt(ctx, cuts[i-1])
		if err != nil {
			return nil, err
		}
		if j.film.mutedAt(cuts[i-1]) {
			lanes[1].labels = append(lanes[1].labels, laneText{cuts[i-1], "muted"})
		}
		for _, p := range parts {
			if p.gain == 0 {
				continue
			}
			n, label := index[p.name], fmt.Sprintf("×%.2g", p.gain)
			if n == 0 {
				label = strings.Map(plainLetters, p.name) + " " + label
			}
			lanes[n].add(p, cuts[i-1], cuts[i], label)
		}
	}
	return append(lanes, lane{name: "Film", color: sheetInk, sound: heard.cut(0, j.film.length())}), nil
}

// plainLetters keeps what means nothing to ffmpeg's filters.
func plainLetters(r rune) rune {
	if strings.ContainsRune(`\':%,;[]=`, r) {
		return '_'
	}
	return r
}

// add writes a part into the lane. Equal labels that follow each other are
// written once.
func (l *lane) add(p part, a, b time.Duration, label string) {
	into := l.sound[min(at(a), len(l.sound)):]
	for i, v := range p.sound.cut(p.from, p.from+b-a) {
		if i < len(into) {
			into[i] += v * float32(p.gain)
		}
	}
	if n := len(l.labels); n == 0 || l.labels[n-1].text != label {
		l.labels = append(l.labels, laneText{a, label})
	}
}
