// Films of damaged, hostile and too large sources: which fail, with which sentence, and which still work.

package engine_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/engine"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
	"cutroom/internal/testkit/mediatest"
)

// altered makes a changed copy of a file.
func altered(t *testing.T, path string, change func([]byte) []byte) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "altered"+filepath.Ext(path))
	if err := os.WriteFile(out, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

func firstPart(share float64) func([]byte) []byte {
	return func(b []byte) []byte { return b[:int(float64(len(b))*share)] }
}

func checkSentence(t *testing.T, got, want string) {
	t.Helper()
	if !regexp.MustCompile("^" + want + "$").MatchString(got) {
		t.Errorf("the client reads %q, want %q", got, want)
	}
}

// A truncated file fails a film that needs the missing end, and works for other films.
func TestCutOffFilesFailWhereTheyAreCutOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clips := mediatest.Clips(t, mediatest.Spec{Width: 160, Height: 90, Duration: 6 * time.Second, Tone: 440, Output: []string{"-movflags", "+faststart"}},
		mediatest.Spec{Width: 160, Height: 90, Duration: 6 * time.Second, Tone: 440, Container: "mkv"},
		mediatest.Spec{Duration: 6 * time.Second, Tone: 440}, mediatest.Spec{Duration: 6 * time.Second, Tone: 440, Container: "flac"})
	for _, whole := range clips[:2] {
		t.Run(filepath.Ext(whole), func(t *testing.T) {
			t.Parallel()
			broken := altered(t, whole, firstPart(0.5))
			checkSentence(t, b.fails(t, film(cut(whole, 0, 1000), cut(broken, 0, 0))),
				`source_unreadable: segments\[1\]: the source is damaged: only [23]\.\d s of [56]\.\d s could be decoded`)
			checkSentence(t, b.fails(t, film(cut(broken, 5000, 0))), `source_unreadable: segments\[0\]: the source is damaged: it ends at [23]\.\d s of 6\.0 s, before trimStartMs`)
			out := b.render(t, film(cut(broken, 500, 1500)))
			mediatest.DurationWithin(t, out.Path, time.Second, 34*time.Millisecond)
		})
	}
	t.Run("a little", func(t *testing.T) {
		t.Parallel()
		checkSentence(t, b.fails(t, film(cut(altered(t, clips[0], firstPart(0.9)), 0, 0))),
			`source_unreadable: segments\[0\]: the source is damaged: only 5\.\d s of 6\.0 s could be decoded`)
	})
	for _, whole := range clips[2:] {
		t.Run("music"+filepath.Ext(whole), func(t *testing.T) {
			t.Parallel()
			music := altered(t, whole, firstPart(0.5))
			tl := sound(cut(music, 0, 2000))
			tl.Clips = []timeline.Clip{{SourceKey: music, Volume: 1, Speed: 1}}
			checkSentence(t, b.fails(t, tl), `source_unreadable: bgmClips\[0\]: the source is damaged: only [23]\.\d s of 6\.0 s could be decoded`)
			tl.Clips[0].SourceTrimEnd = 2 * time.Second
			b.render(t, tl)
		})
	}
	t.Run("index lost", func(t *testing.T) {
		t.Parallel()
		checkSentence(t, b.fails(t, film(cut(altered(t, mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64}), firstPart(0.6)), 0, 0))),
			`source_unreadable: segments\[0\]: the file is not a video or sound that can be opened`)
	})
}

// A file with garbage in its middle is damaged, although ffmpeg succeeds. A few wrong bits are not damage.
func TestRottenDataIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	whole := mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Duration: 6 * time.Second, Tone: 440, GOP: 15, Output: []string{"-movflags", "+faststart"}})
	rotten := altered(t, whole, func(data []byte) []byte {
		rng := rand.New(rand.NewPCG(1, 1))
		for i := len(data) * 3 / 10; i < len(data)*9/10; i++ {
			data[i] = byte(rng.Uint32())
		}
		return data
	})
	checkSentence(t, b.fails(t, film(cut(rotten, 0, 0))), `source_unreadable: segments\[0\]: (the source is damaged: only \d\.\d s of [56]\.\d s could be decoded|the (video|sound) could not be decoded)`)
	b.render(t, film(cut(rotten, 0, 800)))
	scratched := altered(t, whole, func(data []byte) []byte {
		rng := rand.New(rand.NewPCG(2, 2))
		for range 5 {
			data[len(data)/3+rng.IntN(len(data)/2)] ^= 1 << rng.IntN(8)
		}
		return data
	})
	out := b.render(t, film(cut(scratched, 0, 6000)))
	mediatest.ConstantRate(t, out.Path, 30, 180, 20*time.Microsecond)
}

