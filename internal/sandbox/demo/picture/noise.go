package picture

import "math"

// tileSize is the period of the noise tile in both directions; a power of two.
const tileSize = 512

// tile is fractal value noise between 0 and 1 that repeats without a seam.
type tile [tileSize * tileSize]float32

// newTile makes noise of the given octaves; the coarsest has cells cells a side
// (a power of two).
func newTile(seed uint64, cells, octaves int) *tile {
	t := &tile{}
	amplitude, total := float32(1), float32(0)
	for o := range octaves {
		n := cells << o
		if n > tileSize {
			break
		}
		grid := make([]float32, n*n)
		for i := range grid {
			grid[i] = float32(hash(seed+uint64(o)<<40+uint64(i))>>40) / (1 << 24)
		}
		t.add(grid, n, amplitude)
		total += amplitude
		amplitude *= 0.55
	}
	for i := range t {
		t[i] /= total
	}
	return t
}

func (t *tile) add(grid []float32, n int, amplitude float32) {
	step := tileSize / n
	for y := range tileSize {
		gy, fy := y/step, ease(float32(y%step)/float32(step))
		top, bottom := grid[gy*n:][:n], grid[(gy+1)%n*n:][:n]
		for x := range tileSize {
			gx, fx := x/step, ease(float32(x%step)/float32(step))
			next := (gx + 1) % n
			a := top[gx] + (top[next]-top[gx])*fx
			b := bottom[gx] + (bottom[next]-bottom[gx])*fx
			t[y*tileSize+x] += (a + (b-a)*fy) * amplitude
		}
	}
}

// at looks the noise up at any place, in texels, blending between texels.
func (t *tile) at(x, y float32) float32 {
	fx, fy := floor(x), floor(y)
	ix, iy := int(fx)&(tileSize-1), int(fy)&(tileSize-1)
	fx, fy = x-fx, y-fy
	jx, jy := (ix+1)&(tileSize-1), (iy+1)&(tileSize-1)
	a := t[iy*tileSize+ix]
	b := t[iy*tileSize+jx]
	c := t[jy*tileSize+ix]
	d := t[jy*tileSize+jx]
	a += (b - a) * fx
	c += (d - c) * fx
	return a + (c-a)*fy
}

func floor(v float32) float32 { return float32(math.Floor(float64(v))) }

func ease(t float32) float32 { return t * t * (3 - 2*t) }

// hash scatters an integer over 64 bits (the finaliser of SplitMix64).
func hash(v uint64) uint64 {
	v += 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// random is a number in [0, 1) that belongs to an index.
func random(seed, index uint64) float64 {
	return float64(hash(seed*0x1000003+index)>>11) / (1 << 53)
}

// line is one-dimensional fractal noise between 0 and 1.
func line(seed uint64, x float64, octaves int) float64 {
	var sum, total float64
	amplitude := 1.0
	for o := range octaves {
		cell := math.Floor(x)
		f := x - cell
		f = f * f * (3 - 2*f)
		a := random(seed+uint64(o), uint64(int64(cell)))
		b := random(seed+uint64(o), uint64(int64(cell)+1))
		sum += (a + (b-a)*f) * amplitude
		total += amplitude
		amplitude *= 0.5
		x = x*2 + 17.3
	}
	return sum / total
}

// ridges is one-dimensional noise with sharp crests, between 0 and 1.
func ridges(seed uint64, x float64, octaves int) float64 {
	var sum, total float64
	amplitude := 1.0
	for o := range octaves {
		v := 1 - math.Abs(2*line(seed+uint64(o)*101, x, 1)-1)
		sum += v * v * amplitude
		total += amplitude
		amplitude *= 0.46
		x = x*2.03 + 5.1
	}
	return sum / total
}
