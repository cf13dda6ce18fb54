package engine

import (
	"cmp"
	"fmt"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/disk"
)

// Limits bounds the cost of one render. The error names the limit that was exceeded.
type Limits struct {
	MaxPixels         int64         // width x height of a source's video
	MaxSourceDuration time.Duration // of a source, as measured
	MaxStreams        int           // in one source
	MaxFrames         int64         // video frames of one source
	MaxOutputDuration time.Duration // of the timeline
	MaxPixelFrames    int64         // see Plan.work
	MaxSound          time.Duration // decoded and stretched; a mix may add up mixedSounds times as much
	MinFreeBytes      int64         // left on the disk of Job.Dir at all times
}

// maxSide is the longest side of a picture that the H.264 encoder accepts.
const maxSide = 16384

// withDefaults replaces zero fields by defaults that are generous for phones.
func (l Limits) withDefaults() Limits {
	l.MaxPixels = cmp.Or(l.MaxPixels, 8192*4320)
	l.MaxSourceDuration = cmp.Or(l.MaxSourceDuration, 4*time.Hour)
	l.MaxStreams = cmp.Or(l.MaxStreams, 32)
	const maxFrames = 1_000_000 // the packet scan keeps no more
	l.MaxFrames = min(cmp.Or(l.MaxFrames, maxFrames), maxFrames)
	l.MaxOutputDuration = cmp.Or(l.MaxOutputDuration, 3*time.Hour)
	l.MaxPixelFrames = cmp.Or(l.MaxPixelFrames, 1344e9) // three hours of 1920x1080 at 30 a second, decoded and encoded
	l.MaxSound = cmp.Or(l.MaxSound, 24*time.Hour)
	l.MinFreeBytes = cmp.Or(l.MinFreeBytes, disk.Reserve)
	return l
}

// check applies the limits to an analysed source. user is the first field that uses it.
func (l Limits) check(info *Info, user string) error {
	switch v := info.Video; {
	case info.Streams > l.MaxStreams:
		return fault.Failedf(fault.SourceTooLarge, "%s: the file has %d streams, at most %d are accepted", user, info.Streams, l.MaxStreams)
	case info.Duration() > l.MaxSourceDuration:
		return fault.Failedf(fault.SourceTooLarge, "%s: the source lasts %s, at most %s are accepted",
			user, seconds(info.Duration()), seconds(l.MaxSourceDuration))
	case v != nil && v.pixels() > l.MaxPixels:
		return l.tooManyPixels(user, v.Width, v.Height)
	case v != nil && (int64(v.DisplayWidth)*int64(v.DisplayHeight) > l.MaxPixels || max(v.DisplayWidth, v.DisplayHeight) > maxSide):
		return fault.Failedf(fault.SourceTooLarge, "%s: the picture as displayed, %dx%d, is larger than the accepted %d pixels or %d on a side",
			user, v.DisplayWidth, v.DisplayHeight, l.MaxPixels, maxSide)
	case v != nil && v.Packets > l.MaxFrames:
		return fault.Failedf(fault.SourceTooLarge, "%s: the video has %d frames, at most %d are accepted", user, v.Packets, l.MaxFrames)
	}
	return nil
}

func (l Limits) tooManyPixels(user string, width, height int) *fault.Error {
	return fault.Failedf(fault.SourceTooLarge, "%s: the picture of %dx%d is larger than the accepted %d pixels",
		user, width, height, l.MaxPixels)
}

// checkCanvas applies the limits to a canvas, whose aspect may make it larger than every source. requested may be
// nil.
func (l Limits) checkCanvas(c Canvas, requested *timeline.Canvas) error {
	if c.pixels() <= l.MaxPixels && max(c.Width, c.Height) <= maxSide {
		return nil
	}
	remedy := "set canvas.maxSide"
	if requested != nil && requested.ShortSide != nil {
		remedy = "lower canvas.shortSide"
	}
	return fault.Failedf(fault.SourceTooLarge,
		"canvas: the film's picture of %dx%d is larger than the accepted %d pixels or %d on a side; %s",
		c.Width, c.Height, l.MaxPixels, maxSide, remedy)
}

// checkWork limits the cost of a planned film: a small file with two pictures hours apart could take a day to render.
func (l Limits) checkWork(p *Plan) error {
	const giga = 1_000_000_000
	work, drawn, decoded := p.work()
	if work <= l.MaxPixelFrames {
		return nil
	}
	return fault.Failedf(fault.SourceTooLarge, "segments: the film is too much work: %d frames of %dx%d, "+
		"and %d frames of the sources to decode, are %d gigapixels, at most %d are accepted",
		drawn, p.Canvas.Width, p.Canvas.Height, decoded, (work+giga-1)/giga, l.MaxPixelFrames/giga)
}

// mixedSounds is how many times Limits.MaxSound a mix may add up in total. By default that is 384 hours: the longest
// film with 64 clips and 16 stems. It is affordable because one core mixes an hour of one sound in less than a second.
const mixedSounds = 16

// checkSound limits the sound that a planned film needs, before any of it is decoded.
func (l Limits) checkSound(p *Plan) error {
	var decoded, mixed int64
	for _, s := range p.Audio {
		decoded += s.To - s.From
	}
	for _, s := range p.Stretches {
		decoded += s.Length
	}
	for _, r := range p.Regions {
		mixed += r.End - r.Start
	}
	check := func(samples int64, work string, limit time.Duration) error {
		if samples <= samplesOf(limit) {
			return nil
		}
		return fault.Failedf(fault.SourceTooLarge, "the sound is too much work: %s to %s, at most %s are accepted",
			seconds(samplesDuration(samples)), work, seconds(limit))
	}
	if err := check(decoded, "decode and to change in tempo", l.MaxSound); err != nil {
		return err
	}
	return check(mixed, "mix", mixedSounds*l.MaxSound)
}

// ErrNoSpace ends a render when the disk fills up. Another machine, or the same one later, may have room.
var ErrNoSpace = fault.Sentencef(fault.Unavailable, "the server has no room for this render at the moment")

// noSpace turns a failure caused by a full disk into ErrNoSpace.
func noSpace(err error) error {
	if disk.IsFull(err) {
		return ErrNoSpace.WithCause(err)
	}
	return err
}

// seconds prints a duration for people: "5.0 s".
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
