// The command up: it starts the stand-ins and the service, or the stand-ins alone, creates the files of the examples,
// and prints what a developer needs to begin.

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cutroom/internal/config"
	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/player"
	"cutroom/internal/sandbox/process"
	"cutroom/internal/sandbox/system"
)

// stopWait is how long the service may take to hand its jobs back and stop.
const stopWait = 45 * time.Second

// firstStandIn is the offset of the first stand-in's port from the API's. App developers' tools often use the ports in
// between.
const firstStandIn = 10

// numbers lists the keys of the service that hold a number. Clients of the sandbox may set these keys, but no path,
// address or secret. The port is excluded, because the service must stay on it.
func numbers() (keys []string) {
	for _, k := range config.Keys {
		if k.Max != 0 && k.Name != "PORT" {
			keys = append(keys, k.Name)
		}
	}
	return keys
}

// options are the flags of up.
type options struct {
	sandbox.Options
	port           int
	standIns, temp bool
	binary         string
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	o.Arrived = func(line string) { fmt.Fprintln(stderr, line) }
	flags := flag.NewFlagSet("sandbox up", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.port, "port", 8080, "port of the API; the stand-ins take those from 10 further on. 0 takes free ones")
	flags.StringVar(&o.PublicHost, "public-host", "",
		"name or address under which a phone reaches this machine, or auto: then everything listens on every interface, "+
			"and everyone in the network can control it")
	flags.BoolVar(&o.standIns, "stand-ins-only", false,
		"run the stand-ins alone and print the settings of a service of your own, as an env file")
	flags.StringVar(&o.DataDir, "data", "sandbox-data", "folder for database, files and secrets; it is kept")
	flags.BoolVar(&o.temp, "temp", false, "use a temporary folder instead and remove it at the end")
	noBucket := flags.Bool("no-bucket", false, "run without the object store: files are streamed, render v3 is off")
	flags.BoolVar(&o.Fast, "fast", false, "separate by frequency and at once, as tests do")
	flags.DurationVar(&o.Processing, "processing", 6*time.Second, "least time a separation takes")
	flags.StringVar(&o.binary, "cutroom", "", "the service's binary (default: cutroom beside this one)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if strings.ContainsAny(o.PublicHost, "/ ") || strings.Contains(o.PublicHost, ":") && net.ParseIP(o.PublicHost) == nil {
		return o, fmt.Errorf("--public-host %q is neither a name nor an address", o.PublicHost)
	}
	if o.PublicHost == "auto" {
		if o.PublicHost, err = ownAddress(); err != nil {
			return o, err
		}
	}
	o.Bucket = !*noBucket
	if o.Fast {
		o.Processing = 0
	}
	if o.port != 0 {
		o.Port = o.port + firstStandIn
	}
	return o, nil
}

// up runs the sandbox, or its stand-ins alone, until ctx or the service ends.
func up(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.temp {
		if o.DataDir, err = os.MkdirTemp("", "cutroom-sandbox-"); err != nil {
			return fmt.Errorf("make temporary folder: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.DataDir)) }()
	}
	if o.DataDir, err = filepath.Abs(o.DataDir); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if o.standIns {
		return runStandIns(ctx, o.Options, o.port, stdout, stderr)
	}
	return runSystem(ctx, o, stdout, stderr)
}

// runSystem runs the stand-ins and the service.
func runSystem(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the sandbox's program: %w", err)
	}
	s, err := system.Start(ctx, system.Options{World: o.Options, Cutroom: o.binary, Serve: self, Port: o.port, Log: stderr,
		Settable: numbers()})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
		defer cancel()
		err = errors.Join(err, s.Stop(stopping))
	}()
	page := player.New(s.World.Servers, filepath.Join(o.DataDir, "samples"))
	s.Mount(player.Prefix, page)
	var background sync.WaitGroup
	defer background.Wait()
	preparing, cancel := context.WithCancel(ctx)
	defer cancel()
	if !o.Fast {
		background.Go(func() { _ = page.Prepare(preparing) }) // a failure only costs time later
	}
	if err := furnish(ctx, o.DataDir); err != nil {
		return err
	}
	if err := leaveEnv(s, o.DataDir); err != nil {
		return err
	}
	if err := welcome(stdout, s, o.DataDir, o.PublicHost != ""); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		fmt.Fprintln(stdout, "\nstopping; Ctrl-C again ends at once")
		return nil
	case <-s.Ended():
		return errors.New("cutroom ended by itself; its log above says why")
	}
}

