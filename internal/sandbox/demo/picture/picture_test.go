package picture

import (
	"bytes"
	"sync"
	"testing"
)

func draw(s Scene, frame int) *Canvas {
	width, height := s.Size()
	c := NewCanvas(width, height)
	s.Draw(c, frame)
	return c
}

func scenes() map[string]Scene {
	return map[string]Scene{"dusk": NewDusk(), "aurora": NewAurora()}
}

func TestFramesAreTheSameInAnyOrder(t *testing.T) {
	for name, s := range scenes() {
		again := scenes()[name]
		var at7, at31, at7again *Canvas
		var group sync.WaitGroup
		group.Go(func() { at7 = draw(s, 7) })
		group.Go(func() { at31 = draw(s, 31) })
		group.Go(func() { at31 := draw(again, 31); _ = at31; at7again = draw(again, 7) })
		group.Wait()
		if !bytes.Equal(at7.Pix, at7again.Pix) {
			t.Errorf("%s: frame 7 differs between two drawings", name)
		}
		if bytes.Equal(at7.Pix, at31.Pix) {
			t.Errorf("%s: nothing moves", name)
		}
	}
}

// A canvas that was used before must not show through.
func TestDrawCoversTheWholeCanvas(t *testing.T) {
	for name, s := range scenes() {
		clean := draw(s, 12)
		used := NewCanvas(clean.Width, clean.Height)
		for i := range used.Pix {
			used.Pix[i] = byte(i * 7)
		}
		s.Draw(used, 12)
		if !bytes.Equal(clean.Pix, used.Pix) {
			t.Errorf("%s: the old picture shows through", name)
		}
	}
}

// detail is the mean difference of neighbouring pixels, and motion that of the
// same pixel in two frames, 0..255.
func detail(c *Canvas) float64 {
	var sum int
	for i := 3; i < len(c.Pix); i++ {
		sum += abs(int(c.Pix[i]) - int(c.Pix[i-3]))
	}
	return float64(sum) / float64(len(c.Pix))
}

func motion(a, b *Canvas) float64 {
	var sum int
	for i := range a.Pix {
		sum += abs(int(a.Pix[i]) - int(b.Pix[i]))
	}
	return float64(sum) / float64(len(a.Pix))
}

func abs(v int) int { return max(v, -v) }

func TestPicturesAreDetailedAndMove(t *testing.T) {
	for name, s := range scenes() {
		a, b := draw(s, 10), draw(s, 10+s.Rate())
		if d := detail(a); d < 1 {
			t.Errorf("%s: detail %.2f, want at least 1", name, d)
		}
		if m := motion(a, b); m < 2 {
			t.Errorf("%s: motion %.2f in a second, want at least 2", name, m)
		}
	}
}

func TestLampShinesAtWholeSeconds(t *testing.T) {
	for name, s := range scenes() {
		lamp, rate := s.Lamp(), s.Rate()
		for _, frame := range []int{0, 1, FlashFrames - 1, FlashFrames, rate / 2, rate - 1, rate, rate + FlashFrames, 5 * rate} {
			c := draw(s, frame)
			// The square in which the film's flashes are looked for.
			half := int(lamp.Radius * 0.55)
			for y := int(lamp.Y) - half; y <= int(lamp.Y)+half; y++ {
				for x := int(lamp.X) - half; x <= int(lamp.X)+half; x++ {
					v := c.Pix[3*(y*c.Width+x)+1]
					if lit := Lit(frame, rate); lit && v < 250 || !lit && v > 60 {
						t.Fatalf("%s frame %d: the lamp is %d at %d,%d, lit %v", name, frame, v, x, y, lit)
					}
				}
			}
		}
	}
}

func TestTimecode(t *testing.T) {
	for _, tt := range []struct {
		frame, rate int
		want        string
	}{{0, 30, "00:00:00:00"}, {29, 30, "00:00:00:29"}, {30, 30, "00:00:01:00"}, {3, 25, "00:00:00:03"}, {25*3725 + 7, 25, "01:02:05:07"}} {
		if got := timecode(tt.frame, tt.rate); got != tt.want {
			t.Errorf("frame %d at %d: %s, want %s", tt.frame, tt.rate, got, tt.want)
		}
	}
}

func TestEveryGlyphIsDrawnInsideItsStep(t *testing.T) {
	f := NewFace(20, 0)
	seen := map[string]rune{}
	for r := range glyphs {
		c := NewCanvas(80, 60)
		f.Draw(c, 20, 20, string(r), Color{1, 1, 1}, 1)
		ink := 0
		for i, v := range c.Pix {
			if v > 0 {
				ink++
				if x := i / 3 % c.Width; float64(x) < 20-f.stroke-2 || float64(x) > 20+f.Width(string(r))+2 {
					t.Errorf("%q has ink at column %d", r, x-20)
					break
				}
			}
		}
		if ink == 0 {
			t.Errorf("%q is blank", r)
		}
		if other, twice := seen[string(c.Pix)]; twice {
			t.Errorf("%q looks like %q", r, other)
		}
		seen[string(c.Pix)] = r
	}
	if f.Width("00") != 2*f.Width("0") {
		t.Error("digits are not equally wide: a timecode would jump")
	}
}

func TestPasteIsCutAtTheEdges(t *testing.T) {
	small := NewCanvas(4, 4)
	for i := range small.Pix {
		small.Pix[i] = 200
	}
	for _, at := range [][3]int{{-2, -2, 4}, {8, 8, 4}, {3, 3, 16}, {-4, 0, 0}, {10, 0, 0}} {
		c := NewCanvas(10, 10)
		c.Paste(small, at[0], at[1])
		n := 0
		for i := 0; i < len(c.Pix); i += 3 {
			if c.Pix[i] == 200 {
				n++
			}
		}
		if n != at[2] {
			t.Errorf("at %d,%d: %d pixels, want %d", at[0], at[1], n, at[2])
		}
	}
}
