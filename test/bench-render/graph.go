package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"cutroom/internal/timeline"
)

// makeSources uses the real clips if there are any. Otherwise it makes artificial ones
// that are about as hard to encode.
func (b *bench) makeSources(ctx context.Context, clips string) error {
	seg := func(path string, from, to int) timeline.Segment {
		return timeline.Segment{
			SourceKey: path, Order: int64(len(b.segments)), Duration: time.Hour, Volume: 1, Speed: 1,
			TrimStart: time.Duration(from) * time.Millisecond, TrimEnd: time.Duration(to) * time.Millisecond,
		}
	}
	real := func(name string) string { return filepath.Join(clips, name) }
	if _, err := os.Stat(real("clip_720p2997.mp4")); clips != "" && err == nil {
		// Only a few seconds each: a phone clip of 12 s is made by playing them
		// several times, re-encoded as a phone would, with a keyframe a second.
		for i, name := range []string{"clip_720p2997.mp4", "clip_480p30.mp4"} {
			path := filepath.Join(b.dir, fmt.Sprintf("phone%d.mp4", i))
			if err := once(ctx, path, "ffmpeg", "-v", "error", "-y", "-stream_loop", "3", "-i", real(name), "-t", "16",
				"-c:v", "libx264", "-preset", "veryfast", "-b:v", "8M", "-g", "30", "-bf", "0", "-pix_fmt", "yuv420p",
				"-c:a", "aac", "-b:a", "128k", path); err != nil {
				return err
			}
		}
		b.music = real("music_lofi_20s.mp3")
	} else {
		for i, source := range []string{"mandelbrot=s=1280x720:r=30:start_scale=1:end_pts=600", "testsrc2=s=854x480:r=30,noise=alls=6:allf=t"} {
			path := filepath.Join(b.dir, fmt.Sprintf("phone%d.mp4", i))
			if err := once(ctx, path, "ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-t", "16", "-i", source, "-f", "lavfi",
				"-t", "16", "-i", "anoisesrc=c=pink:a=0.2:r=44100",
				"-c:v", "libx264", "-preset", "veryfast", "-b:v", "8M", "-g", "30", "-bf", "0", "-pix_fmt", "yuv420p",
				"-c:a", "aac", "-b:a", "128k", path); err != nil {
				return err
			}
		}
		b.music = filepath.Join(b.dir, "music.mp3")
		if err := once(ctx, b.music, "ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-t", "20", "-i", "sine=440:r=48000",
			"-c:a", "libmp3lame", b.music); err != nil {
			return err
		}
	}
	hd, sd := filepath.Join(b.dir, "phone0.mp4"), filepath.Join(b.dir, "phone1.mp4")
	for _, s := range [][3]any{{hd, 500, 5500}, {sd, 1000, 6000}, {hd, 7000, 12000}, {sd, 7300, 12300}, {hd, 2000, 7000}, {hd, 9000, 14000}} {
		b.segments = append(b.segments, seg(s[0].(string), s[1].(int), s[2].(int)))
	}
	b.big = filepath.Join(b.dir, "big.mp4")
	if err := once(ctx, b.big, "ffmpeg", "-v", "error", "-y", "-i", hd, "-t", "6", "-vf", "scale=1920:1080",
		"-c:v", "libx264", "-preset", "veryfast",
		"-b:v", "16M", "-g", "30", "-bf", "0", "-c:a", "aac", b.big); err != nil {
		return err
	}
	return b.makeHardSources(ctx, hd)
}

// makeHardSources makes sources that are expensive to decode: 1080p of 19 Mbit/s with
// a key frame every eight seconds. One is a portrait and one has twice the frame rate.
func (b *bench) makeHardSources(ctx context.Context, hd string) error {
	for _, s := range []struct{ name, filter, seconds string }{
		{"hard.mp4", "scale=1920:1080", "45"},
		{"hard-portrait.mp4", "scale=1920:1080,transpose=clock", "16"},
		{"hard-60.mp4", "scale=1920:1080,fps=60000/1001", "16"},
	} {
		path := filepath.Join(b.dir, s.name)
		if err := once(ctx, path, "ffmpeg", "-v", "error", "-y", "-stream_loop", "2", "-i", hd, "-t", s.seconds, "-vf",
			s.filter+",noise=alls=4:allf=t",
			"-c:v", "libx264", "-preset", "ultrafast", "-b:v", "19M", "-maxrate", "19M", "-bufsize", "19M", "-g", "240",
			"-keyint_min", "240", "-sc_threshold", "0",
			"-c:a", "aac", path); err != nil {
			return err
		}
	}
	return nil
}

// once runs the command that makes path, unless path is there.
func once(ctx context.Context, path, name string, args ...string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return command(ctx, name, args...)
}

// singleGraph does the whole job in one ffmpeg command with one filter graph:
// every segment decoded, fitted and joined, the music mixed under, everything
// encoded once with the same settings.
func (b *bench) singleGraph(ctx context.Context, tl timeline.Timeline, out string) error {
	args := []string{"-nostdin", "-v", "error", "-y"}
	var graph, joined strings.Builder
	width, height := 1920, 1080
	if strings.HasPrefix(filepath.Base(tl.Segments[0].SourceKey), "phone") {
		width, height = 1280, 720
	}
	for i, s := range tl.Segments {
		args = append(args, "-ss", fmt.Sprintf("%.3f", s.TrimStart.Seconds()), "-t",
			fmt.Sprintf("%.3f", (s.TrimEnd-s.TrimStart).Seconds()), "-i", s.SourceKey)
		fmt.Fprintf(&graph,
			"[%d:v]fps=30000/1001,scale=%d:%d:force_original_aspect_ratio=decrease,pad=%d:%d:-1:-1,setsar=1,format=yuv420p[v%d];", i, width, height, width, height, i)
		fmt.Fprintf(&graph, "[%d:a]aresample=48000,aformat=channel_layouts=stereo[a%d];", i, i)
		fmt.Fprintf(&joined, "[v%d][a%d]", i, i)
	}
	n := len(tl.Segments)
	fmt.Fprintf(&graph, "%sconcat=n=%d:v=1:a=1[v][voice]", joined.String(), n)
	sound := "[voice]"
	if len(tl.Clips) > 0 {
		c := tl.Clips[0]
		args = append(args, "-i", c.SourceKey)
		fmt.Fprintf(&graph,
			";[%d:a]aresample=48000,aformat=channel_layouts=stereo,volume=%g[music];[voice][music]amix=inputs=2:duration=first:normalize=0,alimiter=level=0:latency=1[sound]", n, c.Volume)
		sound = "[sound]"
	}
	args = append(args, "-filter_complex", graph.String(), "-map", "[v]", "-map", sound,
		"-c:v", "libx264", "-profile:v", "high", "-preset", "fast", "-crf", "23", "-c:a", "aac", "-b:a", "192k", "-movflags", "+faststart", out)
	return command(ctx, "ffmpeg", args...)
}

var hashes sync.Map

// hashOnce returns the SHA-256 of a file, computed once.
func hashOnce(path string) (string, error) {
	if sum, ok := hashes.Load(path); ok {
		return sum.(string), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	hashes.Store(path, sum)
	return sum, nil
}