// runStandIns runs the stand-ins for a developer's own service, which should listen on port.
func runStandIns(ctx context.Context, opts sandbox.Options, port int, stdout, stderr io.Writer) error {
	w, err := sandbox.Start(opts)
	if err != nil {
		return err
	}
	env := w.Env()
	if port != 0 {
		env["PORT"] = strconv.Itoa(port)
		env["PUBLIC_BASE_URL"] = "http://" + net.JoinHostPort(cmp.Or(opts.PublicHost, "localhost"), env["PORT"])
	}
	for _, key := range slices.Sorted(maps.Keys(env)) {
		// Shells interpret nothing between single quotes; a PEM key has line breaks.
		fmt.Fprintf(stdout, "%s='%s'\n", key, strings.ReplaceAll(strings.TrimSpace(env[key]), "\n", `\n`))
	}
	fmt.Fprintln(stderr, "stand-ins run; Ctrl-C stops them. Their keys are new at each start, so take the settings anew")
	<-ctx.Done()
	return w.Close()
}

// furnish creates the files of the printed examples: a clip to render, and stems for the dev mock routes, which
// serve folders under the service's working directory.
func furnish(ctx context.Context, data string) error {
	clip := filepath.Join(data, "clip.mp4")
	mock := filepath.Join(data, "work", "0-5")
	if err := os.MkdirAll(mock, 0o700); err != nil {
		return fmt.Errorf("make mock stems: %w", err)
	}
	for path, args := range map[string][]string{
		clip: {"-f", "lavfi", "-i", "testsrc2=size=640x360:rate=30", "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000",
			"-t", "4", "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-c:a", "aac", "-movflags", "+faststart"},
		filepath.Join(mock, "voice_all.wav"):  {"-f", "lavfi", "-i", "sine=frequency=880:sample_rate=48000", "-t", "5", "-ac", "2"},
		filepath.Join(mock, "background.wav"): {"-f", "lavfi", "-i", "sine=frequency=220:sample_rate=48000", "-t", "5", "-ac", "2"},
	} {
		if _, err := os.Stat(path); err == nil {
			continue
		}
		part := filepath.Join(filepath.Dir(path), ".part"+filepath.Ext(path))
		if err := process.FFmpeg(ctx, append(args, part)...); err != nil {
			return fmt.Errorf("make %s: %w", path, err)
		}
		if err := os.Rename(part, path); err != nil {
			return fmt.Errorf("make %s: %w", path, err)
		}
	}
	return nil
}

// leaveEnv writes addresses and tokens to a file that a shell can source.
func leaveEnv(s *system.System, data string) error {
	text := fmt.Sprintf("BASE=%s\nTOKEN=%s\nSUB=%s\nADMIN_TOKEN=%s\n", s.BaseURL, s.User.AccessToken, s.User.Sub, s.Admin.AccessToken)
	servers := s.World.Servers()
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		text += strings.ToUpper(name) + "=" + servers[name] + "\n"
	}
	if err := os.WriteFile(filepath.Join(data, "env.sh"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write env.sh: %w", err)
	}
	return nil
}

func welcome(w io.Writer, s *system.System, data string, forPhones bool) error {
	studio := s.BaseURL + player.Prefix
	fmt.Fprintf(w, "\nmake a film in the browser: %s\ncutroom runs at %s\n\n", studio, s.BaseURL)
	if forPhones {
		code, err := qrCode(studio)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, code)
		fmt.Fprint(w, "API and stand-ins listen on every interface: everyone in this network can use and control them\n\n")
	}
	fmt.Fprintf(w, "  API docs    %s/swagger\n", s.BaseURL)
	fmt.Fprintf(w, "  admin app   %s/%s/\n", s.BaseURL, sandbox.AdminSlug)
	fmt.Fprintf(w, "  dev mock    %s/api/v2/testdata/separation/list\n", s.BaseURL)
	fmt.Fprintf(w, "  state       %s\n\n", data)
	fmt.Fprintln(w, "API and stand-ins can be told what to do (docs/sandbox.md); GET /__control/ of each lists it:")
	servers := s.World.Servers()
	servers["API"] = s.BaseURL
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		fmt.Fprintf(w, "  %-19s %s\n", name, servers[name])
	}
	for _, who := range []struct {
		what    string
		session system.Session
	}{{"user", s.User}, {"admin", s.Admin}} {
		fmt.Fprintf(w, "\naccess token of the %s %s (%s):\n%s\n", who.what, who.session.Email, who.session.Sub, who.session.AccessToken)
	}
	fmt.Fprintf(w, "\nrender a clip, from another terminal:\n  . %s/env.sh\n", data)
	fmt.Fprintf(w, "  curl -s -H \"Authorization: Bearer $TOKEN\" -F video=@%s/clip.mp4 \\\n", data)
	fmt.Fprintf(w, "    -F 'config={\"videoDurationMs\":3000,\"quality\":\"low\"}' $BASE/api/v2/render\n")
	fmt.Fprintf(w, "  curl -s -H \"Authorization: Bearer $TOKEN\" $BASE/api/v2/render/<jobId>/status\n")
	fmt.Fprintf(w, "  curl -sL -H \"Authorization: Bearer $TOKEN\" -o film.mp4 "+
		"$BASE/api/v2/render/<jobId>/download\n\nCtrl-C stops everything.\n")
	return nil
}
