package media

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/film/media/confine"
)

// Report is the result of Check.
type Report struct {
	FFmpeg      string          // first line of -version
	Missing     []string        // "encoder libx264", "filter zscale", ...; empty when nothing is missing
	Confinement []confine.Layer // every layer and whether it is in force
}

// needs lists what renders and separations use, each kind with the option that makes ffmpeg list it.
var needs = []struct {
	kind, flag string
	names      []string
}{
	{"encoder", "-encoders", []string{"libx264", "mjpeg", "wrapped_avframe", "aac", "flac", "pcm_s16le", "pcm_f32le"}},
	{"decoder", "-decoders", []string{
		"h264", "hevc", "vp8", "vp9", "libvpx", "libvpx-vp9", "libdav1d", "mpeg4", "h263", "mjpeg", "prores",
		"aac", "mp3", "mp3float", "opus", "vorbis", "flac", "alac", "amrnb", "amrwb",
		"pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_u8", "pcm_alaw", "pcm_mulaw",
	}},
	{"demuxer", "-demuxers", []string{"mov", "matroska", "wav", "mp3", "aac", "flac", "ogg", "concat", "f32le"}},
	{"muxer", "-muxers", []string{"mp4", "ipod", "flac", "mjpeg", "f32le", "s16le", "mkvtimestamp_v2"}},
	{"filter", "-filters", []string{
		"crop", "trim", "split", "bwdif", "scale", "colorspace", "zscale", "tonemap", "format", "transpose", "hflip", "vflip", "pad", "setsar",
		"settb", "tpad", "setpts", "fps", "sidedata", "setparams", "premultiply", "alphaextract", "alphamerge", "overlay",
		"reverse", "perspective", "extractplanes", "mergeplanes", "lutyuv", "hstack", "vstack", "fillborders", "gblur",
		"color", "geq", "drawbox", "maskedmerge",
		"asetpts", "asplit", "pan", "channelmap", "aformat", "aresample", "atrim", "amix",
	}},
}

// Check reports whether both binaries start when confined, which codecs, containers and filters they lack, and
// which layers of confinement this kernel grants. An error means that a binary does not run at all.
func (r *Runner) Check(ctx context.Context) (Report, error) {
	ffmpeg, ffmpegErr := r.version(ctx, r.ffmpeg)
	_, ffprobeErr := r.version(ctx, r.ffprobe)
	if err := errors.Join(ffmpegErr, ffprobeErr); err != nil {
		return Report{}, err
	}
	rep := Report{FFmpeg: ffmpeg, Confinement: r.report}
	for _, need := range needs {
		list, err := r.printed(ctx, r.ffmpeg, "-hide_banner", need.flag)
		if err != nil {
			return rep, fmt.Errorf("ffmpeg %s: %w", need.flag, err)
		}
		have := listed(list)
		for _, name := range need.names {
			if !have[name] {
				rep.Missing = append(rep.Missing, need.kind+" "+name)
			}
		}
	}
	return rep, nil
}

// worksFor is how long a successful run counts as proof that ffmpeg starts.
const worksFor = 5 * time.Second

// Works returns nil if ffmpeg starts in its confinement, else the reason. It starts ffmpeg unless the last run
// succeeded recently.
func (r *Runner) Works(ctx context.Context) error {
	if last := r.succeeded.Load(); last != nil && time.Since(*last) < worksFor {
		return nil
	}
	_, err := r.version(ctx, r.ffmpeg)
	return err
}

// Confinement returns which layers around ffmpeg are in force.
func (r *Runner) Confinement(ctx context.Context) ([]confine.Layer, error) {
	_, report, err := r.confinement(ctx)
	return report, err
}

// Version returns ffmpeg's version, such as 5.1.9-0+deb12u1.
func (r *Runner) Version(ctx context.Context) (string, error) {
	_, _, err := r.confinement(ctx)
	return r.release, err
}

// printed returns what a binary prints to standard output.
func (r *Runner) printed(ctx context.Context, binary string, args ...string) (string, error) {
	var b strings.Builder
	_, err := r.run(ctx, binary, Pass{Name: args[len(args)-1], Args: args, Stdout: &b, Timeout: probeTimeout})
	return b.String(), err
}

// version returns the first line of `<binary> -version`.
func (r *Runner) version(ctx context.Context, binary string) (string, error) {
	text, err := r.printed(ctx, binary, "-version")
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(binary), err)
	}
	line, _, _ := strings.Cut(text, "\n")
	return line, nil
}

// listed returns the names in the second column of one of ffmpeg's lists. Several names of one demuxer are separated by
// commas.
func listed(list string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) >= 2 {
			for name := range strings.SplitSeq(fields[1], ",") {
				names[name] = true
			}
		}
	}
	return names
}
