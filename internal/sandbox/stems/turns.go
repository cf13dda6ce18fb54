package stems

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"slices"
)

// turn is a range in which one speaker is audible, in sample frames.
type turn struct {
	from, to int64
	fade     int64 // at either end; 0: none
	speaker  int
}

// share is the voice's gain at a position relative to the turn's end.
func (t turn) share(pos int64) float64 {
	inside := min(pos-t.from+1, t.to-pos)
	if inside > t.fade {
		return 1
	}
	return max(float64(inside), 0) / float64(t.fade)
}

// equalTurns gives each of n speakers an equal part of the time.
func equalTurns(frames int64, n int) []turn {
	turns := make([]turn, n)
	for i := range turns {
		turns[i] = turn{from: frames * int64(i) / int64(n), to: frames * int64(i+1) / int64(n), speaker: i}
	}
	return turns
}

// The voice is analysed in mono, in steps of 10 ms.
const (
	listenRate = 8000
	listenStep = listenRate / 100
	stepFrames = SampleRate / 100
)

// listen finds the turns in a mono track of the voice. n speakers take turns. For SpeakersFound it distinguishes a deep
// and a high voice and returns their number.
func listen(path string, n int) ([]turn, int, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	voice := make([]int16, len(raw)/2)
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, voice); err != nil {
		return nil, 0, err
	}
	turns := findTurns(voice)
	numbers := map[bool]int{} // of the speakers, by whether the voice is high
	for i := range turns {
		t := &turns[i]
		if n > 0 {
			t.speaker = i % n
		} else if n == SpeakersFound {
			high := isHigh(voice[t.from*listenStep/stepFrames : min(t.to*listenStep/stepFrames, int64(len(voice)))])
			if _, known := numbers[high]; !known {
				numbers[high] = len(numbers)
			}
			t.speaker = numbers[high]
		}
	}
	if n == SpeakersFound {
		n = max(len(numbers), 1)
	}
	return turns, n, nil
}

// findTurns finds the ranges between pauses, each with a small margin.
func findTurns(voice []int16) []turn {
	const pause, around = 12 * stepFrames, 6 * stepFrames
	var levels []float64
	for step := range slices.Chunk(voice, listenStep) {
		var power float64
		for _, v := range step {
			power += float64(v) * float64(v)
		}
		levels = append(levels, math.Sqrt(power/listenStep))
	}
	if len(levels) == 0 {
		return nil
	}
	// The threshold for speech is one third of the way from the quiet to the loud moments, in dB.
	sorted := slices.Sorted(slices.Values(levels))
	loud, quiet := sorted[len(sorted)*95/100], sorted[len(sorted)*15/100]
	threshold := max(math.Cbrt(loud*math.Pow(max(quiet, loud/100), 2)), 10)
	var turns []turn
	for i, level := range levels {
		at := int64(i) * stepFrames
		if last := len(turns) - 1; level < threshold {
			continue
		} else if last >= 0 && at-turns[last].to < pause {
			turns[last].to = at + around
		} else {
			turns = append(turns, turn{from: max(at-around, 0), to: at + around, fade: stepFrames})
		}
	}
	return turns
}

// isHigh distinguishes a high voice from a deep one by its median pitch.
func isHigh(voice []int16) bool {
	const window, border = 4 * listenStep, 160 // Hz, between the voices of most men and most women
	balance := 0
	for moment := range slices.Chunk(voice, window) {
		if hz := pitch(moment); hz > border {
			balance++
		} else if hz > 0 {
			balance--
		}
	}
	return balance > 0
}

// pitch returns the pitch of a moment in Hz, by autocorrelation, or 0 if it has none.
func pitch(v []int16) float64 {
	const shortest, longest = listenRate / 400, listenRate / 70
	var scores [longest + 1]float64
	for lag := shortest; lag <= longest && lag < len(v)/2; lag++ {
		var cross, a, b float64
		for i := range len(v) - lag {
			x, y := float64(v[i]), float64(v[i+lag])
			cross, a, b = cross+x*y, a+x*x, b+y*y
		}
		scores[lag] = cross / math.Sqrt(a*b+1)
	}
	best := slices.Max(scores[:])
	for lag := shortest + 1; lag < longest && best > 0.6; lag++ {
		// Multiples of the period score about as well, so take the first.
		if s := scores[lag]; s > 0.9*best && s >= scores[lag-1] && s >= scores[lag+1] {
			return listenRate / float64(lag)
		}
	}
	return 0
}
