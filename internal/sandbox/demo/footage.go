// Makes the demonstration's media with ffmpeg and espeak-ng: the clips, their spoken dialogue, and the music.

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/sandbox/measure"
	"cutroom/internal/sandbox/process"
)

// The music's grid: four beats to a bar.
const (
	bar = 2800 * time.Millisecond
	// lead is the time in both clips before the music's first bar. It is trimmed away, and it keeps the ticks at whole
	// seconds off most beats.
	lead       = 500 * time.Millisecond
	songLength = 6 * bar
)

// tick is a chirp of 24 ms at every whole second. Its pitch rises so fast that it can be located to a fraction of a
// millisecond under music and speech.
const tick = "lt(mod(t,1),.024)*sqrt(max(0,.5-.5*cos(2*PI*mod(t,1)/.024)))*sin(2*PI*(6500*mod(t,1)+104167*pow(mod(t,1),2)))"

// The layers of the music, as expressions for ffmpeg's aevalsrc. ld(0) is the root of the bar's chord in Hz, ld(1) its
// third; %g is the side, -1 or 1.
const (
	chords = "0*(st(2,mod(floor(t/2.8),4))+st(0,110*pow(2,if(eq(ld(2),0),0,if(eq(ld(2),1),-4,if(eq(ld(2),2),3,-2)))/12))" +
		"+st(1,if(eq(ld(2),0),1.1892,1.2599)))"
	bell  = "(1-exp(-4*mod(t,2.8)))*exp(-.3*mod(t,2.8))*(1-exp(-25*(2.8-mod(t,2.8))))"
	swell = "(sin(ld(0)*(2+.006*%[1]g)*PI*2*t)+sin(ld(0)*ld(1)*(2-.005*%[1]g)*PI*2*t)" +
		"+sin(ld(0)*1.4983*(2+.004*%[1]g)*PI*2*t)+.5*sin(ld(0)*(4-.007*%[1]g)*PI*2*t))"
	pluck = "(1+%[1]g*.7*sin(floor(t/.35)*2.1))*exp(-5*mod(t,.35))*(1-exp(-500*mod(t,.35)))*(1-exp(-150*(.35-mod(t,.35))))"
	arp   = "sin(ld(0)*if(eq(mod(floor(t/.35),4),0),4," +
		"if(eq(mod(floor(t/.35),4),1),4*ld(1),if(eq(mod(floor(t/.35),4),2),5.9932,8)))*PI*2*mod(t,.35))"
	bass = "sin(ld(0)*PI*2*mod(t,.7))*exp(-3*mod(t,.7))*(1-exp(-200*mod(t,.7)))*(1-exp(-90*(.7-mod(t,.7))))"
	kick = "sin(2*PI*(46*mod(t,1.4)+2.6*(1-exp(-32*mod(t,1.4)))))*exp(-8*mod(t,1.4))"
	hat  = "(random(3)-.5)*exp(-55*mod(t+.35,.7))"
)

// play returns a source that plays the sum of the expressions on both sides.
func play(length time.Duration, layers ...string) string {
	sum := chords + "+" + strings.Join(layers, "+")
	return fmt.Sprintf("aevalsrc=exprs='%s|%s':s=48000:d=%g", fmt.Sprintf(strings.ReplaceAll(sum, "%[1]g", "%[1]d"), -1),
		fmt.Sprintf(strings.ReplaceAll(sum, "%[1]g", "%[1]d"), 1), length.Seconds())
}

// song returns the music under the film; radio and night play in the clips.
func song() string {
	return play(songLength, ".05*"+bell+"*"+swell, ".075*"+pluck+"*"+arp, ".17*"+bass, ".22*"+kick, ".05*"+hat) +
		",aecho=.9:.7:350|525:.28|.18,lowpass=f=9000,afade=t=out:st=16.3:d=0.5"
}

func radio(length time.Duration) string {
	return play(length-lead, ".028*"+bell+"*"+strings.ReplaceAll(swell, "ld(0)", "2*ld(0)"),
		".05*"+pluck+"*"+strings.ReplaceAll(arp, "ld(0)", "2*ld(0)")) +
		",aecho=.9:.7:240:.25,lowpass=f=5000"
}

func night(length time.Duration) string {
	return play(length-lead, ".045*"+bell+"*"+strings.ReplaceAll(swell, "ld(0)", "1.5*ld(0)")) +
		",tremolo=f=1.4:d=.5,aecho=.9:.7:420|610:.4|.3,lowpass=f=4000"
}

// soundtrack returns a filter graph that ends in [sound]: music after the lead and, if requested, a voice (the
// first input) and ticks over it.
func soundtrack(music string, length time.Duration, voice, ticks bool) string {
	graph, parts := fmt.Sprintf("%s,adelay=%[2]d|%[2]d,asetpts=N/SR/TB[music];", music, lead.Milliseconds()), "[music]"
	if voice {
		graph, parts = graph+"[0:a]pan=stereo|c0=c0|c1=c0[voice];", parts+"[voice]"
	}
	if ticks {
		graph += fmt.Sprintf("aevalsrc=exprs='.075*%[1]s|.075*%[1]s':s=48000:d=%[2]g[ticks];", tick, length.Seconds())
		parts += "[ticks]"
	}
	return fmt.Sprintf("%s%samix=inputs=%d:duration=longest:normalize=0,apad,atrim=duration=%g,asetnsamples=1024[sound]",
		graph, parts, strings.Count(parts, "["), length.Seconds())
}