// Files that are not media are refused with a sentence. The media package tests that they cannot open other files.
func TestWhatIsNoMedia(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	good := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64})
	for name, content := range map[string]string{
		"text.mp4": strings.Repeat("This is not a film. ", 100),
		"ftyp.mp4": "\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isommp41" + strings.Repeat("\x00", 5000),
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		checkSentence(t, b.fails(t, film(cut(good, 0, 0), cut(path, 0, 0))), `source_unreadable: segments\[1\]: the file is not a video or sound that can be opened`)
	}
	tl := film(cut(good, 0, 0))
	tl.Clips = []timeline.Clip{{SourceKey: good, Volume: 1, Speed: 1}}
	checkSentence(t, b.fails(t, tl), `no_media: bgmClips\[0\]: the file has no sound`)
	tl.Clips = nil
	tl.Directives = []timeline.Directive{directive(0, 500, 0, 1, good)}
	checkSentence(t, b.fails(t, tl), `no_media: separationDirectives\[0\]\.selections\[0\]: the stem has no sound`)
	tl = film(cut(mediatest.Tone(t, 440, time.Second), 0, 0))
	checkSentence(t, b.fails(t, tl), `no_media: segments\[0\]: the file has no video`)
	tl.OutputKind = timeline.Audio // an audio-only render can use it
	b.render(t, tl)
	nothing := filepath.Join(t.TempDir(), "nothing.wav")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "anullsrc", "-t", "0", nothing)
	tl = film(cut(nothing, 0, 0))
	tl.OutputKind = timeline.Audio
	checkSentence(t, b.fails(t, tl), `no_media: segments\[0\]: the source has no pictures or sound`)
}

func TestLimitsHaveNames(t *testing.T) {
	t.Parallel()
	clip := mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Duration: 2 * time.Second, Tone: 440})
	cache := newBench(t).cache // the clip is analysed once
	for want, limits := range map[string]engine.Limits{
		`source_too_large: segments\[0\]: the picture of 320x180 is larger than the accepted 50000 pixels`:                                                              {MaxPixels: 50000},
		`source_too_large: segments\[0\]: the source lasts 2\.0 s, at most 1\.0 s are accepted`:                                                                         {MaxSourceDuration: time.Second},
		`source_too_large: segments\[0\]: the file has 2 streams, at most 1 are accepted`:                                                                               {MaxStreams: 1},
		`source_too_large: segments\[0\]: the video has 60 frames, at most 59 are accepted`:                                                                             {MaxFrames: 59},
		`source_too_large: segments: the film would last 2\.0 s, at most 1\.0 s are accepted`:                                                                           {MaxOutputDuration: time.Second},
		`source_too_large: segments: the film is too much work: 60 frames of 320x180, and 60 frames of the sources to decode, are 1 gigapixels, at most 0 are accepted`: {MaxPixelFrames: 2*60*320*180 - 1},
		`source_too_large: the sound is too much work: 2\.0 s to decode and to change in tempo, at most 1\.0 s are accepted`:                                            {MaxSound: time.Second},
		`: the server has no room for this render at the moment`:                                                                                                        {MinFreeBytes: 1 << 60},
	} {
		b := newBench(t, func(c *engine.Config) { c.Limits, c.Cache = limits, cache })
		_, err := b.try(t, film(cut(clip, 0, 0)))
		f := fault.As(err)
		if f == nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		checkSentence(t, reads(f), want)
		if strings.HasPrefix(want, ": the server") != (f.Kind == fault.Unavailable) {
			t.Errorf("%s: kind %v", want, f.Kind)
		}
	}
	runner, err := media.New(media.Config{MaxPixels: 64 * 64})
	if err != nil {
		t.Fatal(err)
	}
	// So large that ffprobe refuses to open one file and reports nothing about the other.
	b := newBench(t, func(c *engine.Config) { c.Media, c.Limits.MaxPixels = runner, 64*64 })
	for name, codec := range map[string]string{"huge.mp4": "libx264", "huge.mov": "mjpeg"} {
		huge := filepath.Join(t.TempDir(), name)
		mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=s=2048x1024:r=1:d=1", "-c:v", codec, huge)
		checkSentence(t, b.fails(t, film(cut(huge, 0, 0))), `source_too_large: segments\[0\]: the picture of 2048x1024 is larger than the accepted 4096 pixels`)
	}
	b = newBench(t, func(c *engine.Config) { c.FinalTimeout = time.Millisecond })
	checkSentence(t, b.fails(t, film(cut(clip, 0, 0))), `timed_out: the render took longer than the allowed 1ms`)
}

