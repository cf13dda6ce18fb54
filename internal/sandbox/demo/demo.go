// Package demo runs cutroom's main job end to end and measures the results. It signs in, requests the price, separates
// the voice of a clip from its background, and downloads the stems. Then it renders a film of two clips with music and
// remixed stems through both submission paths, and once more as audio only.
//
// It is a client of the public API like the mobile app: it imports nothing of the service and uses only HTTP. If the
// user supplies no clips, it generates pictures, music and speech itself.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cutroom/internal/sandbox/system"
)

// options are the command's flags.
type options struct {
	out                      string
	baseURL, identity, token string
	cutroom                  string
	videos                   []string
	music, speech            string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("sandbox demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.out, "out", "demo-output", "folder for the results; files of an earlier run are replaced")
	flags.StringVar(&o.baseURL, "base-url", "", "address of a running service (default: start a sandbox for the run)")
	flags.StringVar(&o.identity, "identity", "", "with --base-url: address of the sandbox's stand-in of provider_a, to sign in by")
	flags.StringVar(&o.token, "token", "", "with --base-url: an access token, in place of --identity")
	flags.StringVar(&o.cutroom, "cutroom", "", "the service's binary (default: cutroom beside this one)")
	flags.Func("video",
		"a film of yours (mp4, mov, m4v or webm) in place of the drawn clips; may be repeated; "+
			"the first 20 s of each are used",
		func(path string) error {
			o.videos = append(o.videos, path)
			return nil
		})
	flags.StringVar(&o.music, "music", "", "music of yours (m4a, mp3, wav or aac) under the film")
	flags.StringVar(&o.speech, "speech", "",
		"a recording of yours in place of the synthetic voices; with --video it replaces the first film's sound")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	return o, o.validate(flags.Args())
}

func (o options) validate(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", rest[0]))
	}
	if o.baseURL != "" && (o.identity == "") == (o.token == "") {
		errs = append(errs, errors.New("--base-url needs --identity or --token, one of them"))
	}
	if o.baseURL == "" && o.identity+o.token != "" {
		errs = append(errs, errors.New("--identity and --token go with --base-url"))
	}
	for _, path := range o.videos {
		errs = append(errs, ownFile("--video", path, "mp4", "mov", "m4v", "webm"))
	}
	if o.music != "" {
		errs = append(errs, ownFile("--music", o.music, "m4a", "mp3", "wav", "aac"))
	}
	if o.speech != "" {
		errs = append(errs, ownFile("--speech", o.speech))
	}
	return errors.Join(errs...)
}

// ownFile checks that a user's file exists and is of a kind that can be uploaded.
func ownFile(option, path string, kinds ...string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", option, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %s is not a file", option, path)
	}
	ext := strings.ToLower(strings.TrimPrefix(filepath.Ext(path), "."))
	if len(kinds) > 0 && !slices.Contains(kinds, ext) {
		return fmt.Errorf("%s: %s must be one of %s", option, path, strings.Join(kinds, ", "))
	}
	return nil
}

// Run is the command `sandbox demo`. It returns flag.ErrHelp if help was requested, and an error if a step fails or a
// measurement is out of tolerance.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	ownVoice := o.speech == "" && len(o.videos) == 0
	if err := checkTools(ownVoice); err != nil {
		return err
	}
	if o.baseURL == "" && o.cutroom == "" {
		// Check this before spending a minute on generating clips.
		if o.cutroom, err = system.FindCutroom(); err != nil {
			return err
		}
	}
	r := &run{options: o, screen: newScreen(stdout), began: time.Now()}
	if err := r.prepare(); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.scratch) }() // temporary files may stay
	if err = r.all(ctx); err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", err)
	}
	return err
}

// run is one run of the demonstration.
type run struct {
	options
	screen  *screen
	began   time.Time
	scratch string // for temporary files

	client *client
	result result
	clips  []clip
	summary
}

// prepare creates the folders. It removes the results of an earlier run, so that none of them looks new.
func (r *run) prepare() error {
	for _, name := range []string{"film.mp4", "film-v3.mp4", "film.m4a", "contact-sheet.jpg", "report.txt", "stems", "clips", "service.log"} {
		if err := os.RemoveAll(filepath.Join(r.out, name)); err != nil {
			return fmt.Errorf("clear %s: %w", r.out, err)
		}
	}
	for _, sub := range []string{"stems", "clips"} {
		if err := os.MkdirAll(filepath.Join(r.out, sub), 0o755); err != nil {
			return fmt.Errorf("make %s: %w", r.out, err)
		}
	}
	var err error
	if r.scratch, err = os.MkdirTemp("", "cutroom-demo-"); err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	return nil
}

// path returns the path of a result.
func (r *run) path(name string) string { return filepath.Join(r.out, filepath.FromSlash(name)) }

// step runs a step of the demonstration and shows it as a line on the screen. do returns the text for the end of the
// line.
func (r *run) step(name string, do func(on *step) (string, error)) error {
	began := time.Now()
	on := r.screen.begin(name)
	defer on.fail() // does nothing after done
	note, err := do(on)
	if errors.Is(err, errNoObjectStore) {
		on.skip(err.Error())
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.ToLower(name), err)
	}
	on.done(note)
	r.took = append(r.took, stage{name, time.Since(began)})
	return nil
}

func (r *run) all(ctx context.Context) (err error) {
	r.screen.println("\n" + r.screen.ink(boldInk, "cutroom demo") +
		r.screen.ink(dimInk, "  from raw clips to a rendered film, with nobody's account") + "\n")
	if err := r.gather(ctx); err != nil {
		return err
	}
	stop, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := r.job(ctx); err != nil {
		return err
	}
	return r.conclude(ctx)
}

// conclude measures the results and writes the contact sheet and the report.
func (r *run) conclude(ctx context.Context) error {
	var j *judge
	err := r.step("Measure", func(on *step) (string, error) {
		var err error
		if j, err = r.result.measure(ctx, on.update); err != nil {
			return "", err
		}
		on.update(0.9, "contact sheet")
		if err := j.drawSheet(ctx, r.path("contact-sheet.jpg")); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d measurements, contact sheet drawn", len(j.checks)), nil
	})
	if err != nil {
		return err
	}
	r.checks, r.total, r.folder = j.checks, time.Since(r.began), r.out
	r.files = append(r.files, "contact-sheet.jpg", "report.txt")
	if err := r.write(r.path("report.txt")); err != nil {
		return err
	}
	r.screen.println("\n" + strings.Join(r.lines(r.screen.ink), "\n"))
	return r.off()
}

// probeClip describes a user's film.
func probeClip(ctx context.Context, path string) (clip, error) {
	m, err := probe(ctx, path)
	if err != nil {
		return clip{}, fmt.Errorf("--video: %w", err)
	}
	video := m.First("video")
	c := clip{name: filepath.Base(path), path: path, width: video.Width, height: video.Height, rate: rateOf(video),
		length: m.Length("video"), silent: m.First("audio").Codec == ""}
	if video.Rotation%180 != 0 {
		c.width, c.height = c.height, c.width
	}
	switch {
	case video.Codec == "":
		return clip{}, fmt.Errorf("--video: %s holds no video", path)
	case c.length < time.Second:
		return clip{}, fmt.Errorf("--video: %s lasts only %v", path, c.length)
	}
	return c, nil
}
