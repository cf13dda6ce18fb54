package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cutroom/internal/film/timeline"
)

// makeSources uses the real clips if there are any. Otherwise it makes artificial ones that are about as hard to
// encode.
func (b *bench) makeSources(ctx context.Context, clips string) error {
	phone := []string{"-c:v", "libx264", "-preset", "veryfast", "-b:v", "8M", "-g", "30", "-bf", "0", "-pix_fmt", "yuv420p",
		"-c:a", "aac", "-b:a", "128k"}
	source := func(name string, args ...string) error {
		path := filepath.Join(b.dir, name)
		if _, err := os.Stat(path); err == nil {
			return nil // from an earlier run
		}
		return command(ctx, "ffmpeg", append(append([]string{"-v", "error", "-y"}, args...), path)...)
	}
	b.music = filepath.Join(clips, "music_lofi_20s.mp3")
	// The real clips last only a few seconds: play them several times, re-encoded as a phone would, with a key frame a
	// second.
	loop := func(name string) []string {
		return []string{"-stream_loop", "3", "-i", filepath.Join(clips, name), "-t", "16"}
	}
	phones := [][]string{loop("clip_720p2997.mp4"), loop("clip_480p30.mp4")}
	if _, err := os.Stat(b.music); clips == "" || err != nil {
		drawn := func(picture string) []string {
			return []string{"-f", "lavfi", "-t", "16", "-i", picture,
				"-f", "lavfi", "-t", "16", "-i", "anoisesrc=c=pink:a=0.2:r=44100"}
		}
		phones = [][]string{drawn("mandelbrot=s=1280x720:r=30:start_scale=1:end_pts=600"),
			drawn("testsrc2=s=854x480:r=30,noise=alls=6:allf=t")}
		b.music = filepath.Join(b.dir, "music.mp3")
		if err := source("music.mp3", "-f", "lavfi", "-t", "20", "-i", "sine=440:r=48000", "-c:a", "libmp3lame"); err != nil {
			return err
		}
	}
	for i, input := range phones {
		if err := source(fmt.Sprintf("phone%d.mp4", i), append(input, phone...)...); err != nil {
			return err
		}
	}
	hd := filepath.Join(b.dir, "phone0.mp4")
	if err := source("big.mp4", "-i", hd, "-t", "6", "-vf", "scale=1920:1080", "-c:v", "libx264", "-preset", "veryfast",
		"-b:v", "16M", "-g", "30", "-bf", "0", "-c:a", "aac"); err != nil {
		return err
	}
	// Sources that are expensive to decode: 1080p of 19 Mbit/s with a key frame every eight seconds. One is a portrait
	// and one has twice the frame rate.
	for _, s := range []struct{ name, filter, seconds string }{
		{"hard.mp4", "scale=1920:1080", "45"},
		{"hard-portrait.mp4", "scale=1920:1080,transpose=clock", "16"},
		{"hard-60.mp4", "scale=1920:1080,fps=60000/1001", "16"},
	} {
		if err := source(s.name, "-stream_loop", "2", "-i", hd, "-t", s.seconds, "-vf", s.filter+",noise=alls=4:allf=t",
			"-c:v", "libx264", "-preset", "ultrafast", "-b:v", "19M", "-maxrate", "19M", "-bufsize", "19M", "-g", "240",
			"-keyint_min", "240", "-sc_threshold", "0", "-c:a", "aac"); err != nil {
			return err
		}
	}
	return nil
}

// graph does the whole job in one ffmpeg command with one filter graph: every segment decoded, fitted and joined, the
// music mixed under, everything encoded once with the same settings.
type graph struct {
	picture string  // filters of each picture; %d is the segment's number
	sound   string  // filters of each sound, each with its comma
	overlap float64 // of segments, in seconds
}

// steady fits the pictures of a source of the film's size.
const steady = "fps=30000/1001,format=yuv420p,setsar=1"

