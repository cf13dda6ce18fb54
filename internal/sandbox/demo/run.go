// The steps of the demonstration in order: media, connection, separation, renders. demo.go prints them.

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/system"
)

// gather generates the clips and the music, or uses the user's.
func (r *run) gather(ctx context.Context) error {
	if len(r.videos) > 0 {
		if err := r.step("Look at your films", func(*step) (string, error) { return r.ownClips(ctx) }); err != nil {
			return err
		}
	} else if err := r.step("Shoot the clips", func(*step) (string, error) { return r.drawnClips(ctx) }); err != nil {
		return err
	}
	if r.music != "" {
		r.result.music = r.music
		return nil
	}
	return r.step("Compose music", func(*step) (string, error) {
		r.result.music = r.path("clips/music.m4a")
		return fmt.Sprintf("%.1f s, six bars", songLength.Seconds()), compose(ctx, r.result.music)
	})
}

// drawnClips generates the demonstration's own two clips, the first with a dialogue or the user's recording.
func (r *run) drawnClips(ctx context.Context) (string, error) {
	voice, err := speak(ctx, r.scratch, r.speech)
	if err != nil {
		return "", err
	}
	r.clips, err = shootAll(ctx, voice, r.path("clips"))
	return about(r.clips), err
}

// about describes clips in a few words.
func about(clips []clip) string {
	var all []string
	for _, c := range clips {
		all = append(all, fmt.Sprintf("%d×%d %s", c.width, c.height, rateText(c.rate)))
	}
	return strings.Join(all, ", ")
}

// ownClips probes the user's films. The first one needs a voice to separate. If it has no sound, or if --speech
// provides a recording, it is dubbed.
func (r *run) ownClips(ctx context.Context) (string, error) {
	for i, path := range r.videos {
		c, err := probeClip(ctx, path)
		if err != nil {
			return "", err
		}
		if i == 0 && (r.speech != "" || c.silent) {
			if err := checkTools(r.speech == ""); err != nil {
				return "", err
			}
			voice, err := speak(ctx, r.scratch, r.speech)
			if err != nil {
				return "", err
			}
			dubbed := r.path("clips/dubbed" + filepath.Ext(c.path))
			if err := dub(ctx, c, voice, dubbed); err != nil {
				return "", err
			}
			c.path, c.silent = dubbed, false
		}
		r.clips = append(r.clips, c)
	}
	return about(r.clips), nil
}

// connect finds the service, or starts a sandbox, and signs in. stop ends what it started.
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

// startSandbox starts the stand-ins and the service with their own data folder.
func (r *run) startSandbox(ctx context.Context) (*system.System, func() error, error) {
	log, err := os.Create(r.path("service.log"))
	if err != nil {
		return nil, nil, fmt.Errorf("open the service's log: %w", err)
	}
	s, err := system.Start(ctx, system.Options{Cutroom: r.cutroom, Log: log,
		World: sandbox.Options{DataDir: filepath.Join(r.scratch, "sandbox"), Bucket: true, Processing: 4 * time.Second}})
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	return s, func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return errors.Join(s.Stop(stopping), log.Close())
	}, nil
}

