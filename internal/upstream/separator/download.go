// Downloads the stems of a finished project. The provider publishes flags and links late, so both are asked for again
// for some seconds.

package separator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"cutroom/internal/film/media/container"
)

// lagPauses are the pauses between polls for data that the provider publishes late: a project's flags, and a link
// that still returns 404. They add up to 12 s, which a user watches.
var lagPauses = []time.Duration{time.Second, time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}

// How many polls in a row must find the same stems before a project that has a voice but lacks other stems counts as
// complete.
const (
	settledPolls     = 3 // with a background: only the speakers or the combined voice are missing
	settledVoiceOnly = 5 // without
)

// Stems are the files of a finished project in the caller's folder.
type Stems struct {
	Voice      Stem   // all speakers together; without a path if there are only Speakers
	Background Stem   // without a path if the project has none
	Speakers   []Stem // one per speaker, in the provider's order; may be empty
}

// Stem is an audio file and its kind by content.
type Stem struct {
	Path string
	Kind container.Kind
}

// Download waits, for a limited time, for the flags of a finished project, looks up its links and downloads the
// existing stems into the caller's folder dir, which must exist. Files are named by content and format, such as
// voice.wav; a file with such a name is complete. On success there is at least one voice stem. The call may be
// repeated, even into the same folder.
func (c *Client) Download(ctx context.Context, projectID int64, dir string) (Stems, error) {
	p, err := c.settledProject(ctx, projectID)
	if err != nil {
		return Stems{}, err
	}
	var stems Stems
	var why error // why the voice is missing, if the provider gave a reason
	if p.Path.Voice != "" {
		stems.Voice, why = c.stem(ctx, dir, "voice", c.pathIn(projectID, func(p project) string { return p.Path.Voice }))
		if why != nil && !errors.Is(why, errMissing) {
			return Stems{}, why
		}
	}
	if p.Has.Speakers {
		if stems.Speakers, err = c.speakers(ctx, dir, projectID); err != nil && !errors.Is(err, errMissing) {
			return Stems{}, err
		}
		why = errors.Join(why, err)
	}
	if stems.Voice.Path == "" && len(stems.Speakers) == 0 {
		noVoice := &Error{Op: "download", Err: errNoVoice}
		if cause, ok := errors.AsType[*Error](why); ok {
			noVoice.Status = cause.Status
		}
		return Stems{}, noVoice
	}
	if stems.Background, err = c.background(ctx, dir, projectID, p); err != nil {
		return Stems{}, err
	}
	return stems, nil
}

// settledProject polls the project until it has every possible stem. A project may lack some: once there is a voice
// and several polls in a row found nothing new, the stems count as complete.
func (c *Client) settledProject(ctx context.Context, projectID int64) (project, error) {
	var before holding
	same := 0
	for poll := 0; ; poll++ {
		p, err := c.project(ctx, projectID)
		if err != nil {
			return p, err
		}
		now := p.holding()
		if now != before {
			before, same = now, 0
		}
		same++
		if poll == len(lagPauses) || now.complete(same) {
			return p, nil
		}
		if err := c.cfg.Sleep(ctx, lagPauses[poll]); err != nil {
			return p, err
		}
	}
}

// holding is the set of stems that a project has so far. It excludes links, which are signed again in each answer.
type holding struct{ voice, background, speakers, subBackground, subBackgroundPath bool }

func (p project) holding() holding {
	return holding{voice: p.Path.Voice != "", background: p.Path.Background != "", speakers: p.Has.Speakers,
		subBackground: p.Has.SubBackground, subBackgroundPath: p.Path.SubBackground != ""}
}

// complete reports whether no more stems are expected after this many polls with the same stems.
func (h holding) complete(polls int) bool {
	if h.voice && h.background && h.speakers {
		return true
	}
	settled := settledVoiceOnly
	if h.background || h.subBackground {
		settled = settledPolls
	}
	return (h.voice || h.speakers) && polls >= settled
}

// lookUp returns the current link of a stem, or "" if there is none.
type lookUp func(context.Context) (string, error)

// pathIn looks up a link in the project info at each call, because the signature of an earlier link may have expired
// during a download.
func (c *Client) pathIn(projectID int64, pick func(project) string) lookUp {
	return func(ctx context.Context) (string, error) {
		p, err := c.project(ctx, projectID)
		return pick(p), err
	}
}

func (c *Client) target(projectID int64, t target) lookUp {
	return func(ctx context.Context) (string, error) { return c.targetLink(ctx, projectID, t) }
}

