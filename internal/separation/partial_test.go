package separation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/dbtest"
	"cutroom/internal/diskcache"
	"cutroom/internal/mediatest"
	"cutroom/internal/objectstore"
	"cutroom/internal/sandbox/bucket"
)

// cutter is a replica that cuts assets in a bucket.
type cutter struct {
	*Service
	t      *testing.T
	owner  string
	bucket *objectstore.Bucket
	cache  *diskcache.Cache
	read   atomic.Int64 // bytes read from the bucket
}

func newCutter(t *testing.T) *cutter {
	t.Helper()
	h := newHarness(t, dbtest.SQLite(t)).withProvider()
	c := &cutter{t: t, owner: h.User(100)}
	opts := bucket.Options{Name: "bucket", AccessKeyID: "id", SecretAccessKey: "secret", Dir: t.TempDir()}
	standIn, err := bucket.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		standIn.ServeHTTP(&countingWriter{w, &c.read}, r)
	}))
	t.Cleanup(server.Close)
	c.bucket = objectstore.NewBucket(objectstore.BucketConfig{Endpoint: server.URL, Bucket: opts.Name,
		AccessKeyID: opts.AccessKeyID, SecretAccessKey: opts.SecretAccessKey, MaxBackoff: time.Millisecond})
	if c.cache, err = asset.NewCache(t.TempDir(), 1<<30); err != nil {
		t.Fatal(err)
	}
	c.Service = h.service(func(o *Options) {
		o.MaxAudioBytes = 100 << 20
		o.Assets = asset.New(asset.Options{DB: h.DB, Bucket: c.bucket, Cache: c.cache, MaxBytes: 1 << 30})
	})
	return c
}

type countingWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.n.Add(int64(len(b)))
	return w.ResponseWriter.Write(b)
}

// put stores a file as an asset.
func (c *cutter) put(path string) asset.Found {
	c.t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	key := "assets/" + hex.EncodeToString(sum[:]) + ".mp4"
	if err := c.bucket.Put(c.t.Context(), key, path, "video/mp4"); err != nil {
		c.t.Fatal(err)
	}
	found, errs := c.Assets.Lookup(c.t.Context(), []string{key})
	if errs[0] != nil {
		c.t.Fatal(errs[0])
	}
	return found[0]
}

// cutBy returns the WAV file of a cut whose source comes from fetch, and the number of bytes read for it.
func (c *cutter) cutBy(fetch func(context.Context, string, Reference, *newJob) (stretch, error), a asset.Found, from, to time.Duration) (wav []byte, read int64, err error) {
	c.t.Helper()
	made := newJob{owner: c.owner, used: []asset.Found{a}}
	dir, before := c.t.TempDir(), c.read.Load()
	source, work := filepath.Join(dir, "asset"), filepath.Join(dir, "job")
	found, err := fetch(c.t.Context(), source, Reference{AssetKey: a.Key.String(), From: from, To: to}, &made)
	if err != nil {
		return nil, 0, err
	}
	read = c.read.Load() - before
	if err := os.Mkdir(work, 0o700); err != nil {
		c.t.Fatal(err)
	}
	file, err := c.encode(c.t.Context(), work, source, found, &made)
	if err != nil {
		return nil, 0, err
	}
	wav, err = os.ReadFile(file)
	return wav, read, errors.Join(err, c.cache.Drop(filepath.Base(a.Key.String())))
}

