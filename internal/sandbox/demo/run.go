package demo

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/demo/meter"
	"cutroom/internal/sandbox/demo/picture"
	"cutroom/internal/sandbox/demo/sound"
	"cutroom/internal/sandbox/system"
)

// gather makes the clips and the music, or takes the user's.
func (r *run) gather(ctx context.Context) error {
	if len(r.videos) > 0 {
		if err := r.step("Look at your films", func(*step) (string, error) { return r.ownClips(ctx) }); err != nil {
			return err
		}
	} else if err := r.drawnClips(ctx); err != nil {
		return err
	}
	if r.music != "" {
		r.result.music = r.music
		return nil
	}
	return r.step("Compose music", func(*step) (string, error) {
		path, err := compose(ctx, filepath.Join(r.out, "clips"))
		r.result.music = path
		return fmt.Sprintf("%.1f s at 100 beats a minute", (6 * sound.Bar).Seconds()), err
	})
}

// drawnClips shoots the demonstration's own two clips.
func (r *run) drawnClips(ctx context.Context) error {
	err := r.step("Record dialogue", func(*step) (string, error) {
		if r.speech != "" {
			return "your recording over music", record(ctx, r.scratch, r.speech)
		}
		return "two voices over music", record(ctx, r.scratch, "")
	})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name, file string
		scene      picture.Scene
		length     time.Duration
	}{{"Clip A", "dusk", picture.NewDusk(), duskLength}, {"Clip B", "aurora", picture.NewAurora(), auroraLength}} {
		path := r.path("clips/" + c.file + ".mp4")
		err := r.step("Shoot "+strings.ToLower(c.name), func(on *step) (string, error) {
			drawing := func(share float64) { on.update(share, "drawing") }
			err := shoot(ctx, c.scene, c.length, filepath.Join(r.scratch, c.file+".wav"), path, drawing)
			width, height := c.scene.Size()
			return fmt.Sprintf("%d×%d, %d fps, %.0f s", width, height, c.scene.Rate(), c.length.Seconds()), err
		})
		if err != nil {
			return err
		}
		width, height := c.scene.Size()
		lamp := c.scene.Lamp()
		r.clips = append(r.clips, clip{name: c.name, path: path, width: width, height: height,
			rate: big.NewRat(int64(c.scene.Rate()), 1), length: c.length, lamp: &lamp})
	}
	return nil
}

// ownClips looks at the user's films. The first one needs a voice to separate:
// where it has no sound, or --speech brings some, it gets one.
func (r *run) ownClips(ctx context.Context) (string, error) {
	var about []string
	for i, path := range r.videos {
		c, hasSound, err := probeClip(ctx, path)
		if err != nil {
			return "", err
		}
		if i == 0 && (r.speech != "" || !hasSound) {
			if c.path, err = r.dub(ctx, c); err != nil {
				return "", err
			}
		}
		r.clips = append(r.clips, c)
		about = append(about, fmt.Sprintf("%d×%d %s", c.width, c.height, rateText(c.rate)))
	}
	return strings.Join(about, ", "), nil
}

// dub gives a film of the user another sound track: speech over music.
func (r *run) dub(ctx context.Context, c clip) (string, error) {
	length := min(c.length, ownLongest)
	var voice *sound.Wave
	var err error
	if r.speech != "" {
		voice, err = ownSpeech(ctx, r.speech, length)
	} else if err = checkTools(true); err == nil {
		voice, err = sound.Dialogue(ctx, sound.Script(lead), length)
	}
	if err != nil {
		return "", err
	}
	track := filepath.Join(r.scratch, "dub.wav")
	if err := talk(voice).WriteWAV(track); err != nil {
		return "", err
	}
	path := r.path("clips/dubbed" + filepath.Ext(c.path))
	codec := "aac"
	if strings.EqualFold(filepath.Ext(c.path), ".webm") {
		codec = "libopus"
	}
	return path, ffmpeg(ctx, "dub "+c.name, nil, "-i", "file:"+c.path, "-i", "file:"+track, "-map", "0:v:0", "-map", "1:a",
		"-c:v", "copy", "-c:a", codec, "-b:a", "192k", "file:"+path)
}

