package audio

import (
	"math"
	"testing"
)

func TestRampsOfAReplacementAddUpToOne(t *testing.T) {
	mute := Mute{Start: 1000, End: 5000, FadeIn: 240, FadeOut: 240}
	original := &Region{Start: 0, End: 10000, Mutes: []Mute{mute}}
	stem := &Region{Start: 1000, End: 5000, FadeIn: 240, FadeOut: 240}
	for n := range int64(10000) {
		sum := original.gain(n)
		if n >= stem.Start && n < stem.End {
			sum += stem.gain(n)
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Fatalf("sample %d: original and replacement add up to %v", n, sum)
		}
	}
	if g := original.gain(3000); g != 0 {
		t.Errorf("gain %v in the middle of the mute", g)
	}
}
