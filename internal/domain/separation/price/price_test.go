// The price of real, damaged and hostile files: the length that a decoder finds, and the limits on what finding it may
// cost.

package price

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/credit"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/film/media/container"
	"cutroom/internal/storage/staging"
	"cutroom/internal/testkit/benchtest"
	"cutroom/internal/testkit/mediatest"
)

func TestMain(m *testing.M) {
	confine.Main()
	os.Exit(m.Run())
}

func meter(t *testing.T) *Meter {
	t.Helper()
	runner, err := media.New(media.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &Meter{Media: runner, Slots: media.NewFairSlots(media.FairLimits{Slots: 2}), Wait: SlotWait, Log: slog.New(slog.DiscardHandler)}
}

// rich can pay for anything.
const rich = 1_000_000

func upload(t *testing.T, path string) staging.File {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return staging.File{Path: path, FileName: filepath.Base(path), SizeBytes: st.Size()}
}

// silence encodes silence of the given length.
func silence(t *testing.T, seconds float64, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	mediatest.FFmpeg(t, append(append([]string{"-f", "lavfi", "-i", "anullsrc=r=8000:cl=mono", "-t", fmt.Sprint(seconds)}, args...), path)...)
	return path
}

// patched copies a file and edits the content of each box with the given name.
func patched(t *testing.T, path, box string, edit func(content []byte)) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for at := 0; ; n++ {
		i := bytes.Index(b[at:], []byte(box))
		if i < 0 {
			break
		}
		at += i + 4
		edit(b[at:])
	}
	if n == 0 {
		t.Fatalf("no box %s in %s", box, path)
	}
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(out, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// The price depends on the audio in a file, even if the file declares another length.
func TestPriceFollowsTheRealLength(t *testing.T) {
	m := meter(t)
	fast := func(b []byte) { binary.BigEndian.PutUint32(b[12:], 1000*binary.BigEndian.Uint32(b[12:])) }
	glimpse := func(b []byte) { binary.BigEndian.PutUint32(b[8:], 2000) } // the edit list shows two seconds
	short := func(b []byte) { binary.LittleEndian.PutUint32(b, 8000) }
	aac, mp3 := []string{"-c:a", "aac", "-b:a", "16k"}, []string{"-ar", "44100", "-b:a", "32k"}
	boundary, long := silence(t, 301, "a.m4a", aac...), silence(t, 650, "a.m4a", aac...)
	for name, c := range map[string]struct {
		path  string
		price int64
	}{
		"wav at the boundary":          {silence(t, 301, "a.wav", "-c:a", "pcm_u8"), 1},
		"wav beyond it":                {silence(t, 301.1, "a.wav", "-c:a", "pcm_u8"), 2},
		"wav that declares too little": {patched(t, silence(t, 650, "a.wav", "-c:a", "pcm_u8", "-bitexact"), "data", short), 3},
		"padded mp3":                   {silence(t, 301, "a.mp3", mp3...), 1},
		"mp3 beyond it":                {silence(t, 301.1, "a.mp3", mp3...), 2},
		"primed m4a":                   {boundary, 1},
		"m4a beyond it":                {silence(t, 301.2, "a.m4a", aac...), 2},
		"m4a on a fast clock":          {patched(t, long, "mdhd", fast), 3},
		"m4a behind an edit list":      {patched(t, long, "elst", glimpse), 3},
		"m4a at the boundary, cut":     {patched(t, boundary, "elst", glimpse), 1},
		"five minutes of ADPCM":        {silence(t, 295, "a.wav", "-c:a", "adpcm_ms", "-block_size", "256"), 1},
		"Opus on a fast clock":         {patched(t, silence(t, 650, "a.mp4", "-c:a", "libopus"), "mdhd", fast), 3},
		"GSM in QuickTime, cut":        {patched(t, silence(t, 650, "a.mov", "-c:a", "libgsm"), "mdhd", fast), 3},
		"mp3 behind a comment":         {silence(t, 650, "a.mp3", "-b:a", "8k", "-metadata", "comment="+strings.Repeat("x", 100_000)), 3},
	} {
		got, err := m.Measure(t.Context(), "owner", rich, upload(t, c.path))
		if err != nil || credit.Price(got.DurationMs) != c.price {
			t.Errorf("%s: %d ms cost %d (%v), want %d", name, got.DurationMs, credit.Price(got.DurationMs), err, c.price)
		}
	}
}

// The content of a file decides whether it is accepted, not its name. A damaged mp3 is priced by its size. If its
// content is ambiguous, its name must have a matching extension.
func TestContentDecidesWhatIsAccepted(t *testing.T) {
	m := meter(t)
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "damaged")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const (
		audioBrand = "\x00\x00\x00\x18ftypM4A \x00\x00\x00\x00isomM4A "
		tag        = "ID3\x03\x00\x00\x00\x00\x00\x0aTIT2\x00\x00\x00\x00\x00\x00"
		syncWord   = "\xff\xfb\x90\x00"
	)
	noise := strings.Repeat("\x01\x9c\x37\xe2\x58", 4000)
	otherBrand := strings.Replace(audioBrand, "M4A ", "isom", 1)
	wav, mp3, m4a := silence(t, 1, "a.wav"), silence(t, 1, "a.mp3", "-b:a", "8k"), silence(t, 1, "a.m4a", "-c:a", "aac")
	film := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, Tone: 440})
	for _, c := range []struct {
		path, name string
		credits    int64 // 0 if the file is refused
	}{
		{mp3, "a.mp3", 1}, {mp3, "noextension", 1}, {m4a, "speech.mp4", 1}, {wav, "ウェーブ.bin", 1},
		{silence(t, 1, "a.flac"), "a.mp3", 0}, {silence(t, 1, "b.wav", "-f", "flac"), "b.wav", 0}, {silence(t, 1, "a.ogg", "-c:a", "libvorbis"), "a.ogg", 0},
		{silence(t, 1, "a.aac", "-c:a", "aac"), "a.aac", 0}, {silence(t, 1, "a.mkv", "-c:a", "aac"), "a.m4a", 0}, {film, "film.mp4", 0}, {film, "film.m4a", 0},
		{file("#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n"), "list.m4a", 0}, {file("ffconcat version 1.0\nfile a.wav\n"), "concat.wav", 0},

		{file(tag + noise), "damaged.MP3", 1}, {file(syncWord + noise), "damaged.mp3", 1},
		{file(tag + strings.Repeat(noise, 121)), "damaged", 2}, // 302.5 s at 8000 bytes/s
		{file("ID3 is a way to write titles into music\n"), "text.mp3", 0}, {file("\xff\xfet\x00e\x00x\x00t\x00"), "UTF-16.mp3", 0},
		{file(syncWord + noise), "", 0}, {file(syncWord + noise), "damaged.wav", 0}, {file(tag + noise), "damaged.m4a", 0},
		{file("ID3\x04\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00fLaC" + noise), "flac.mp3", 0},
		{file(audioBrand + noise), "damaged.mp4", 0}, {file(audioBrand + noise), "damaged.mp3", 0}, {file(otherBrand + noise), "", 0},
		{file(otherBrand), "no media.m4a", 0}, {file(audioBrand + "\x00\x00\x10\x00moov\x00\x00\x00\x21hdlr\x00\x00\x00\x00\x00\x00\x00\x00vide" + noise), "video.m4a", 0},
	} {
		f := upload(t, c.path)
		f.FileName = c.name
		got, err := m.Measure(t.Context(), "owner", rich, f)
		if c.credits == 0 && !errors.Is(err, errUnsupported) || c.credits > 0 && (err != nil || credit.Price(got.DurationMs) != c.credits) {
			t.Errorf("%s: %+v, %v, want %d credits", c.name, got, err, c.credits)
		}
	}
}

