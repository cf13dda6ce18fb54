package sound

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"time"
)

// Line is one sentence of a dialogue.
type Line struct {
	At    time.Duration // when it starts
	Voice Voice
	Text  string
}

// Voice is somebody who speaks.
type Voice struct {
	Name  string // espeak-ng's voice and variant
	Pitch int    // 0..99
	Words int    // words a minute
}

// The two people of the dialogue.
var (
	Uma = Voice{Name: "en-us+f3", Pitch: 70, Words: 168}
	Ben = Voice{Name: "en-us", Pitch: 30, Words: 164}
)

// Speak says a sentence. The sound is mono, with a root mean square of 0.1
// while it speaks, and begins with the first sound. It needs espeak-ng and
// ffmpeg.
func Speak(ctx context.Context, v Voice, text string) ([]float64, error) {
	speech := exec.CommandContext(ctx, "espeak-ng", "-v", v.Name, "-p", strconv.Itoa(v.Pitch), "-s", strconv.Itoa(v.Words), "--stdout", "--", text)
	var wav, complaint bytes.Buffer
	speech.Stdout, speech.Stderr = &wav, &complaint
	if err := speech.Run(); err != nil {
		return nil, fmt.Errorf("speak with espeak-ng: %w: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	// The voice loses its boom and its hiss: it should sit in front of music.
	samples, err := decode(ctx, &wav, "highpass=f=95,equalizer=f=2800:t=q:w=1.1:g=2.5,lowpass=f=6800")
	if err != nil {
		return nil, err
	}
	return Level(trimSilence(samples))
}

// decode turns any sound on stdin into mono samples.
func decode(ctx context.Context, in *bytes.Buffer, filter string) ([]float64, error) {
	cmd := exec.CommandContext(ctx, "ffmpeg", "-hide_banner", "-loglevel", "error", "-i", "pipe:0",
		"-af", filter, "-ac", "1", "-ar", strconv.Itoa(Rate), "-f", "f32le", "pipe:1")
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("decode speech: %w: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	raw := out.Bytes()
	samples := make([]float64, len(raw)/4)
	for i := range samples {
		samples[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	return samples, nil
}

// trimSilence cuts what is quieter than 46 dB below the peak off both ends.
func trimSilence(samples []float64) []float64 {
	var peak float64
	for _, v := range samples {
		peak = max(peak, math.Abs(v))
	}
	from, to := 0, len(samples)
	for from < to && math.Abs(samples[from]) <= peak/200 {
		from++
	}
	for to > from && math.Abs(samples[to-1]) <= peak/200 {
		to--
	}
	return samples[from:to]
}

// Level scales speech in place to a root mean square of 0.1 over the stretches
// in which somebody speaks. Silence is an error.
func Level(samples []float64) ([]float64, error) {
	const want = 0.1
	const block = Rate / 50
	var sum float64
	var count int
	for at := 0; at+block <= len(samples); at += block {
		var power float64
		for _, v := range samples[at : at+block] {
			power += v * v
		}
		if power/block > 1e-5 {
			sum, count = sum+power, count+block
		}
	}
	if count == 0 {
		return nil, errors.New("nobody speaks in it")
	}
	gain := want / math.Sqrt(sum/float64(count))
	for i := range samples {
		samples[i] *= gain
	}
	return samples, nil
}

// Script is the dialogue. Every line belongs to a bar of the film and says what
// is done to the sound there; lead is where the first bar begins.
func Script(lead time.Duration) []Line {
	return []Line{
		{lead + 150*time.Millisecond, Uma, "Can you hear me, over all this music?"},
		{lead + Bar + 100*time.Millisecond, Ben, "Now I can: it was turned down."},
		{lead + 2*Bar + 60*time.Millisecond, Uma, "And back?"},
		{lead + 2*Bar + 1020*time.Millisecond, Ben, "Exactly as it was."},
	}
}

// Dialogue speaks a script in the middle of the stereo picture. Lines that run
// past d are cut.
func Dialogue(ctx context.Context, script []Line, d time.Duration) (*Wave, error) {
	w := NewWave(d)
	for _, l := range script {
		samples, err := Speak(ctx, l.Voice, l.Text)
		if err != nil {
			return nil, err
		}
		w.AddMono(samples, Samples(l.At), 1, 0)
	}
	return w, nil
}