var (
	overlapping = graph{picture: "fps=30000/1001,format=yuv420p,setsar=1,settb=1001/30000,setpts=N", overlap: 0.5}
	enlarged    = graph{picture: "fps=30000/1001,scale=1080:-2:flags=bicubic,pad=1080:1920:-1:-1,setsar=1,format=yuv420p"}
	cropped     = graph{picture: "fps=30000/1001,crop=ih*9/16:ih,scale=1080:1920,setsar=1,format=yuv420p"}
	zoomed      = graph{picture: "fps=30000/1001,format=yuv420p,setsar=1,perspective=interpolation=cubic:eval=frame:" +
		"x0='W/2-W/2/pow(1.2,on/150)':y0='H/2-H/2/pow(1.2,on/150)':x1='W/2+W/2/pow(1.2,on/150)':y1='H/2-H/2/pow(1.2,on/150)':" +
		"x2='W/2-W/2/pow(1.2,on/150)':y2='H/2+H/2/pow(1.2,on/150)':x3='W/2+W/2/pow(1.2,on/150)':y3='H/2+H/2/pow(1.2,on/150)'," +
		"lutyuv=y='clip(16+1.18*(val-16)-11,16,235)':u='clip(1.07*val-13,16,240)':v='clip(1.07*val-5,16,240)'"}
	blurred = graph{picture: "fps=30000/1001,split[f%d][b%[1]d];" +
		"[b%[1]d]crop=ih*9/16:ih,scale=68:120:flags=area,gblur=sigma=4,scale=1080:1920[c%[1]d];" +
		"[f%[1]d]scale=1080:-2[p%[1]d];[c%[1]d][p%[1]d]overlay=0:(H-h)/2,setsar=1,format=yuv420p"}
)

// fitted fits the pictures between bars.
func fitted(width, height int) graph {
	return graph{picture: fmt.Sprintf("fps=30000/1001,scale=%d:%d:force_original_aspect_ratio=decrease,"+
		"pad=%[1]d:%[2]d:-1:-1,setsar=1,format=yuv420p", width, height)}
}

func (g graph) make(ctx context.Context, tl timeline.Timeline, out string) error {
	args := []string{"-nostdin", "-v", "error", "-y"}
	var chains []string
	var all strings.Builder // the segments' labels
	picture, sound, end := "[v0]", "[a0]", 0.0
	for i, s := range tl.Segments {
		length := (s.TrimEnd - s.TrimStart).Seconds()
		args = append(args, "-ss", fmt.Sprintf("%.3f", s.TrimStart.Seconds()), "-t", fmt.Sprintf("%.3f", length), "-i", s.SourceKey)
		filters := g.picture
		if strings.Contains(filters, "%") {
			filters = fmt.Sprintf(filters, i)
		}
		chains = append(chains, fmt.Sprintf("[%d:v]%s[v%[1]d];[%[1]d:a]%[3]saresample=48000,aformat=channel_layouts=stereo[a%[1]d]",
			i, filters, g.sound))
		fmt.Fprintf(&all, "[v%d][a%[1]d]", i)
		if g.overlap > 0 && i > 0 {
			kind := map[timeline.TransitionKind]string{timeline.Dissolve: "fade", timeline.Push: "slideleft"}[s.Transition.Kind]
			end -= g.overlap
			chains = append(chains,
				fmt.Sprintf("%s[v%d]xfade=transition=%s:duration=%g:offset=%.3f[film%[2]d]", picture, i, kind, g.overlap, end),
				fmt.Sprintf("%s[a%d]acrossfade=d=%g:c1=qsin:c2=qsin[sound%[2]d]", sound, i, g.overlap))
			picture, sound = fmt.Sprintf("[film%d]", i), fmt.Sprintf("[sound%d]", i)
		}
		end += length
	}
	n := len(tl.Segments)
	if g.overlap == 0 {
		chains = append(chains, fmt.Sprintf("%sconcat=n=%d:v=1:a=1[film][voice]", all.String(), n))
		picture, sound = "[film]", "[voice]"
	}
	if tl.FadeIn != nil {
		in, out := tl.FadeIn.Duration.Seconds(), tl.FadeOut.Duration.Seconds()
		chains = append(chains, fmt.Sprintf("%sfade=in:d=%g,fade=out:st=%.3f:d=%g[faded];%safade=in:d=%[2]g,afade=out:st=%[3]g:d=%[4]g[quiet]",
			picture, in, end-out, out, sound))
		picture, sound = "[faded]", "[quiet]"
	}
	if len(tl.Clips) > 0 {
		c := tl.Clips[0]
		args = append(args, "-i", c.SourceKey)
		chains = append(chains, fmt.Sprintf("[%d:a]aresample=48000,aformat=channel_layouts=stereo,volume=%g[music];"+
			"%s[music]amix=inputs=2:duration=first:normalize=0,alimiter=level=0:latency=1[mix]", n, c.Volume, sound))
		sound = "[mix]"
	}
	args = append(args, "-filter_complex", strings.Join(chains, ";"), "-map", picture, "-map", sound,
		"-c:v", "libx264", "-profile:v", "high", "-preset", "fast", "-crf", "23", "-pix_fmt", "yuv420p",
		"-c:a", "aac", "-b:a", "192k", "-movflags", "+faststart", out)
	return command(ctx, "ffmpeg", args...)
}