// padded copies an mp4 and makes it large enough to be fetched in parts.
func padded(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	box := make([]byte, 24<<20)
	binary.BigEndian.PutUint32(box, uint32(len(box)))
	copy(box[4:], "free")
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(out, append(content, box...), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// footage makes a film of 30 s and 30 MB. Its noise differs at every sample.
func footage(t *testing.T, name string, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args := []string{"-f", "lavfi", "-i", "testsrc2=s=64x64:r=25:d=30", "-f", "lavfi", "-i", "anoisesrc=d=30:r=44100:a=0.5:seed=1"}
	args = append(args, "-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "50", "-pix_fmt", "yuv420p",
		"-b:v", "8M", "-maxrate", "8M", "-bufsize", "2M", "-x264-params", "nal-hrd=cbr:filler=1", "-ac", "2", "-c:a", "aac", "-b:a", "96k")
	mediatest.FFmpeg(t, append(append(args, more...), path)...)
	return path
}

func TestACutFromPartsEqualsACutFromTheWhole(t *testing.T) {
	t.Parallel()
	c := newCutter(t)
	end := footage(t, "end.mp4")
	remuxed := func(name string, args ...string) string {
		path := filepath.Join(t.TempDir(), name)
		mediatest.FFmpeg(t, append(args, path)...)
		return path
	}
	for name, f := range map[string]struct {
		path     string
		from, to time.Duration
	}{
		"index at the end":     {end, 14567 * time.Millisecond, 18 * time.Second},
		"PCM":                  {remuxed("pcm.mov", "-i", end, "-c:v", "copy", "-c:a", "pcm_s16le"), 15 * time.Second, 18 * time.Second},
		"ALAC, from the start": {remuxed("alac.mov", "-i", end, "-c:v", "copy", "-c:a", "alac"), 0, 3 * time.Second},
		"edit list":            {remuxed("edits.mp4", "-ss", "3.3", "-i", end, "-c", "copy"), 10100 * time.Millisecond, 11500 * time.Millisecond},
		"late sound": {remuxed("late.mp4", "-i", end, "-itsoffset", "12.7", "-i", end, "-map", "0:v", "-map", "1:a", "-c", "copy"),
			20 * time.Second, 21500 * time.Millisecond},
		"two tracks, index first, tail": {remuxed("two.mp4", "-i", end, "-f", "lavfi", "-i", "sine=300:d=30", "-movflags", "+faststart", "-map", "0", "-map", "1", "-c:v", "copy",
			"-c:a:0", "copy", "-c:a:1", "aac", "-disposition:a:0", "0", "-disposition:a:1", "default"), 26 * time.Second, 0},
	} {
		a := c.put(f.path)
		parts, read, err := c.cutBy(c.fetchStretch, a, f.from, f.to)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		all, _, err := c.cutBy(c.fetchWhole, a, f.from, f.to)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(parts, all) {
			t.Errorf("%s: the cuts from parts (%d bytes) and from the whole (%d bytes) differ", name, len(parts), len(all))
		}
		if read > a.SizeBytes*2/5 {
			t.Errorf("%s: %d of %d bytes were read", name, read, a.SizeBytes)
		}
	}
}

func TestSomeAssetsAreFetchedWhole(t *testing.T) {
	t.Parallel()
	c := newCutter(t)
	film := filepath.Join(t.TempDir(), "film.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "sine=d=3", film)
	for name, path := range map[string]string{"small": film, "not an mp4": padded(t, mediatest.Tone(t, 440, time.Second)),
		"fragmented": padded(t, mediatest.Remux(t, film, "mp4", "-movflags", "frag_keyframe+empty_moov"))} {
		if _, _, err := c.cutBy(c.fetchStretch, c.put(path), 0, time.Second); !errors.Is(err, asset.ErrWhole) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := c.put(film)
	if err := c.bucket.Delete(t.Context(), gone.Key.String()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.cutBy(c.fetchWhole, gone, 0, time.Second); !errors.Is(err, errNoAsset) {
		t.Errorf("an asset removed after it was found: %v", err)
	}
	// Reading the whole asset detects bytes that do not match the hash in the key.
	film = padded(t, film)
	a := c.put(film)
	if err := c.bucket.Put(t.Context(), a.Key.String(), padded(t, film), "video/mp4"); err != nil {
		t.Fatal(err)
	}
	spoilt, _ := c.Assets.Lookup(t.Context(), []string{a.Key.String()})
	for name, found := range map[string]asset.Found{"unproven": spoilt[0], "replaced since it was found": a} {
		if _, _, err := c.cutBy(c.fetchStretch, found, 0, time.Second); !errors.Is(err, asset.ErrWhole) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCutsOfRealMediaFromParts(t *testing.T) {
	dir := os.Getenv("CUTROOM_MEDIA_DIR")
	if dir == "" {
		t.Skip("CUTROOM_MEDIA_DIR is not set")
	}
	t.Parallel()
	c := newCutter(t)
	paths, err := filepath.Glob(filepath.Join(dir, "*.m*4*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no media: %v", err)
	}
	for _, path := range paths {
		a := c.put(padded(t, path))
		parts, _, partErr := c.cutBy(c.fetchStretch, a, 2500*time.Millisecond, 3700*time.Millisecond)
		all, _, err := c.cutBy(c.fetchWhole, a, 2500*time.Millisecond, 3700*time.Millisecond)
		if (err == nil) != (partErr == nil) && !errors.Is(partErr, asset.ErrWhole) || partErr == nil && !bytes.Equal(parts, all) {
			t.Errorf("%s: %d bytes, %v; whole %d, %v", filepath.Base(path), len(parts), partErr, len(all), err)
		}
		t.Logf("%s: %v; %v", filepath.Base(path), partErr, err)
	}
}