// connect finds the service, or starts a sandbox, and signs in. stop ends what
// was started.
func (r *run) connect(ctx context.Context) (stop func() error, err error) {
	stop = func() error { return nil }
	identity := r.identity
	if r.baseURL == "" {
		err := r.step("Start a sandbox", func(*step) (string, error) {
			s, end, err := r.startSandbox(ctx)
			if err != nil {
				return "", err
			}
			stop, identity, r.baseURL = end, s.World.ProviderA.URL(), s.BaseURL
			return s.BaseURL, nil
		})
		if err != nil {
			return nil, err
		}
	}
	r.client = newClient(r.baseURL)
	if err := r.step("Sign in", func(*step) (string, error) { return r.signIn(ctx, identity) }); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// startSandbox starts the stand-ins and the service with a data folder of its
// own. It has to outlive ctx: the service drains against the stand-ins.
func (r *run) startSandbox(ctx context.Context) (*system.System, func() error, error) {
	log, err := os.Create(r.path("service.log"))
	if err != nil {
		return nil, nil, fmt.Errorf("open the service's log: %w", err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, end)
	s, err := system.Start(life, system.Options{Cutroom: r.cutroom, Log: log,
		World: sandbox.Options{DataDir: filepath.Join(r.scratch, "sandbox"), Bucket: true, Processing: 4 * time.Second}})
	if err == nil && !detach() {
		err = errors.Join(context.Cause(ctx), s.Stop(life))
	}
	if err != nil {
		end()
		return nil, nil, errors.Join(err, log.Close())
	}
	return s, func() error {
		defer end()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return errors.Join(s.Stop(stopping), log.Close())
	}, nil
}

func (r *run) signIn(ctx context.Context, identity string) (string, error) {
	who := "with the given token"
	if r.token != "" {
		r.client.token = r.token
	} else {
		// A new account each time, so that the signup bonus is seen.
		email := fmt.Sprintf("demo-%s@sandbox.example", r.began.UTC().Format("20060102-150405.000"))
		idToken, err := mint(ctx, identity, email, "Dee Demo")
		if err != nil {
			return "", err
		}
		if err := r.client.signIn(ctx, idToken); err != nil {
			return "", err
		}
		who = "as " + email
	}
	var err error
	if r.account.before, err = r.client.balance(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %d credits", who, r.account.before), nil
}

// job is the main job: separate, then render in three ways.
func (r *run) job(ctx context.Context) error {
	media, err := meter.Probe(ctx, r.result.music)
	if err != nil {
		return fmt.Errorf("--music: %w", err)
	}
	if media.Audio == nil {
		return fmt.Errorf("--music: %s holds no sound", r.result.music)
	}
	length := media.Audio.End
	if length == 0 {
		length = media.Length
	}
	r.result.film = edit(r.clips, length.Truncate(time.Millisecond))
	status, err := r.separate(ctx)
	if err != nil {
		return err
	}
	if err := r.downloadStems(ctx, status); err != nil {
		return err
	}
	urls := stemURLs{}
	for _, s := range status.Stems {
		switch s.StemID {
		case voiceStem:
			urls.voice = s.URL
		case backgroundStem:
			urls.background = s.URL
		}
	}
	if err := r.renderParts(ctx, urls); err != nil {
		return err
	}
	if err := r.renderByReference(ctx, urls); err != nil {
		return err
	}
	if err := r.renderSound(ctx, urls); err != nil {
		return err
	}
	r.account.after, err = r.client.balance(ctx)
	return err
}

// separate takes the first clip's sound, asks the price and has it separated.
func (r *run) separate(ctx context.Context) (jobStatus, error) {
	var status jobStatus
	r.result.audio = filepath.Join(r.scratch, "voice-and-background.m4a")
	err := r.step("Ask the price", func(*step) (string, error) {
		if err := extract(ctx, r.clips[0].path, r.result.audio); err != nil {
			return "", err
		}
		media, err := meter.Probe(ctx, r.result.audio)
		if err != nil {
			return "", err
		}
		q, err := r.client.quote(ctx, media.Length)
		if err != nil {
			return "", err
		}
		r.account.price = q.Credits
		if !q.Sufficient {
			return "", fmt.Errorf("%d credits needed, %d there", q.Credits, q.Balance)
		}
		return fmt.Sprintf("%.1f s of sound cost %d of %d credits", media.Length.Seconds(), q.Credits, q.Balance), nil
	})
	if err != nil {
		return status, err
	}
	err = r.step("Separate the voice", func(on *step) (string, error) {
		id, err := r.client.separate(ctx, r.result.audio, on)
		if err != nil {
			return "", err
		}
		if status, err = r.client.wait(ctx, "/api/v2/separate/"+id, "READY", on); err != nil {
			return "", err
		}
		var labels []string
		for _, s := range status.Stems {
			labels = append(labels, s.Label)
		}
		return strings.Join(labels, ", "), nil
	})
	return status, err
}

// extract takes a film's sound out. AAC is copied as it is; anything else is
// encoded, from time zero on.
func extract(ctx context.Context, film, audio string) error {
	media, err := meter.Probe(ctx, film)
	if err != nil {
		return err
	}
	args := []string{"-i", "file:" + film, "-map", "0:a:0", "-vn"}
	if media.Audio != nil && media.Audio.Codec == "aac" && media.Audio.Start == 0 {
		args = append(args, "-c:a", "copy")
	} else {
		args = append(args, "-af", "aresample=48000:first_pts=0", "-c:a", "aac", "-b:a", "192k")
	}
	return ffmpeg(ctx, "take the sound out", nil, append(args, "-movflags", "+faststart", "file:"+audio)...)
}

func (r *run) downloadStems(ctx context.Context, status jobStatus) error {
	r.result.stems = map[string]string{}
	r.result.stemLength = time.Duration(status.ActualDurationMs) * time.Millisecond
	return r.step("Download the stems", func(on *step) (string, error) {
		for i, s := range status.Stems {
			path, err := r.client.fetch(ctx, s.URL, r.path("stems/"+filepath.Base(s.StemID)), func(share float64) {
				on.update((float64(i)+share)/float64(len(status.Stems)), s.Label)
			})
			if err != nil {
				return "", err
			}
			r.result.stems[s.StemID] = path
			r.files = append(r.files, "stems/"+filepath.Base(path))
		}
		return fmt.Sprintf("%d files", len(status.Stems)), nil
	})
}

// finish waits for a render and downloads it.
func (r *run) finish(ctx context.Context, id, name string, on *step) (string, error) {
	if _, err := r.client.wait(ctx, "/api/v2/render/"+id+"/status", "COMPLETED", on); err != nil {
		return "", err
	}
	stem := strings.TrimSuffix(r.path(name), filepath.Ext(name))
	path, err := r.client.fetch(ctx, r.client.base+"/api/v2/render/"+id+"/download", stem, func(share float64) { on.update(share, "downloading") })
	if err == nil && path != r.path(name) {
		err = fmt.Errorf("the service calls the file %s, not %s", filepath.Base(path), name)
	}
	r.files = append(r.files, name)
	return name, err
}

func (r *run) renderParts(ctx context.Context, urls stemURLs) error {
	r.result.video = r.path("film.mp4")
	return r.step("Render the film", func(on *step) (string, error) {
		names := r.result.film.parts()
		id, err := r.client.render(ctx, r.result.film.config(names, urls, "video", false), names, r.clips, r.result.music, on)
		if err != nil {
			return "", err
		}
		return r.finish(ctx, id, "film.mp4", on)
	})
}

// renderByReference uploads the media to the object store and renders the same
// film from there.
func (r *run) renderByReference(ctx context.Context, urls stemURLs) error {
	var keys sources
	began := time.Now()
	on := r.screen.begin("Upload by reference")
	defer on.fail()
	paths := []string{}
	for _, c := range r.clips {
		paths = append(paths, c.path)
	}
	for i, path := range append(paths, r.result.music) {
		key, err := r.client.upload(ctx, path, func(share float64) {
			on.update((float64(i)+share)/float64(len(paths)+1), filepath.Base(path))
		})
		if errors.Is(err, errNoObjectStore) {
			on.skip("the service has no object store")
			return nil
		}
		if err != nil {
			return err
		}
		keys.clips = append(keys.clips, key)
	}
	keys.clips, keys.music = keys.clips[:len(paths)], keys.clips[len(paths)]
	on.done(fmt.Sprintf("%d files by presigned PUT", len(paths)+1))
	r.took = append(r.took, stage{"Upload by reference", time.Since(began)})
	r.result.v3 = r.path("film-v3.mp4")
	return r.step("Render v3", func(on *step) (string, error) {
		id, err := r.client.renderAssets(ctx, r.result.film.config(keys, urls, "video", true))
		if err != nil {
			return "", err
		}
		return r.finish(ctx, id, "film-v3.mp4", on)
	})
}

func (r *run) renderSound(ctx context.Context, urls stemURLs) error {
	r.result.sound = r.path("film.m4a")
	return r.step("Render the sound alone", func(on *step) (string, error) {
		names := r.result.film.parts()
		id, err := r.client.render(ctx, r.result.film.config(names, urls, "audio", false), names, r.clips, r.result.music, on)
		if err != nil {
			return "", err
		}
		return r.finish(ctx, id, "film.m4a", on)
	})
}