// shootAll generates the demonstration's clips in parallel. Only the first one has a voice.
func shootAll(ctx context.Context, voice, dir string) (clips []clip, err error) {
	var all errgroup.Group
	for _, s := range scenes {
		c, said := s.clip(filepath.Join(dir, s.file+".mp4")), voice
		all.Go(func() error { return shoot(ctx, s, said, c.path) })
		clips, voice = append(clips, c), ""
	}
	return clips, all.Wait()
}

// shoot generates one of the demonstration's clips. voice is a file, or empty.
func shoot(ctx context.Context, s scene, voice, path string) error {
	var in []string
	music := night
	if voice != "" {
		in, music = []string{"-i", "file:" + voice}, radio
	}
	upright, turn := s.height > s.width, "null"
	if upright {
		turn = "transpose=cclock" // phones store upright films sideways
	}
	graph := s.picture() + ";[picture]" + turn + "[turned];" + soundtrack(music(s.length), s.length, voice != "", true)
	err := ffmpeg(ctx, "shoot "+filepath.Base(path), append(in, "-filter_complex", strings.ReplaceAll(graph, "\n", ""),
		"-map", "[turned]", "-map", "[sound]", "-t", fmt.Sprint(s.length.Seconds()),
		"-c:v", "libx264", "-preset", "veryfast", "-crf", "19", "-pix_fmt", "yuv420p", "-g", fmt.Sprint(s.rate),
		"-c:a", "aac", "-b:a", "192k", "-movflags", "+faststart", "file:"+path)...)
	if err != nil || !upright {
		return err
	}
	return measure.Turn(path, path, [4]int32{0, 1, -1, 0})
}

// script is the dialogue. Every line is spoken in one bar of the film and describes the sound there.
var script = []struct {
	at           time.Duration // after lead
	voice, pitch string
	text         string
}{
	{200 * time.Millisecond, "en-us+f3", "70", "Can you hear me, over all this music?"},
	{bar + 150*time.Millisecond, "en-us", "30", "Now I can: it was turned down."},
	{2*bar + 60*time.Millisecond, "en-us+f3", "70", "And back?"},
	{2*bar + 900*time.Millisecond, "en-us", "30", "Exactly as it was."},
}

// speak writes the dialogue, or the user's recording at the same loudness, to a file.
func speak(ctx context.Context, dir, own string) (string, error) {
	path := filepath.Join(dir, "voice.wav")
	if own != "" {
		return path, ffmpeg(ctx, "--speech", "-i", "file:"+own, "-map", "0:a:0", "-t", fmt.Sprint(ownLongest.Seconds()),
			"-af", fmt.Sprintf("aformat=channel_layouts=mono,loudnorm=I=-20:TP=-2,adelay=%d", lead.Milliseconds()), "-ar", "48000", "file:"+path)
	}
	var args []string
	var graph, all strings.Builder
	for i, line := range script {
		wav := filepath.Join(dir, fmt.Sprintf("line-%d.wav", i))
		if _, err := process.Output(ctx, "espeak-ng", "-v", line.voice, "-p", line.pitch, "-s", "168", "-w", wav, "--", line.text); err != nil {
			return "", fmt.Errorf("speak: %w", err)
		}
		args = append(args, "-i", "file:"+wav)
		fmt.Fprintf(&graph, "[%d:a]aresample=48000,adelay=%d[l%d];", i, (lead + line.at).Milliseconds(), i)
		fmt.Fprintf(&all, "[l%d]", i)
	}
	// Remove boom and hiss from the voice, so that it sits in front of music.
	fmt.Fprintf(&graph, "%samix=inputs=%d:normalize=0,highpass=f=95,equalizer=f=2800:t=q:w=1.1:g=2.5,lowpass=f=6000,volume=0.8[out]",
		all.String(), len(script))
	return path, ffmpeg(ctx, "speak", append(args, "-filter_complex", graph.String(), "-map", "[out]", "file:"+path)...)
}

// compose writes the song as the m4a file to upload.
func compose(ctx context.Context, path string) error {
	return ffmpeg(ctx, "compose music", "-f", "lavfi", "-i", song(), "-c:a", "aac", "-b:a", "192k", "-movflags", "+faststart", "file:"+path)
}

// dub gives a user's film another soundtrack: the voice over music.
func dub(ctx context.Context, c clip, voice, path string) error {
	codec := "aac"
	if strings.EqualFold(filepath.Ext(path), ".webm") {
		codec = "libopus"
	}
	length := min(c.length, ownLongest)
	return ffmpeg(ctx, "dub "+c.name, "-i", "file:"+voice, "-i", "file:"+c.path,
		"-filter_complex", soundtrack(radio(length), length, true, false),
		"-map", "1:v:0", "-map", "[sound]", "-c:v", "copy", "-c:a", codec, "-b:a", "192k", "file:"+path)
}

// Samples writes the demonstration's clips, its music, and the sound of its first clip as a recording to separate, into
// a new folder.
func Samples(ctx context.Context, dir string) (err error) {
	part, err := os.MkdirTemp(filepath.Dir(dir), ".samples-")
	if err != nil {
		return fmt.Errorf("make samples: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()
	voice, err := speak(ctx, part, "")
	if err != nil {
		return err
	}
	clips, err := shootAll(ctx, voice, part)
	if err != nil {
		return err
	}
	if err := compose(ctx, filepath.Join(part, "song.m4a")); err != nil {
		return err
	}
	err = ffmpeg(ctx, "record speech", "-i", "file:"+clips[0].path, "-vn", "-c:a", "copy", "file:"+filepath.Join(part, "speech.m4a"))
	if err != nil {
		return err
	}
	return os.Rename(part, dir)
}
