package test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"net/http"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// poster returns a film's poster, and ends the test if it is not a picture.
func poster(t testing.TB, u *apitest.User, jobID string) (image.Image, *apitest.Response) {
	t.Helper()
	res := u.Get(t, "/api/v2/render/"+jobID+"/poster").Expect(200)
	if ct := res.Header.Get("Content-Type"); ct != "image/jpeg" || res.Header.Get("Content-Length") == "" || res.Header.Get("ETag") == "" {
		t.Errorf("Content-Type %q, Content-Length %q, ETag %q", ct, res.Header.Get("Content-Length"), res.Header.Get("ETag"))
	}
	picture, err := jpeg.Decode(bytes.NewReader(res.Body))
	if err != nil {
		t.Fatal(err)
	}
	return picture, res
}

// looksLike fails the test unless the middle of a picture has the colour.
func looksLike(t testing.TB, picture image.Image, want color.RGBA) {
	t.Helper()
	b := picture.Bounds()
	r, g, bl, _ := picture.At(b.Dx()/2, b.Dy()/2).RGBA()
	got := color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(bl >> 8), 255}
	if d := mediatest.ColorDistance(got, want); d > 12 {
		t.Errorf("the picture is %v, want %v", got, want)
	}
}

// For all canvas sizes and lengths, the poster is a frame from the first third of the film with the film's colours.
func TestPoster(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Shared(t)
	u := s.SignIn(t)
	orange := color.RGBA{230, 120, 40, 255}
	coloured := func(w, h int, c string, d time.Duration) string {
		path := t.TempDir() + "/clip.mp4"
		mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color="+c+":r=25:s="+fmt.Sprintf("%dx%d", w, h)+":d="+fmt.Sprint(d.Seconds())+",format=gbrp",
			"-vf", "scale=out_color_matrix=bt709:out_range=limited,format=yuv420p", "-c:v", "libx264", "-preset", "ultrafast", "-crf", "10",
			"-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", path)
		return path
	}
	for _, tt := range []struct {
		name       string
		w, h       int
		side       image.Point
		firstThird time.Duration
	}{
		{"landscape", 320, 180, image.Pt(640, 360), time.Second},
		{"portrait, larger, behind the exact start", 432, 768, image.Pt(360, 640), 2400 * time.Millisecond},
		{"square and very short", 64, 64, image.Pt(640, 640), 40 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first, rest := coloured(tt.w, tt.h, "0xe67828", tt.firstThird), coloured(tt.w, tt.h, "blue", 2*tt.firstThird)
			job := u.Render(t, M{"segments": []M{apitest.Segment("a", 0, tt.firstThird), apitest.Segment("b", 1, 2*tt.firstThird)}},
				apitest.File("a", first), apitest.File("b", rest))
			u.WaitRendered(t, job)
			picture, _ := poster(t, u, job)
			if got := picture.Bounds().Size(); got != tt.side {
				t.Errorf("%v, want %v", got, tt.side)
			}
			looksLike(t, picture, orange)
		})
	}
}

func TestPosterIsServedWhileThereIsAFilm(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u := s.SignIn(t)
	job := u.Render(t, M{"videoDurationMs": 1000}, apitest.File("video", redClip(t)))
	sound := u.Render(t, M{"videoDurationMs": 1000, "outputKind": "audio"}, apitest.File("video", redClip(t)))
	path := "/api/v2/render/" + job + "/poster"
	if early := u.Get(t, path); early.Status != 200 {
		early.Sentence(404)
	}
	u.WaitRendered(t, job)
	u.WaitRendered(t, sound)
	picture, res := poster(t, u, job)
	looksLike(t, picture, color.RGBA{254, 0, 0, 255})
	tag := res.Header.Get("ETag")
	again := u.Send(t, apitest.Request{Path: path, Header: http.Header{"If-None-Match": {tag}}, Valid: true}).Expect(304)
	if len(again.Body) > 0 || again.Header.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("304 with %d bytes, Cache-Control %q", len(again.Body), again.Header.Get("Cache-Control"))
	}
	u.Get(t, "/api/v2/render/"+sound+"/poster").Sentence(404, "audio-only")

	deleteAccount(t, u)
	if left := filesOf(t, s, job); len(left) > 0 {
		t.Errorf("left after the deletion: %v", left)
	}
}