// If ffprobe cannot measure a file, its frames determine the price.
func TestUnmeasuredIsPricedByItsFrames(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "ffprobe")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	runner, err := media.New(media.Config{FFprobe: broken})
	if err != nil {
		t.Fatal(err)
	}
	m := meter(t)
	m.Media = runner
	got, err := m.Measure(t.Context(), "owner", rich, upload(t, silence(t, 650, "a.mp3", "-b:a", "8k")))
	if err != nil || got.DurationMs < 640_000 || got.DurationMs > 700_000 {
		t.Errorf("%+v, %v, want about 650 s", got, err)
	}
}

// The price agrees with what a plain decoder makes of the file, whatever the codec.
func TestLengthIsThatOfTheDecodedSound(t *testing.T) {
	m := meter(t)
	rate := func(hz string, codec ...string) []string { return append([]string{"-ar", hz, "-c:a"}, codec...) }
	files := []string{eld(t), undecodable(t)}
	for name, args := range map[string][]string{
		"ms.wav": rate("22050", "adpcm_ms", "-block_size", "256"), "ima.wav": rate("22050", "adpcm_ima_wav", "-block_size", "512"),
		"ima.mov": rate("44100", "adpcm_ima_qt"), "stereo.mov": rate("44100", "adpcm_ima_qt", "-ac", "2"),
		"yamaha.wav": rate("8000", "adpcm_yamaha"), "g722.wav": rate("16000", "g722"), "g726.wav": rate("8000", "g726", "-b:a", "24k"),
		"alaw.wav": rate("8000", "pcm_alaw"), "mulaw.mov": rate("8000", "pcm_mulaw"), "float.wav": rate("48000", "pcm_f32le"),
		"gsm.wav": rate("8000", "libgsm_ms"), "gsm.mov": rate("8000", "libgsm"), "low.mp3": rate("22050", "mp3"), "mp3.wav": rate("44100", "mp3"),
		"short.mp4": rate("48000", "libopus", "-frame_duration", "2.5"), "long.mp4": rate("48000", "libopus", "-frame_duration", "60"),
		"alac.m4a": rate("44100", "alac"), "ac3.mp4": rate("48000", "ac3"), "aac.m4a": rate("44100", "aac"),
	} {
		files = append(files, silence(t, 4, name, args...))
	}
	files = append(files, silence(t, 0.01, "moment.m4a", rate("48000", "aac")...))
	if dir := os.Getenv("CUTROOM_MEDIA_DIR"); dir != "" {
		for _, name := range []string{"adpcm_ms_211s.wav", "gsm_ms.wav", "mp3_in_wav.wav"} {
			files = append(files, filepath.Join(dir, "real", name))
		}
		files = append(files, mediatest.Remux(t, filepath.Join(dir, "real", "aac_he_v2.aac"), "m4a"))
	}
	for _, path := range files {
		name := filepath.Base(path)
		got, err := m.Measure(t.Context(), "owner", rich, upload(t, path))
		plain := int64(len(mediatest.Mono(t, path))) * 1000 / mediatest.SampleRate
		// ffmpeg 5.1 decodes the padding of the last packet as well.
		if diff := got.DurationMs - plain; err != nil || diff < -60 || diff > max(100, plain*3/1000) {
			t.Errorf("%s: %d ms (%v), a plain decoder makes %d ms", name, got.DurationMs, err, plain)
		}
	}
}

