package picture

import "math"

// Aurora is a northern night held upright: 720x1280, 25 frames a second. Green
// light waves over a lake while paper lanterns rise from it.
type Aurora struct {
	*instruments
	veil, water *tile
	fade        []float32 // light above a curtain's edge, by distance in pixels
	stars       []star
	lanterns    []lantern
	sprites     []*sprite
}

const (
	auroraWidth, auroraHeight = 720, 1280
	auroraRate                = 25
	auroraShore               = 960
)

// lantern is one paper lantern; it rises at its own pace and starts again below.
type lantern struct {
	x, y   float64 // at time zero
	speed  float64 // pixels a second upwards
	size   int     // index of its sprite
	phase  float64
	behind bool
}

// sprite is a picture of light.
type sprite struct {
	half  int
	light []Color // added
	body  []float32
}

// NewAurora prepares the scene.
func NewAurora() *Aurora {
	a := &Aurora{
		instruments: newInstruments("Clip B", "720×1280 · 25 fps", auroraRate, auroraWidth, auroraHeight),
		veil:        newTile(21, 4, 6), water: newTile(22, 8, 6),
	}
	a.fade = make([]float32, auroraHeight+64)
	for i := range a.fade {
		d := float64(i)
		// Sharp below, long above.
		a.fade[i] = float32(math.Exp(-d/210) * (1 - math.Exp(-d/9)))
	}
	for i := range uint64(420) {
		a.stars = append(a.stars, star{
			x: int(random(8, i*3) * auroraWidth), y: int(random(8, i*3+1) * 900),
			light: float32(0.15 + 0.75*math.Pow(random(8, i*3+2), 3)), phase: float64(i) * 1.7,
		})
	}
	sizes := []float64{4, 6.5, 10, 16, 26}
	for _, s := range sizes {
		a.sprites = append(a.sprites, newLanternSprite(s))
	}
	for i := range uint64(46) {
		size := int(math.Pow(random(9, i*5+2), 1.7) * float64(len(sizes)))
		a.lanterns = append(a.lanterns, lantern{
			x: random(9, i*5) * auroraWidth, y: 130 + random(9, i*5+1)*870,
			speed: 9 + 7*float64(size) + 6*random(9, i*5+3), size: size, phase: random(9, i*5+4) * 7, behind: size < 2,
		})
	}
	return a
}

// Size implements Scene.
func (a *Aurora) Size() (width, height int) { return auroraWidth, auroraHeight }

// Rate implements Scene.
func (a *Aurora) Rate() int { return auroraRate }

// Lamp implements Scene.
func (a *Aurora) Lamp() Lamp { return a.lamp }

var auroraSky = gradient{
	{0, RGB(0x050818)}, {0.35, RGB(0x081a35)}, {0.7, RGB(0x0d3148)}, {0.9, RGB(0x1a4f58)}, {1, RGB(0x2c6a66)},
}

// Draw implements Scene.
func (a *Aurora) Draw(c *Canvas, frame int) {
	t := float64(frame) / auroraRate
	a.drawSky(c, frame, t)
	a.drawLanterns(c, t, true)
	a.drawShore(c, t)
	a.drawLanterns(c, t, false)
	reflect(c, auroraShore, t, a.water, RGB(0x0b2430), 0.82)
	a.draw(c, frame)
}

// curtain is one fold of the aurora in one column.
type curtain struct {
	edge  float32 // row of the lower edge
	light float32
	high  float32 // how far up it reaches, 1 = as the table says
}

const curtainCount = 3

func (a *Aurora) curtains(x int, t float64) [curtainCount]curtain {
	var out [curtainCount]curtain
	fx := float64(x) / auroraWidth
	for i := range out {
		n := float64(i)
		sway := math.Sin(fx*(3.1+n*1.3)+t*(0.35+0.11*n)+n*2.1)*64 + math.Sin(fx*(9+2*n)-t*0.6+n)*24
		edge := 640 - 150*n + sway + 50*line(uint64(40+i), fx*5+t*0.25, 2)
		// Fine rays stand in the curtain and wander along it.
		rays := 0.45 + 0.55*line(uint64(60+i), fx*62+t*(1.1-0.5*n), 3)
		broad := smoothstep(0.22, 0.75, float32(line(uint64(80+i), fx*2.6-t*0.22+n*3, 2)))
		out[i] = curtain{edge: float32(edge), light: float32(rays*(1.05-0.18*n)) * broad, high: float32(0.7 + 0.8*rays)}
	}
	return out
}

