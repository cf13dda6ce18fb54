package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/timeline"
)

// joins measures films with dissolves, with a blurred background and with cropped
// pictures against one graph that does the same with xfade, gblur and crop.
func (b *bench) joins(ctx context.Context, r *report) error {
	film := func(n int, source string, change func(*timeline.Segment)) timeline.Timeline {
		tl := timeline.Timeline{OutputKind: timeline.Video, Quality: timeline.Medium}
		for i := range n {
			from := time.Duration(i*1370+300) * time.Millisecond
			s := timeline.Segment{
				SourceKey: filepath.Join(b.dir, source), Order: int64(i), Duration: time.Minute,
				TrimStart: from, TrimEnd: from + 5*time.Second, Volume: 1, Speed: 1,
			}
			change(&s)
			tl.Segments = append(tl.Segments, s)
		}
		return tl
	}
	dissolved := func(s *timeline.Segment) {
		s.Transition = &timeline.Transition{Kind: timeline.Dissolve, Duration: 500 * time.Millisecond}
	}
	portrait := func(fit timeline.Fit) timeline.Timeline {
		tl := film(3, "hard.mp4", func(*timeline.Segment) {})
		tl.Canvas = &timeline.Canvas{Aspect: "9:16", Fit: fit}
		return tl
	}
	const (
		fade = "fps=30000/1001,format=yuv420p,setsar=1,settb=1001/30000,setpts=N"
		blur = "fps=30000/1001,split[f%d][b%[1]d];" +
			"[b%[1]d]crop=ih*9/16:ih,scale=68:120:flags=area,gblur=sigma=4,scale=1080:1920[c%[1]d];" +
			"[f%[1]d]scale=1080:-2[p%[1]d];[c%[1]d][p%[1]d]overlay=0:(H-h)/2,setsar=1,format=yuv420p"
		cover = "fps=30000/1001,crop=ih*9/16:ih,scale=1080:1920,setsar=1,format=yuv420p"
	)
	for _, m := range []struct {
		name, picture string
		overlap       float64
		tl            timeline.Timeline
	}{
		{"7 segments, 720p, six dissolves of 500 ms", fade, 0.5, film(7, "phone0.mp4", dissolved)},
		{"7 segments, 1080p, a keyframe in 8 s, six dissolves of 500 ms", fade, 0.5, film(7, "hard.mp4", dissolved)},
		{"3 segments of 1080p on blurred bars of 1080x1920", blur, 0, portrait(timeline.Blur)},
		{"3 segments of 1080p cropped to 1080x1920", cover, 0, portrait(timeline.Cover)},
	} {
		single := func() error { return b.joinedGraph(ctx, m.tl, m.picture, m.overlap) }
		if err := b.against(ctx, r, m.name, m.tl, single); err != nil {
			return err
		}
	}
	return nil
}

// joinedGraph is singleGraph for films that overlap, in seconds, or are fitted.
func (b *bench) joinedGraph(ctx context.Context, tl timeline.Timeline, picture string, overlap float64) error {
	args := []string{"-nostdin", "-v", "error", "-y"}
	var graph []string
	end := 0.0
	for i, s := range tl.Segments {
		length := (s.TrimEnd - s.TrimStart).Seconds()
		args = append(args, "-ss", fmt.Sprintf("%.3f", s.TrimStart.Seconds()), "-t", fmt.Sprintf("%.3f", length), "-i", s.SourceKey)
		chain := picture
		if strings.Contains(chain, "%") {
			chain = fmt.Sprintf(chain, i)
		}
		graph = append(graph, fmt.Sprintf("[%d:v]%s[v%[1]d];[%[1]d:a]aresample=48000,aformat=channel_layouts=stereo[a%[1]d]", i, chain))
		switch {
		case i == 0:
			graph = append(graph, "[v0]null[film0];[a0]anull[sound0]")
		case overlap > 0:
			graph = append(graph, fmt.Sprintf("[film%d][v%d]xfade=duration=%g:offset=%.3f[film%[2]d];"+
				"[sound%[1]d][a%[2]d]acrossfade=d=%[3]g:c1=qsin:c2=qsin[sound%[2]d]", i-1, i, overlap, end-overlap))
		default:
			graph = append(graph, fmt.Sprintf("[film%d][sound%[1]d][v%d][a%[2]d]concat=n=2:v=1:a=1[film%[2]d][sound%[2]d]", i-1, i))
		}
		end += length - overlap*float64(min(i, 1))
	}
	last := len(tl.Segments) - 1
	args = append(args, "-filter_complex", strings.Join(graph, ";"),
		"-map", fmt.Sprintf("[film%d]", last), "-map", fmt.Sprintf("[sound%d]", last),
		"-pix_fmt", "yuv420p", "-c:v", "libx264", "-profile:v", "high", "-preset", "fast", "-crf", "23",
		"-c:a", "aac", "-b:a", "192k", "-movflags", "+faststart", filepath.Join(b.dir, "joined.mp4"))
	return command(ctx, "ffmpeg", args...)
}