// The header only describes the first picture. The later ones cost no more than the limit allows, and the film is
// refused because they are missing.
func TestPicturesThatGrowAreNotDecoded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	grows, small, large := filepath.Join(dir, "grows.mov"), filepath.Join(dir, "small.mjpeg"), filepath.Join(dir, "large.mjpeg")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "testsrc2=r=25:d=1:s=64x64", "-f", "lavfi", "-i", "testsrc2=r=25:d=1:s=1600x1200",
		"-map", "0", "-f", "image2pipe", "-c:v", "mjpeg", small, "-map", "1", "-f", "image2pipe", "-c:v", "mjpeg", large)
	mediatest.FFmpeg(t, "-f", "mjpeg", "-framerate", "25", "-i", "concat:"+small+"|"+large, "-c", "copy", grows)
	b := newBench(t, func(c *engine.Config) {
		runner, err := media.New(media.Config{MaxPixels: 64 * 64})
		if err != nil {
			t.Fatal(err)
		}
		c.Media, c.Limits.MaxPixels = runner, 64*64
	})
	checkSentence(t, b.fails(t, film(cut(grows, 0, 0))), `source_unreadable: segments\[0\]: .*could be decoded`)
	b.render(t, film(cut(grows, 0, 1000)))
}

// Encrypted sources, and sources with decoding errors throughout, are refused.
func TestNoiseIsNoFilm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	encrypted := mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Duration: 2 * time.Second, GOP: 60, Tone: 440, Output: []string{
		"-encryption_scheme", "cenc-aes-ctr", "-encryption_key", "76a6c65c5ea762046bd749a2e632ccbb", "-encryption_kid", "a7e61c373e219033c21091fa607bf3b8"}})
	checkSentence(t, b.fails(t, film(cut(encrypted, 0, 0))), `source_protected: segments\[0\]: the file is encrypted`)
	silent := altered(t, encrypted, func(data []byte) []byte { return bytes.ReplaceAll(data, []byte("cenc"), []byte("mine")) })
	checkSentence(t, b.fails(t, film(cut(silent, 0, 0))), `source_unreadable: segments\[0\]: (the source is damaged: .*|the (video|sound) could not be decoded)`)

	// Errors in every frame except key frames; no frame is lost.
	whole := mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Duration: 2 * time.Second, GOP: 10, Output: []string{"-movflags", "+faststart"}})
	noisy := altered(t, whole, func(data []byte) []byte {
		for i := bytes.Index(data, []byte("mdat")) + 1000; i < len(data); i += 150 {
			data[i] ^= 0x55
		}
		return data
	})
	checkSentence(t, b.fails(t, film(cut(noisy, 0, 0))), `source_unreadable: segments\[0\]: (the source is damaged: .*|the video could not be decoded)`)
}

// If the preset needs too much memory for a large picture, the encoder uses cheaper settings. If those do not fit
// either, the error states the picture's size.
func TestLargePicturesFitIntoMemory(t *testing.T) {
	t.Parallel()
	clip := mediatest.Clip(t, mediatest.Spec{Width: 1920, Height: 1080, Duration: 500 * time.Millisecond})
	tl := film(cut(clip, 0, 0))
	tl.Quality = timeline.High
	within := func(megabytes int64) *bench {
		runner, err := media.New(media.Config{MaxMemoryBytes: megabytes << 20})
		if err != nil {
			t.Fatal(err)
		}
		return newBench(t, func(c *engine.Config) { c.Media = runner })
	}
	within(400).render(t, tl)
	checkSentence(t, within(220).fails(t, tl), `source_too_large: segments\[0\]: the video has pictures of 1920x1080, which need more memory than an encoder may use`)
}
