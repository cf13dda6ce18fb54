package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"cutroom/internal/sandbox/demo/meter"
	"cutroom/internal/sandbox/demo/picture"
	"cutroom/internal/sandbox/demo/sound"
)

// Lengths of the clips that the demonstration shoots itself.
const (
	duskLength   = 8 * time.Second
	auroraLength = 6 * time.Second
	// lead is what both clips hold before the music's first bar; it is trimmed
	// away. Half a second keeps the ticks, which stand at whole seconds, off the
	// beats of the music.
	lead = 500 * time.Millisecond
)

// Levels of the sound tracks, as root mean square. The first clip's music is
// nearly as loud as its voice, so that there is something to lift out of it.
const (
	voiceGain = 0.66 // of sound.Speak's level
	radioRMS  = 0.042
	nightRMS  = 0.045
)

// shoot draws a scene's pictures and joins them with a sound track. progress
// gets the share that is done.
func shoot(ctx context.Context, scene picture.Scene, length time.Duration, track, path string, progress func(float64)) error {
	width, height := scene.Size()
	rate := scene.Rate()
	frames := int(length.Seconds()*float64(rate) + 0.5)
	pictures, err := newReel(scene, frames, progress)
	if err != nil {
		return err
	}
	defer pictures.close()
	// The pictures are RGB; the film is tagged, and converted, as HD video.
	filter := "scale=out_color_matrix=bt709:out_range=tv"
	upright := height > width
	if upright {
		filter = "transpose=cclock," + filter // a phone stores upright film lying down
	}
	out := path
	if upright {
		out = path + ".lying.mp4"
	}
	args := []string{"-f", "rawvideo", "-pix_fmt", "rgb24", "-s", fmt.Sprintf("%dx%d", width, height), "-r", strconv.Itoa(rate), "-i", "pipe:0",
		"-i", "file:" + track, "-map", "0:v", "-map", "1:a", "-vf", filter,
		"-c:v", "libx264", "-preset", "veryfast", "-crf", "19", "-pix_fmt", "yuv420p", "-g", strconv.Itoa(rate),
		"-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv",
		"-c:a", "aac", "-b:a", "192k", "-movflags", "+faststart", "file:" + out}
	if err := ffmpeg(ctx, "shoot "+filepath.Base(path), pictures, args...); err != nil {
		return err
	}
	if !upright {
		return nil
	}
	if err := turnUpright(ctx, out, path); err != nil {
		return err
	}
	return os.Remove(out)
}

// turnUpright notes in a film that it has to be turned clockwise for display,
// without touching its pictures, as phones do. How that is asked for differs
// between versions of ffmpeg, and so does which way 90 is.
func turnUpright(ctx context.Context, lying, path string) error {
	in := []string{"-i", "file:" + lying}
	out := []string{"-map", "0", "-c", "copy", "-movflags", "+faststart", "file:" + path}
	ways := [][]string{
		slices.Concat(in, []string{"-metadata:s:v", "rotate=270"}, out),
		slices.Concat(in, []string{"-metadata:s:v", "rotate=90"}, out),
		slices.Concat([]string{"-display_rotation", "-90"}, in, out),
	}
	var errs []error
	for _, args := range ways {
		if err := ffmpeg(ctx, "turn "+filepath.Base(path), nil, args...); err != nil {
			errs = append(errs, err)
			continue
		}
		m, err := meter.Probe(ctx, path)
		if err == nil && m.Video != nil && m.Video.Turn == -90 {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, errors.New("this ffmpeg cannot mark a film as rotated"))...)
}

// reel hands the frames of a scene to ffmpeg in order while several are drawn
// at a time.
type reel struct {
	frames   []chan *picture.Canvas // by frame number
	idle     chan *picture.Canvas
	at       int
	left     []byte
	current  *picture.Canvas
	stop     chan struct{}
	progress func(float64)
}