// eld makes an m4a with low-delay AAC, of which a packet has 512 samples: it replaces the decoder's configuration, and
// the packets by silent ones.
func eld(t *testing.T) string {
	t.Helper()
	path := silence(t, 4, "eld.m4a", "-ar", "48000", "-c:a", "aac", "-movflags", "+faststart")
	path = patched(t, path, "esds", func(b []byte) {
		at := bytes.Index(b, []byte{5, 0x80, 0x80, 0x80, 5}) // the tag of the configuration, and its length
		copy(b[at+5:], []byte{0xf8, 0xe6, 0x20, 0, 0})       // object type 39, 48 kHz, mono, 512 samples
	})
	path = patched(t, path, "stts", func(b []byte) {
		for i := range int(binary.BigEndian.Uint32(b[4:])) {
			binary.BigEndian.PutUint32(b[12+8*i:], 512)
		}
	})
	return patched(t, path, "mdat", func(b []byte) { clear(b) })
}

// undecodable makes an m4a whose second track has a codec that nobody knows.
func undecodable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "undecodable.m4a")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "anullsrc=r=48000:cl=mono", "-t", "5", "-map", "0", "-map", "0", "-c:a", "aac", path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[bytes.LastIndex(b, []byte("mp4a")):], "apac")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// declared makes an m4a whose index declares n samples of one byte each.
func declared(t *testing.T, n uint32, args ...string) string {
	t.Helper()
	path := silence(t, 1, "declared.m4a", append([]string{"-c:a", "aac"}, args...)...)
	path = patched(t, path, "stsz", func(b []byte) { binary.BigEndian.PutUint32(b[4:], 1); binary.BigEndian.PutUint32(b[8:], n) })
	path = patched(t, path, "stts", func(b []byte) { binary.BigEndian.PutUint32(b[8:], n); binary.BigEndian.PutUint32(b[12:], 1024) })
	path = patched(t, path, "stsc", func(b []byte) { binary.BigEndian.PutUint32(b[12:], n) })
	if err := os.Truncate(path, int64(n)+4096); err != nil {
		t.Fatal(err)
	}
	return path
}

