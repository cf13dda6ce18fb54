package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/timeline"
)

// joins measures films with joins, fades at both ends, a blurred background, cropped and enlarged
// pictures against one graph that does the same with xfade, fade, gblur, crop and scale.
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
	pushed := func(s *timeline.Segment) {
		s.Transition = &timeline.Transition{Kind: timeline.Push, Direction: timeline.Left, Duration: 500 * time.Millisecond}
	}
	ends := film(6, "hard.mp4", func(*timeline.Segment) {})
	ends.FadeIn = &timeline.FilmFade{Colour: timeline.Black, Duration: time.Second}
	ends.FadeOut = ends.FadeIn
	side := int64(1080)
	enlarged := film(6, "phone0.mp4", func(*timeline.Segment) {})
	enlarged.Canvas = &timeline.Canvas{Aspect: "9:16", ShortSide: &side, Fit: timeline.Contain}
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
		plain = "fps=30000/1001,format=yuv420p,setsar=1"
		large = "fps=30000/1001,scale=1080:-2:flags=bicubic,pad=1080:1920:-1:-1,setsar=1,format=yuv420p"
		cover = "fps=30000/1001,crop=ih*9/16:ih,scale=1080:1920,setsar=1,format=yuv420p"
	)
	for _, m := range []struct {
		name, picture string
		overlap       float64
		tl            timeline.Timeline
	}{
		{"7 segments, 720p, six dissolves of 500 ms", fade, 0.5, film(7, "phone0.mp4", dissolved)},
		{"7 segments, 1080p, a keyframe in 8 s, six dissolves of 500 ms", fade, 0.5, film(7, "hard.mp4", dissolved)},
		{"7 segments, 720p, six pushes of 500 ms", fade, 0.5, film(7, "phone0.mp4", pushed)},
		{"7 segments, 1080p, a keyframe in 8 s, six pushes of 500 ms", fade, 0.5, film(7, "hard.mp4", pushed)},
		{"6 segments, 1080p, a keyframe in 8 s, both ends fading for 1 s", plain, 0, ends},
		{"6 segments of 720p enlarged to 1080x1920", large, 0, enlarged},
		{"3 segments of 1080p on blurred bars of 1080x1920", blur, 0, portrait(timeline.Blur)},
		{"3 segments of 1080p cropped to 1080x1920", cover, 0, portrait(timeline.Cover)},
	} {
		single := func() error { return b.joinedGraph(ctx, m.tl, m.picture, m.overlap) }
		if err := b.against(ctx, r, m.name, m.tl, single); err != nil {
			return err
		}
	}
	return b.changedEnd(ctx, r, film(2, "hard.mp4", func(s *timeline.Segment) {
		s.TrimStart, s.TrimEnd = 0, 44*time.Second
		if s.Order == 1 {
			s.SourceKey, s.TrimEnd = filepath.Join(b.dir, "hard-60.mp4"), 16*time.Second
		}
	}))
}

// changedEnd measures a change of the fade at the end of a film of a minute against its cold render.
func (b *bench) changedEnd(ctx context.Context, r *report, tl timeline.Timeline) error {
	tl.FadeOut = &timeline.FilmFade{Colour: timeline.Black, Duration: time.Second}
	var cold, changed usage
	for i := range b.runs {
		e, err := b.engineWith(filepath.Join(b.dir, fmt.Sprintf("end%d", i)))
		if err != nil {
			return err
		}
		for _, m := range []struct {
			length time.Duration
			best   *usage
		}{{time.Second, &cold}, {2 * time.Second, &changed}} {
			tl.FadeOut.Duration = m.length
			u, _, err := b.render(ctx, e, tl)
			if err != nil {
				return err
			}
			*m.best = m.best.better(u)
		}
	}
	r.add("cold render, a minute of 1080p that fades out", cold, usage{})
	r.add("again, fadeOut changed (ratios to the row above)", changed, cold)
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
			kind := map[timeline.TransitionKind]string{timeline.Dissolve: "fade", timeline.Push: "slideleft"}[s.Transition.Kind]
			graph = append(graph, fmt.Sprintf("[film%d][v%d]xfade=transition=%s:duration=%g:offset=%.3f[film%[2]d];"+
				"[sound%[1]d][a%[2]d]acrossfade=d=%[4]g:c1=qsin:c2=qsin[sound%[2]d]", i-1, i, kind, overlap, end-overlap))
		default:
			graph = append(graph, fmt.Sprintf("[film%d][sound%[1]d][v%d][a%[2]d]concat=n=2:v=1:a=1[film%[2]d][sound%[2]d]", i-1, i))
		}
		end += length - overlap*float64(min(i, 1))
	}
	last := len(tl.Segments) - 1
	if tl.FadeIn != nil && tl.FadeOut != nil {
		in, out := tl.FadeIn.Duration.Seconds(), tl.FadeOut.Duration.Seconds()
		graph = append(graph, fmt.Sprintf("[film%d]fade=in:d=%g,fade=out:st=%.3f:d=%g[film%[5]d];"+
			"[sound%[1]d]afade=in:d=%[2]g,afade=out:st=%[3]g:d=%[4]g[sound%[5]d]", last, in, end-out, out, last+1))
		last++
	}
	args = append(args, "-filter_complex", strings.Join(graph, ";"),
		"-map", fmt.Sprintf("[film%d]", last), "-map", fmt.Sprintf("[sound%d]", last),
		"-pix_fmt", "yuv420p", "-c:v", "libx264", "-profile:v", "high", "-preset", "fast", "-crf", "23",
		"-c:a", "aac", "-b:a", "192k", "-movflags", "+faststart", filepath.Join(b.dir, "joined.mp4"))
	return command(ctx, "ffmpeg", args...)
}