func (a *Aurora) drawSky(c *Canvas, frame int, t float64) {
	low, mid, high := RGB(0x6dffb0), RGB(0x25d6b4), RGB(0x8a4dff)
	columns := make([][curtainCount]curtain, c.Width)
	for x := range columns {
		columns[x] = a.curtains(x, t)
	}
	drift := float32(t * 11)
	for y := range auroraShore {
		base := auroraSky.color(float32(y) / auroraShore)
		at := 3 * y * c.Width
		for x := range c.Width {
			v := base
			for _, k := range &columns[x] {
				above := (k.edge - float32(y)) / k.high
				if above <= 0 || above >= float32(len(a.fade)) {
					continue
				}
				light := k.light * a.fade[int(above)]
				if light < 0.004 {
					continue
				}
				tone := low
				if above > 60 {
					tone = mid.Mix(high, clamp((above-60)/330))
				} else {
					tone = low.Mix(mid, above/60)
				}
				v = v.Add(tone, light*0.85)
			}
			n := a.veil.at(float32(x)*0.5+drift, float32(y)*0.3)
			v = v.Scale(0.82 + 0.36*n)
			g := grain(x, y, frame)
			c.set(at+3*x, Color{v.R + g, v.G + g, v.B + g})
		}
	}
	for _, s := range a.stars {
		twinkle := float32(0.65 + 0.35*math.Sin(t*5+s.phase))
		c.Glow(s.x, s.y, RGB(0xdfeaff), s.light*twinkle)
		if s.light > 0.6 {
			for _, d := range [][2]int{{1, 0}, {-1, 0}, {0, 1}, {0, -1}} {
				c.Glow(s.x+d[0], s.y+d[1], RGB(0xdfeaff), s.light*twinkle*0.35)
			}
		}
	}
}

// drawShore paints the far hills and the firs that stand at the water.
func (a *Aurora) drawShore(c *Canvas, t float64) {
	hills := ridgeLayer{base: auroraShore, height: 190, frequency: 0.0042, seed: 131, trees: 0}
	firs := ridgeLayer{base: auroraShore + 8, height: 46, frequency: 0.006, seed: 151, trees: 92}
	pan := t * 6
	for x := range c.Width {
		far := hills.crest(float64(x) + pan*0.5)
		along := float64(x) + pan
		near := firs.crest(along) - firs.treetops(along)
		// The firs stand higher at the picture's sides.
		side := math.Abs(float64(x)/auroraWidth-0.46) * 2
		near += 40 - 70*side*side
		for y := int(min(far, near)); y < auroraShore; y++ {
			at := 3 * (y*c.Width + x)
			if cover := clamp(float32(y) + 1 - float32(far)); cover > 0 {
				depth := clamp((float32(y) - float32(far)) / 190)
				n := a.veil.at((float32(x)+float32(pan)*0.5)*1.7, float32(y)*2.1) - 0.5
				v := RGB(0x0b2836).Mix(RGB(0x1d5257), depth*depth).Scale(1 + n*0.9)
				c.set(at, c.at(at).Mix(v, cover))
			}
			if cover := clamp(float32(y) + 1 - float32(near)); cover > 0 {
				n := a.veil.at(float32(along)*4.1, float32(y)*3.7)
				c.set(at, c.at(at).Mix(RGB(0x030c12).Mix(RGB(0x0b2a2c), n*n), cover))
			}
		}
	}
}

func newLanternSprite(size float64) *sprite {
	half := int(size * 4)
	s := &sprite{half: half, light: make([]Color, (2*half+1)*(2*half+1)), body: make([]float32, (2*half+1)*(2*half+1))}
	core, rim, halo := RGB(0xfff0b8), RGB(0xff9a3c), RGB(0xff7a2a)
	for y := -half; y <= half; y++ {
		for x := -half; x <= half; x++ {
			fx, fy := float64(x)/size, float64(y)/size
			at := (y+half)*(2*half+1) + x + half
			r := math.Hypot(fx, fy)
			glow := math.Exp(-r*1.25) * max(1-r/4, 0) * 0.62
			s.light[at] = Color{}.Add(halo, float32(glow))
			// A rounded body, wider at the top, cut flat at both ends.
			width := 0.74 - 0.2*fy
			edge := min(width-math.Abs(fx), 1.0-math.Abs(fy))
			body := clamp(float32(edge*size) + 0.5)
			if body > 0 {
				flame := math.Exp(-(fx*fx*3.4 + (fy-0.45)*(fy-0.45)*1.8))
				v := rim.Mix(core, float32(flame)).Scale(float32(0.72 + 0.5*flame))
				if math.Abs(fy-0.9) < 0.1 {
					v = v.Scale(0.55) // the ring at the bottom
				}
				s.light[at] = s.light[at].Mix(v, body)
				s.body[at] = body
			}
		}
	}
	return s
}

func (a *Aurora) drawLanterns(c *Canvas, t float64, behind bool) {
	const span = 1150
	for i := range a.lanterns {
		l := &a.lanterns[i]
		if l.behind != behind {
			continue
		}
		y := math.Mod(l.y-l.speed*t+span, span)
		x := l.x + 9*math.Sin(t*0.8+l.phase)*(0.4+0.3*float64(l.size))
		flicker := float32(0.9 + 0.1*math.Sin(t*7+l.phase*3))
		a.sprites[l.size].draw(c, x, y, flicker)
	}
}

func (s *sprite) draw(c *Canvas, x, y float64, brightness float32) {
	left, top := int(math.Round(x)), int(math.Round(y))
	side := 2*s.half + 1
	for dy := -s.half; dy <= s.half; dy++ {
		py := top + dy
		if py < 0 || py >= auroraShore {
			continue
		}
		for dx := -s.half; dx <= s.half; dx++ {
			px := left + dx
			if px < 0 || px >= c.Width {
				continue
			}
			at := (dy+s.half)*side + dx + s.half
			pixel := 3 * (py*c.Width + px)
			v := c.at(pixel).Scale(1 - s.body[at])
			c.set(pixel, v.Add(s.light[at], brightness))
		}
	}
}