func newReel(scene picture.Scene, frames int, progress func(float64)) (*reel, error) {
	if frames < 1 {
		return nil, errors.New("a clip of no frames")
	}
	width, height := scene.Size()
	workers := runtime.GOMAXPROCS(0)
	r := &reel{frames: make([]chan *picture.Canvas, frames), idle: make(chan *picture.Canvas, 2*workers),
		stop: make(chan struct{}), progress: progress}
	for i := range r.frames {
		r.frames[i] = make(chan *picture.Canvas, 1)
	}
	for range 2 * workers {
		r.idle <- picture.NewCanvas(width, height)
	}
	next := make(chan int)
	go func() {
		defer close(next)
		for i := range frames {
			select {
			case next <- i:
			case <-r.stop:
				return
			}
		}
	}()
	for range workers {
		go func() {
			for {
				// The canvas first: frames are handed out in order, so the one
				// that is waited for never lacks a canvas.
				var c *picture.Canvas
				select {
				case c = <-r.idle:
				case <-r.stop:
					return
				}
				i, more := <-next
				if !more {
					return
				}
				scene.Draw(c, i)
				r.frames[i] <- c
			}
		}()
	}
	return r, nil
}

// Read implements io.Reader: raw RGB, frame after frame.
func (r *reel) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		if r.current != nil {
			r.idle <- r.current
			r.current = nil
		}
		if r.at == len(r.frames) {
			return 0, io.EOF
		}
		r.current = <-r.frames[r.at]
		r.left = r.current.Pix
		r.at++
		r.progress(float64(r.at) / float64(len(r.frames)))
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// close ends the drawing early where ffmpeg gave up.
func (r *reel) close() { close(r.stop) }

// record makes the sound tracks of both clips and the song under the film.
func record(ctx context.Context, dir, speech string) error {
	var voice *sound.Wave
	var err error
	if speech == "" {
		voice, err = sound.Dialogue(ctx, sound.Script(lead), duskLength)
	} else {
		voice, err = ownSpeech(ctx, speech, duskLength)
	}
	if err != nil {
		return err
	}
	tracks := map[string]*sound.Wave{"dusk.wav": talk(voice), "aurora.wav": sound.Night(auroraLength, lead)}
	tracks["aurora.wav"].SetRMS(nightRMS)
	for name, w := range tracks {
		w.AddTicks()
		if err := w.WriteWAV(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// talk puts a voice over the clip's own music.
func talk(voice *sound.Wave) *sound.Wave {
	length := time.Duration(float64(voice.Len()) / sound.Rate * float64(time.Second))
	w := sound.Radio(length, lead)
	w.SetRMS(radioRMS)
	w.Add(voice, 0, voiceGain)
	return w
}

// compose writes the song as the m4a file that is uploaded.
func compose(ctx context.Context, dir string) (string, error) {
	wav, path := filepath.Join(dir, "music.wav"), filepath.Join(dir, "music.m4a")
	if err := sound.Song().WriteWAV(wav); err != nil {
		return "", err
	}
	err := ffmpeg(ctx, "compose music", nil, "-i", "file:"+wav, "-c:a", "aac", "-b:a", "192k", "-movflags", "+faststart", "file:"+path)
	return path, errors.Join(err, os.Remove(wav))
}

// ownSpeech reads the user's recording and puts it into the middle of the
// stereo picture.
func ownSpeech(ctx context.Context, path string, length time.Duration) (*sound.Wave, error) {
	heard, err := meter.Decode(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("--speech: %w", err)
	}
	samples := make([]float64, len(heard.L))
	for i := range samples {
		samples[i] = float64(heard.L[i]+heard.R[i]) / 2
	}
	if samples, err = sound.Level(samples); err != nil {
		return nil, fmt.Errorf("--speech: %w", err)
	}
	w := sound.NewWave(length)
	w.AddMono(samples, sound.Samples(lead), 1, 0)
	if peak := w.Peak(); peak > 0.8 {
		w.Scale(0.8 / peak)
	}
	return w, nil
}
