// Storyboards of assets: the frame of each tile, orientation, and that one is made for all accounts.

package test

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"strings"
	"testing"

	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// numbered is an ffmpeg source of pictures that show their number: eight bars, from left to right the bits of the
// number, the lowest first.
const numbered = ",geq=lum='if(mod(floor(N/pow(2,floor(X*8/W))),2),235,16)':cb=128:cr=128"

// numberOf reads the number of a picture.
func numberOf(picture image.Image, at image.Rectangle) (n int) {
	for bit := range 8 {
		x, y := at.Min.X+(2*bit+1)*at.Dx()/16, (at.Min.Y+at.Max.Y)/2
		if r, g, b, _ := picture.At(x, y).RGBA(); (r+g+b)/3 > 0x6000 {
			n |= 1 << bit
		}
	}
	return n
}

func TestStoryboard(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u := s.SignIn(t)
	source := func(seconds string) []string {
		return []string{"-f", "lavfi", "-i", "color=black:s=256x64:r=25:d=" + seconds + numbered, "-pix_fmt", "yuv420p"}
	}
	film := func(name string, more ...string) string {
		return generate(t, name, append(source("5"), more...)...)
	}
	plain := film("plain.mp4", "-g", "250", "-bf", "3")
	steady := func(at float64) int { return int(at * 25) }
	for name, c := range map[string]struct {
		path, query          string
		tiles, width, height int // of a tile
		length               float64
		frame                func(at float64) int
		sideways             bool
	}{
		"long group of pictures":                {plain, "?height=61", 12, 240, 60, 5, steady, false},
		"more tiles than key frames, odd width": {film("keys.mp4", "-g", "25"), "?frames=60&height=45", 60, 176, 44, 5, steady, false},
		"one tile":                              {plain, "?frames=1", 1, 360, 90, 5, steady, false},
		"fragments behind a short index":        {film("continued.mp4", "-g", "10", "-bf", "2", "-movflags", "frag_keyframe"), "", 12, 360, 90, 5, steady, false},
		"sound is longer":                       {generate(t, "sound.mp4", "-i", plain, "-f", "lavfi", "-i", "sine=d=8", "-c:v", "copy"), "", 12, 360, 90, 5, steady, false},
		"edit list": {generate(t, "edit.mp4", "-ss", "1.6", "-i", plain, "-c", "copy"), "?frames=7", 7, 360, 90, 3.4,
			func(at float64) int { return int((at + 1.6) * 25) }, false},
		"variable frame rate": {film("vfr.mkv", "-vf", "setpts='if(lt(N,50),N/25,2+(N-50)/10)/TB'", "-fps_mode", "vfr", "-enc_time_base", "1:1000"), "", 12, 360, 90, 9.5,
			func(at float64) int {
				if at < 2 {
					return int(at * 25)
				}
				return 50 + int((at-2)*10)
			}, false},
		"rotated":     {mediatest.WithMatrix(t, plain, [4]int32{0, -1, 1, 0}), "?height=256", 12, 64, 256, 5, steady, true},
		"wide pixels": {film("sar.mp4", "-vf", "setsar=2"), "?frames=3", 3, 720, 90, 5, steady, false},
		"HEVC, HDR": {film("hdr.mp4", "-c:v", "libx265", "-x265-params", "log-level=error:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc",
			"-pix_fmt", "yuv420p10le", "-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc", "-tag:v", "hvc1"), "", 12, 360, 90, 5, steady, false},
	} {
		ext := "mp4"
		if strings.HasSuffix(c.path, ".mkv") {
			ext = "webm"
		}
		key := uploadAsset(t, u, c.path, ext, "video/mp4")
		path := "/api/v2/" + key + "/storyboard" + c.query
		answer := whenFree(t, func() *apitest.Response { return u.Get(t, path) }).Expect(200)
		strip, err := jpeg.Decode(bytes.NewReader(answer.Body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := strip.Bounds(), image.Rect(0, 0, c.tiles*c.width, c.height); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
			continue
		}
		for k := range c.tiles {
			tile := image.Rect(k*c.width, 0, (k+1)*c.width, c.height)
			shown := 0
			if c.sideways {
				shown = numberOf(turned{strip, tile}, image.Rect(0, 0, c.height, c.width))
			} else {
				shown = numberOf(strip, tile)
			}
			if want := c.frame((float64(k) + 0.5) / float64(c.tiles) * c.length); shown < want-1 || shown > want+1 {
				t.Errorf("%s: tile %d shows frame %d, want %d", name, k, shown, want)
			}
		}
	}

	sound := uploadAsset(t, u, generate(t, "sound.m4a", "-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac"), "m4a", "audio/mp4")
	wide := uploadAsset(t, u, generate(t, "wide.mp4", "-f", "lavfi", "-i", "color=s=1024x32:d=0.2", "-pix_fmt", "yuv420p"), "mp4", "video/mp4")
	// The box with the shape of a pixel becomes a configuration of Dolby Vision without a base layer.
	dolby := film("dolby.mp4", "-aspect", "4:3")
	if err := os.WriteFile(dolby, bytes.Replace(readFile(t, dolby), []byte("pasp\x00\x00\x00\x01\x00\x00\x00\x03"),
		[]byte{'d', 'v', 'v', 'C', 1, 0, 5 << 1, 1<<3 | 5, 0, 0, 0, 0}, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	enhanced := uploadAsset(t, u, dolby, "mp4", "video/mp4")
	get := func(path string) *apitest.Response {
		return u.Send(t, apitest.Request{Path: "/api/v2/" + path})
	}
	get("assets/"+strings.Repeat("01ab", 16)+".mp4/storyboard").Error(404, "asset not found")
	get(sound+"/storyboard").Error(400, "the asset has no pictures")
	get(enhanced+"/storyboard").Error(400, "the asset has no pictures")
	u.Post(t, analysisPath, M{"assetKey": enhanced}).Error(400, "assetKey names a file without readable pictures or sound")
	get(sound+"/storyboard?frames=2").Error(400, "the asset has no pictures")
	get(wide+"/storyboard?frames=23").Error(400, "invalid_frames") // 23 * 2880 pixels
	whenFree(t, func() *apitest.Response { return u.Get(t, "/api/v2/"+wide+"/storyboard?frames=22") }).Expect(200)
	for _, query := range []string{"frames=0", "frames=61", "frames=", "frames=x", "frames=2&frames=2"} {
		get(wide+"/storyboard?"+query).Error(400, "invalid_frames")
	}
	for _, query := range []string{"height=44", "height=361", "height=", "height=9.5", "height=90&height=90"} {
		get(wide+"/storyboard?"+query).Error(400, "invalid_height")
	}
	get("assets/x.mp4/storyboard").Expect(404)
	get("assets/" + strings.Repeat("01ab", 16) + ".mp4/storyboard").Expect(404)
}

// A storyboard is made once, for all accounts.
func TestStoryboardIsKept(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.StandInBucket())
	u, other := s.SignIn(t), s.SignIn(t)
	path := "/api/v2/" + uploadAsset(t, u, generate(t, "film.mp4", "-f", "lavfi", "-i", "testsrc2=s=64x64:d=1", "-pix_fmt", "yuv420p"), "mp4", "video/mp4") + "/storyboard"
	first := u.Get(t, path).Expect(200)
	s.World.FailBucket(t, fake.Rule{Step: bucket.StepPut, Path: "/analysis/", Kind: fake.KindStatus, Status: 403})
	s.World.FailBucket(t, fake.Rule{Step: bucket.StepGet, Path: "/assets/", Kind: fake.KindStatus, Status: 403})
	if again := other.Get(t, path).Expect(200); !bytes.Equal(again.Body, first.Body) {
		t.Error("another picture for another account")
	}
	tag := first.Header.Get("ETag")
	u.Send(t, apitest.Request{Path: path, Header: map[string][]string{"If-None-Match": {tag}}, Valid: true}).Expect(304)
	if tag == "" || first.Header.Get("Content-Type") != "image/jpeg" {
		t.Errorf("headers %v", first.Header)
	}
}

// turned is a tile of a picture, rotated back by 90 degrees.
type turned struct {
	image.Image
	tile image.Rectangle
}

func (p turned) At(x, y int) color.Color { return p.Image.At(p.tile.Min.X+y, p.tile.Max.Y-1-x) }
