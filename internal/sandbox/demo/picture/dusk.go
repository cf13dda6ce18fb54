package picture

import "math"

// Dusk is a ride along a mountain lake at sunset: 1280x720, 30 frames a second.
// The ridges move past at their own speeds, the sun sinks, the sky darkens, clouds drift, birds
// cross the sky and the lake carries it all upside down.
type Dusk struct {
	*instruments
	clouds, rock *tile
	sunGlow      *glowTable
	layers       []ridgeLayer
	stars        []star
}

const (
	duskWidth, duskHeight = 1280, 720
	duskRate              = 30
	duskShore             = 548 // first row of water
)

// ridgeLayer is one chain of mountains.
type ridgeLayer struct {
	base, height float64 // row of the foot and pixels of the highest crest above it
	frequency    float64 // crests per pixel
	speed        float64 // pixels a second to the left
	seed         uint64
	dark, mist   Color // at the crest and at the foot
	rocky        float32
	trees        float64 // height of the trees on it, pixels
}

type star struct {
	x, y  int
	light float32
	phase float64
}

// NewDusk prepares the scene.
func NewDusk() *Dusk {
	d := &Dusk{
		instruments: newInstruments("Clip A", "1280×720 · 30 fps", duskRate, duskWidth, duskHeight),
		clouds:      newTile(11, 4, 7), rock: newTile(12, 16, 6),
		layers: []ridgeLayer{
			{base: 520, height: 205, frequency: 0.0036, speed: 7, seed: 3, dark: RGB(0xb2708d), mist: RGB(0xf3a678), rocky: 0.10},
			{base: 535, height: 185, frequency: 0.0047, speed: 15, seed: 29, dark: RGB(0x8a5683), mist: RGB(0xd98a76), rocky: 0.16},
			{base: 545, height: 150, frequency: 0.0056, speed: 28, seed: 47, dark: RGB(0x573f73), mist: RGB(0xa4677a), rocky: 0.20},
			{base: 548, height: 112, frequency: 0.0066, speed: 52, seed: 71, dark: RGB(0x322a55), mist: RGB(0x69466c), rocky: 0.12, trees: 9},
			{base: 548, height: 64, frequency: 0.0060, speed: 96, seed: 97, dark: RGB(0x14132e), mist: RGB(0x2d2447), trees: 34},
		},
	}
	d.sunGlow = newGlowTable(900, func(r float64) float64 {
		disc := 1 / (1 + math.Exp((r-33)/1.2)) // a disc with a soft rim
		return 1.6*disc + 0.55*math.Exp(-r/70) + 0.42*math.Exp(-r/260)*(1-r/900)
	})
	for i := range uint64(150) {
		y := random(5, i*3+1)
		d.stars = append(d.stars, star{
			x: int(random(5, i*3) * duskWidth), y: int(y * y * 250),
			light: float32(0.2 + 0.6*random(5, i*3+2)), phase: float64(i) * 2.4,
		})
	}
	return d
}

// Size implements Scene.
func (d *Dusk) Size() (width, height int) { return duskWidth, duskHeight }

// Rate implements Scene.
func (d *Dusk) Rate() int { return duskRate }

// Lamp implements Scene.
func (d *Dusk) Lamp() Lamp { return d.lamp }

// The sky changes from one gradient to the other while the sun sinks.
var (
	daySky = gradient{
		{0, RGB(0x2c4f96)}, {0.30, RGB(0x6b7cba)}, {0.55, RGB(0xb99ab8)},
		{0.74, RGB(0xf0b48f)}, {0.90, RGB(0xffce82)}, {1, RGB(0xffe2a6)},
	}
	duskSky = gradient{
		{0, RGB(0x11143c)}, {0.28, RGB(0x3a2b68)}, {0.52, RGB(0x8c3f74)},
		{0.72, RGB(0xd75d63)}, {0.88, RGB(0xf58c50)}, {1, RGB(0xffbd6e)},
	}
)

// Draw implements Scene.
func (d *Dusk) Draw(c *Canvas, frame int) {
	t := float64(frame) / duskRate
	sunX, sunY := 860-13*t, 262+23*t
	dark := smoothstep(0.5, 8.5, float32(t)) // how far the evening has come
	d.drawSky(c, frame, t, sunX, sunY, dark)
	for i := range d.layers {
		d.drawLayer(c, &d.layers[i], t, float32(sunX), dark)
	}
	d.drawBirds(c, t)
	reflect(c, duskShore, t, d.rock, RGB(0x3a2a5c), 0.86)
	d.drawSunPath(c, t, sunX, dark)
	d.draw(c, frame)
}

func (d *Dusk) drawSky(c *Canvas, frame int, t, sunX, sunY float64, dark float32) {
	sun := RGB(0xffdca0)
	lit, shade := RGB(0xffd9b0).Mix(RGB(0xff9d74), dark), RGB(0x7d6d9e).Mix(RGB(0x3b2a5c), dark)
	drift := float32(t * 9)
	blaze := 0.6 + 0.4*dark // in the bright sky of the start less is enough
	for y := range duskShore {
		base := daySky.color(float32(y)/540).Mix(duskSky.color(float32(y)/540), dark)
		dy := float32(float64(y) - sunY)
		at := 3 * y * c.Width
		// Clouds lie in bands that thin out towards the zenith and the horizon.
		band := smoothstep(40, 190, float32(y)) * (1 - smoothstep(330, 470, float32(y)))
		for x := range c.Width {
			dx := float32(float64(x) - sunX)
			glow := d.sunGlow.at(dx*dx+dy*dy) * blaze
			v := base
			if band > 0 {
				n := d.clouds.at(float32(x)*0.20+drift, float32(y)*0.85)
				fine := d.clouds.at(float32(x)*0.62-drift*1.4, float32(y)*2.4+90)
				cover := smoothstep(0.46, 0.63, n*0.72+fine*0.28) * band
				if cover > 0 {
					warm := clamp(0.25 + glow*1.5 - (fine-0.5)*0.9)
					v = v.Mix(shade.Mix(lit, warm), cover*0.72)
					glow *= 1 - cover*0.45
				}
			}
			v = v.Add(sun, glow)
			g := grain(x, y, frame)
			c.set(at+3*x, Color{v.R + g, v.G + g, v.B + g})
		}
	}
	for _, s := range d.stars {
		twinkle := float32(0.7 + 0.3*math.Sin(t*4+s.phase))
		c.Glow(s.x, s.y, paper, s.light*twinkle*dark*1.3*(1-float32(s.y)/260))
	}
}