func (r *run) signIn(ctx context.Context, identity string) (string, error) {
	who := "with the given token"
	if r.token != "" {
		r.client.Token = r.token
	} else {
		// Use a new account each time, so that the signup bonus is visible.
		email := fmt.Sprintf("demo-%s@sandbox.example", r.began.UTC().Format("20060102-150405.000"))
		idToken, err := mint(ctx, identity, email, "Dee Demo")
		if err != nil {
			return "", err
		}
		if _, err := r.client.SignIn(ctx, idToken); err != nil {
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

// job runs the main job: separate, then render in three ways, and a film with a look.
func (r *run) job(ctx context.Context) error {
	m, err := probe(ctx, r.result.music)
	if err != nil {
		return fmt.Errorf("--music: %w", err)
	}
	if m.First("audio").Codec == "" {
		return fmt.Errorf("--music: %s holds no sound", r.result.music)
	}
	r.result.film = edit(r.clips, m.Length("audio").Truncate(time.Millisecond))
	if err := r.separate(ctx); err != nil {
		return err
	}
	if err := r.downloadStems(ctx); err != nil {
		return err
	}
	r.result.video, r.result.sound = r.path("film.mp4"), r.path("film.m4a")
	if err := r.render(ctx, "Render the film", "video", "film.mp4"); err != nil {
		return err
	}
	if err := r.renderByReference(ctx); err != nil {
		return err
	}
	if err := r.render(ctx, "Render the sound alone", "audio", "film.m4a"); err != nil {
		return err
	}
	if err := r.renderLook(ctx); err != nil {
		return err
	}
	r.account.after, err = r.client.balance(ctx)
	return err
}

// separate extracts the first clip's sound, requests the price and separates it.
func (r *run) separate(ctx context.Context) error {
	r.result.audio = filepath.Join(r.scratch, "voice-and-background.m4a")
	err := r.step("Ask the price", func(*step) (string, error) {
		if err := extract(ctx, r.clips[0].path, r.result.audio); err != nil {
			return "", err
		}
		m, err := probe(ctx, r.result.audio)
		if err != nil {
			return "", err
		}
		q, err := r.client.quote(ctx, m.Duration)
		if err != nil {
			return "", err
		}
		r.account.price = q.Credits
		if !q.Sufficient {
			return "", fmt.Errorf("%d credits needed, %d there", q.Credits, q.Balance)
		}
		return fmt.Sprintf("%.1f s of sound cost %d of %d credits", m.Duration.Seconds(), q.Credits, q.Balance), nil
	})
	if err != nil {
		return err
	}
	return r.step("Separate the voice", func(on *step) (string, error) {
		id, err := r.client.separate(ctx, r.result.audio, on)
		if err != nil {
			return "", err
		}
		status, err := r.client.wait(ctx, "/api/v2/separate/"+id, "READY", on)
		r.result.stems = status.Stems
		var labels []string
		for _, s := range status.Stems {
			labels = append(labels, s.Label)
		}
		return strings.Join(labels, ", "), err
	})
}

// extract extracts a film's sound from time zero. It copies AAC and encodes anything else.
func extract(ctx context.Context, film, audio string) error {
	m, err := probe(ctx, film)
	if err != nil {
		return err
	}
	args := []string{"-i", "file:" + film, "-map", "0:a:0", "-vn"}
	if sound := m.First("audio"); sound.Codec == "aac" && sound.Start == 0 {
		args = append(args, "-c:a", "copy")
	} else {
		args = append(args, "-af", "aresample=48000:first_pts=0", "-c:a", "aac", "-b:a", "192k")
	}
	return ffmpeg(ctx, "take the sound out", append(args, "-movflags", "+faststart", "file:"+audio)...)
}

func (r *run) downloadStems(ctx context.Context) error {
	stems := r.result.stems
	return r.step("Download the stems", func(on *step) (string, error) {
		for i, s := range stems {
			path, err := r.client.fetch(ctx, s.URL, r.path("stems/"+filepath.Base(s.StemID)), func(share float64) {
				on.update((float64(i)+share)/float64(len(stems)), s.Label)
			})
			if err != nil {
				return "", err
			}
			stems[i].path = path
			r.files = append(r.files, "stems/"+filepath.Base(path))
		}
		return fmt.Sprintf("%d files", len(stems)), nil
	})
}

// finish waits for a render and downloads it.
func (r *run) finish(ctx context.Context, id, name string, on *step) (string, error) {
	if _, err := r.client.wait(ctx, "/api/v2/render/"+id+"/status", "COMPLETED", on); err != nil {
		return "", err
	}
	stem := strings.TrimSuffix(r.path(name), filepath.Ext(name))
	path, err := r.client.fetch(ctx, r.client.Base+"/api/v2/render/"+id+"/download", stem,
		func(share float64) { on.update(share, "downloading") })
	if err == nil && path != r.path(name) {
		err = fmt.Errorf("the service calls the file %s, not %s", filepath.Base(path), name)
	}
	r.files = append(r.files, name)
	return name, err
}

// render submits the film, or its sound, as a multipart submission.
func (r *run) render(ctx context.Context, title, kind, file string) error {
	return r.step(title, func(on *step) (string, error) {
		names := r.result.film.parts()
		id, err := r.client.render(ctx, r.result.config(names, kind), names, r.clips, r.result.music, on)
		if err != nil {
			return "", err
		}
		return r.finish(ctx, id, file, on)
	})
}

// renderByReference uploads the media to the object store and renders the same film from there.
func (r *run) renderByReference(ctx context.Context) error {
	keys := sources{assets: true}
	err := r.step("Upload by reference", func(on *step) (string, error) {
		for i := range len(r.clips) + 1 {
			path := r.result.music
			if i < len(r.clips) {
				path = r.clips[i].path
			}
			key, err := r.client.upload(ctx, path, func(share float64) {
				on.update((float64(i)+share)/float64(len(r.clips)+1), filepath.Base(path))
			})
			if err != nil {
				return "", err
			}
			keys.clips, keys.music = append(keys.clips, key), key
		}
		return fmt.Sprintf("%d files by presigned PUT", len(keys.clips)), nil
	})
	if errors.Is(err, errNoObjectStore) {
		return nil
	}
	if err != nil {
		return err
	}
	r.result.v3 = r.path("film-v3.mp4")
	return r.step("Render v3", func(on *step) (string, error) {
		id, err := r.client.renderAssets(ctx, r.result.config(keys, "video"))
		if err != nil {
			return "", err
		}
		return r.finish(ctx, id, "film-v3.mp4", on)
	})
}