// If the index shows that the balance is too low, the file is refused before ffprobe runs.
func TestIndexIsPricedFirst(t *testing.T) {
	m := meter(t)
	m.Media = nil // running ffprobe would panic
	for name, c := range map[string]struct {
		path    string
		balance int64
		want    string
	}{
		"more packets than any file has": {declared(t, 20_000_000), 1e6, "more than 2000000 packets"},
		"longer than the balance":        {declared(t, 2_000_000), 10, "required=854 balance=10"},
	} {
		_, err := m.Measure(t.Context(), "owner", c.balance, upload(t, c.path))
		if f := fault.As(err); f == nil || !strings.Contains(f.Answer()+f.Detail, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// A file is refused if it may last longer than it declares, or cannot be read to the end.
func TestUncountedIsRefused(t *testing.T) {
	m := meter(t)
	fast := func(b []byte) { binary.BigEndian.PutUint32(b[12:], 1000*binary.BigEndian.Uint32(b[12:])) }
	rate := func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 192000) }
	tracks := func(n int) string {
		path := filepath.Join(t.TempDir(), "tracks.m4a")
		args := []string{"-f", "lavfi", "-i", "anullsrc=r=8000:cl=mono", "-t", "0.2"}
		for range n {
			args = append(args, "-map", "0")
		}
		mediatest.FFmpeg(t, append(args, "-c:a", "aac", path)...)
		return path
	}
	frame := func(b []byte) {
		if binary.BigEndian.Uint32(b) == 0 { // the decoder configuration, not the sample entry that contains it
			binary.BigEndian.PutUint32(b[4:], 16384)
		}
	}
	ticks := func(b []byte) { binary.BigEndian.PutUint32(b[4:], 1); binary.BigEndian.PutUint32(b[12:], 1) }
	wide := []string{"-ar", "48000", "-strict", "-2"}
	headless := silence(t, 5, "a.m4a", "-c:a", "aac") // its index is at the end
	if err := os.Truncate(headless, 100); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, want string }{
		"FLAC on a fast clock":   {patched(t, silence(t, 5, "a.mp4", append(wide, "-c:a", "flac")...), "mdhd", fast), "cannot be counted"},
		"Vorbis on a fast clock": {patched(t, silence(t, 5, "a.mp4", append(wide, "-c:a", "libvorbis")...), "mdhd", fast), "cannot be counted"},
		"FLAC at a false rate":   {patched(t, silence(t, 5, "a.wav", "-c:a", "flac"), "fmt ", rate), "cannot be counted"},
		"ALAC in long packets":   {patched(t, silence(t, 5, "a.m4a", "-c:a", "alac"), "alac", frame), "cannot be counted"},
		"AAC, a tick a packet":   {patched(t, silence(t, 5, "a.m4a", "-c:a", "aac"), "stts", ticks), "cannot be counted"},
		"no index":               {headless, "cannot be opened"},
		"33 tracks":              {tracks(33), "more than 32 tracks"},
	} {
		_, err := m.Measure(t.Context(), "owner", rich, upload(t, c.path))
		if f := fault.As(err); f == nil || f.Kind != fault.Invalid || !strings.Contains(f.Answer(), c.want) {
			t.Errorf("%s: %v, want 400 %s", name, err, c.want)
		}
	}
	if got, err := m.Measure(t.Context(), "owner", rich, upload(t, tracks(32))); err != nil || credit.Price(got.DurationMs) != 1 {
		t.Errorf("32 tracks: %+v, %v", got, err)
	}
}