// crest is the row of a layer's skyline, without trees, at a place along it.
func (l *ridgeLayer) crest(along float64) float64 {
	x := along * l.frequency
	shape := 0.35*line(l.seed, x*0.7, 3) + 0.65*ridges(l.seed+7, x, 6)
	return l.base - l.height*shape
}

// treetops is how far the trees stand above the crest at a place.
func (l *ridgeLayer) treetops(along float64) float64 {
	var top float64
	// Two rows of firs with their own spacing.
	for row, spacing := range []float64{l.trees * 0.42, l.trees * 0.6} {
		cell := math.Floor(along / spacing)
		for _, n := range []float64{cell - 1, cell, cell + 1} {
			seed := l.seed + uint64(row)*1000
			index := uint64(int64(n))
			centre := (n + 0.5 + 0.5*(random(seed, index)-0.5)) * spacing
			height := l.trees * (0.45 + 0.55*random(seed+1, index))
			off := math.Abs(along - centre)
			// A fir narrows upwards in steps, which are its branches.
			slim := height * 0.21
			h := height * (1 - off/slim)
			h -= 2.2 * math.Mod(off*1.9, 1.4)
			top = max(top, h)
		}
	}
	return top
}

func (d *Dusk) drawLayer(c *Canvas, l *ridgeLayer, t float64, sunX, dark float32) {
	shift := l.speed * t
	skyline := make([]float64, c.Width+1)
	rim := make([]float64, c.Width)
	for x := range skyline {
		skyline[x] = l.crest(float64(x) + shift)
	}
	for x := range rim {
		rim[x] = skyline[x]
		if l.trees > 0 {
			rim[x] -= l.treetops(float64(x) + shift)
		}
	}
	light := RGB(0xffdcae).Mix(RGB(0xff9a78), dark)
	day := 1.22 - 0.34*dark
	for x := range c.Width {
		// A slope that faces the sun is lit. The wide step keeps it from
		// flickering between columns.
		slope := float32(skyline[min(x+9, c.Width)]-skyline[max(x-9, 0)]) / 18
		facing := clamp(0.5 - slope*clamp((sunX-float32(x))/160+0.5)*0.5 + slope*clamp((float32(x)-sunX)/160+0.5)*0.5)
		from := max(int(math.Floor(rim[x])), 0)
		for y := from; y < duskShore; y++ {
			depth := clamp((float32(y) - float32(skyline[x])) / float32(l.height*0.95+20))
			v := l.dark.Mix(l.mist, depth*depth).Scale(day)
			if l.rocky > 0 {
				// Gullies run down the slopes: the noise is drawn out along them.
				n := d.rock.at((float32(x)+float32(shift))*1.1+float32(y)*0.45, float32(y)*0.75) - 0.5
				v = v.Scale(1 + n*l.rocky*7*(1-depth))
				v = v.Add(light, clamp(facing-0.5+n*1.4)*l.rocky*(1-depth)*1.5)
			}
			alpha := clamp(float32(y) + 1 - float32(rim[x]))
			at := 3 * (y*c.Width + x)
			if alpha < 1 {
				v = c.at(at).Mix(v, alpha)
			}
			c.set(at, v)
		}
	}
}

func (d *Dusk) drawBirds(c *Canvas, t float64) {
	for i := range 9 {
		n := float64(i)
		x := 180 + 58*t + 34*n*math.Cos(n*1.9) + 22*n
		y := 205 - 5*t + 17*math.Sin(n*2.3) + 9*n*math.Sin(n) + 4*math.Sin(t*1.3+n)
		span := 8.5 + 2.5*math.Sin(n*5)
		flap := math.Sin(t*9+n*1.7) * span * 0.55
		c.Line(x-span, y-flap, x, y, 1.9, night, 0.85)
		c.Line(x, y, x+span, y-flap, 1.9, night, 0.85)
	}
}

// drawSunPath lays the sun's glitter on the water.
func (d *Dusk) drawSunPath(c *Canvas, t, sunX float64, dark float32) {
	gold := RGB(0xffdf9a).Mix(RGB(0xff9c58), dark)
	for y := duskShore; y < c.Height; y++ {
		depth := float64(y-duskShore) / float64(c.Height-duskShore)
		half := 26 + 120*depth
		for x := int(sunX - half); x <= int(sunX+half); x++ {
			if x < 0 || x >= c.Width {
				continue
			}
			off := (float64(x) - sunX) / half
			n := d.rock.at(float32(x)*1.1, float32(y-duskShore)*float32(5/(0.35+depth))-float32(t)*46)
			spark := smoothstep(0.54, 0.72, n) * float32((1-off*off)*(0.8-0.45*depth))
			if spark > 0 {
				c.Glow(x, y, gold, spark)
			}
		}
	}
}