// background downloads the first background stem that exists, or a sub-background; the Stem is empty if there is none.
func (c *Client) background(ctx context.Context, dir string, projectID int64, p project) (Stem, error) {
	var places []lookUp
	if p.Path.Background != "" {
		places = append(places, c.pathIn(projectID, func(p project) string { return p.Path.Background }))
	}
	if p.Path.SubBackground != "" {
		places = append(places, c.pathIn(projectID, func(p project) string { return p.Path.SubBackground }))
	}
	if p.Has.SubBackground {
		places = append(places, c.target(projectID, targetSubBackground))
	}
	for _, place := range places {
		stem, err := c.stem(ctx, dir, "background", place)
		if err == nil || !errors.Is(err, errMissing) {
			return stem, err
		}
	}
	return Stem{}, nil
}

// The limits of the archive of speaker tracks.
const (
	maxArchiveEntries = 64      // of any kind
	maxArchiveBytes   = 4 << 30 // packed, and unpacked
)

// speakers downloads the archive of speaker tracks and unpacks it.
func (c *Client) speakers(ctx context.Context, dir string, projectID int64) ([]Stem, error) {
	archive := filepath.Join(dir, "speakers.tar.part")
	defer os.Remove(archive) // does not exist if the download failed
	if err := c.fetch(ctx, c.target(projectID, targetSpeakers), archive, maxArchiveBytes); err != nil {
		return nil, err
	}
	stems, err := unpack(ctx, archive, dir, archiveLimits{maxArchiveEntries, c.cfg.MaxDownloadBytes, maxArchiveBytes})
	if err == nil && len(stems) == 0 {
		c.cfg.Log.Warn("separation provider sent an archive without audio", "project", projectID)
	}
	return stems, err
}

// stem downloads one audio file to dir/name.<its kind>.
func (c *Client) stem(ctx context.Context, dir, name string, look lookUp) (Stem, error) {
	part := filepath.Join(dir, name+".part")
	defer os.Remove(part) // renamed away on success
	if err := c.fetch(ctx, look, part, c.cfg.MaxDownloadBytes); err != nil {
		return Stem{}, err
	}
	class, err := container.SniffFile(part)
	if err != nil {
		return Stem{}, fmt.Errorf("download %s: %w", name, err)
	}
	if !isAudio(class.Kind) {
		return Stem{}, unusable("%s is not audio", name)
	}
	path := filepath.Join(dir, name+"."+class.Kind.AudioExt())
	if err := os.Rename(part, path); err != nil {
		return Stem{}, fmt.Errorf("download %s: %w", name, err)
	}
	return Stem{path, class.Kind}, nil
}

var (
	// errMissing means that a stem does not exist: it has no link, or the link kept returning 404 or an empty file.
	errMissing = errors.New("stem is missing")
	errEmpty   = errors.New("file is empty")
)

// fetch downloads a link to path. After a 404 or an empty file it looks the link up again: the provider's CDN
// caches the answer to a link requested too early, so only a new link can succeed.
func (c *Client) fetch(ctx context.Context, look lookUp, path string, maxBytes int64) error {
	for try := 0; ; try++ {
		link, err := look(ctx)
		if err != nil {
			return err
		}
		if link == "" {
			return errMissing
		}
		err = c.save(ctx, link, path, maxBytes)
		if !isStatus(err, http.StatusNotFound) && !errors.Is(err, errEmpty) {
			return err
		}
		if try == len(lagPauses) {
			return fmt.Errorf("%w: %w", errMissing, err)
		}
		if err := c.cfg.Sleep(ctx, lagPauses[try]); err != nil {
			return err
		}
	}
}

// save downloads one link to path. On failure it leaves no file there.
func (c *Client) save(ctx context.Context, link, path string, maxBytes int64) error {
	u, withKey, err := c.resolveLink(link)
	if err != nil {
		return &Error{Op: "download", Err: err}
	}
	x := exchange{endpoint: "download", method: http.MethodGet, url: u, withKey: withKey,
		header: http.Header{"Accept-Encoding": {"identity"}}} // so that lengths count the bytes we write
	err = c.retry(ctx, func() error {
		return c.once(ctx, x, func(resp *http.Response) error {
			if resp.StatusCode != http.StatusOK {
				return malformed("not the whole file")
			}
			if resp.ContentLength > maxBytes {
				return unusable("file larger than %d bytes", maxBytes)
			}
			return writeFile(path, resp.Body, maxBytes)
		})
	})
	if err != nil {
		os.Remove(path) // may not exist
	}
	return err
}

// writeFile copies body to path. An empty or too large body is an error.
func writeFile(path string, body io.Reader, maxBytes int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(body, maxBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	switch {
	case n == 0:
		return &Error{Err: errEmpty} // not transient: fetch decides whether to retry
	case n > maxBytes:
		return unusable("file larger than %d bytes", maxBytes)
	}
	return nil
}