// An index whose boxes make readers stop or loop is refused at once, unless a plain decoder finds the sound in spite of
// it.
func TestAbsurdIndexIsRefused(t *testing.T) {
	m := meter(t)
	whole, err := os.ReadFile(silence(t, 4, "a.m4a", "-c:a", "aac", "-metadata", "title=A song"))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, box := range []string{"stbl", "stsz", "ilst"} {
		for _, size := range []uint32{0, 8, 1<<32 - 1} {
			name := fmt.Sprintf("%s of %d bytes", box, size)
			b := bytes.Clone(whole)
			binary.BigEndian.PutUint32(b[bytes.LastIndex(b, []byte(box))-4:], size)
			path := filepath.Join(t.TempDir(), "absurd.m4a")
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := m.Measure(t.Context(), "owner", rich, upload(t, path))
			if f := fault.As(err); err != nil && (f == nil || f.Kind != fault.Invalid) {
				t.Errorf("%s: %v, want 400", name, err)
			}
			if err != nil {
				refused++
			} else if got.DurationMs < 3900 || got.DurationMs > 4100 {
				t.Errorf("%s: %d ms", name, got.DurationMs)
			}
		}
	}
	if refused == 0 {
		t.Error("all are opened")
	}
}

// If ffprobe does not finish, the file is refused. Only a damaged file is priced by its size.
func TestUnfinishedAnalysisIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		kind container.Kind
		want fault.Kind // 0 means no error
	}{
		"damaged":                        {&media.ExitError{Code: 1, Stderr: "Invalid data found"}, container.MP4, 0},
		"out of memory":                  {&media.ExitError{Code: 1, Stderr: "a.m4a: Cannot allocate memory"}, container.MP4, fault.Invalid},
		"out of processor time":          {&media.ExitError{Code: -1, Signal: syscall.SIGXCPU}, container.MP4, fault.Invalid},
		"out of time":                    {media.ErrTimeout, container.MP4, fault.Invalid},
		"killed by somebody else":        {&media.ExitError{Code: -1, Signal: syscall.SIGKILL}, container.MP4, fault.Unavailable},
		"more packets than can be paid":  {media.ErrTooManyPackets, container.MP3, fault.PaymentRequired},
		"more packets than are analysed": {media.ErrTooManyPackets, container.WAV, fault.Invalid},
	} {
		f := fault.As(refused(fmt.Errorf("measure: %w", c.err), c.kind, 1))
		if c.want == 0 && f != nil || c.want != 0 && (f == nil || f.Kind != c.want) {
			t.Errorf("%s: %v, want kind %v", name, f, c.want)
		}
	}
}

// Concurrent uploads, of many users or of one, do not exceed the limits on ffprobe processes.
func TestAnalysisIsBounded(t *testing.T) {
	m := meter(t)
	var serial atomic.Int64
	by := func() string { return fmt.Sprint(serial.Add(1)) }
	small := upload(t, silence(t, 1, "small.mp3"))
	m.Wait = time.Minute
	most := func(by func() string) (n int) {
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				if _, err := m.Measure(t.Context(), by(), 1, small); err != nil {
					t.Errorf("judge: %v", err)
				}
			})
		}
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		for {
			select {
			case <-done:
				return n
			case <-time.After(5 * time.Millisecond):
				n = max(n, benchtest.Running(os.Getpid(), "ffprobe"))
			}
		}
	}
	if n := most(by); n == 0 || n > runtime.GOMAXPROCS(0) {
		t.Errorf("%d concurrent ffprobe, want 1 to %d", n, runtime.GOMAXPROCS(0))
	}
	if n := most(func() string { return "owner" }); n != 1 {
		t.Errorf("%d concurrent ffprobe for one user, want 1", n)
	}

	m.Wait = 20 * time.Millisecond
	release, err := m.Slots.Acquire(t.Context(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	_, err = m.Measure(t.Context(), "busy", 1, small)
	if f := fault.As(err); f == nil || f.Kind != fault.Unavailable || f.Code != "unavailable" || f.RetryAfter <= 0 {
		t.Errorf("without a free slot: %v, want 503 unavailable", err)
	}
	if _, err := m.Measure(t.Context(), "busy", 1, upload(t, silence(t, 1, "a.flac"))); !errors.Is(err, errUnsupported) {
		t.Errorf("a file refused for its content needed a slot: %v", err)
	}
}
