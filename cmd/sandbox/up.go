package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/process"
	"cutroom/internal/sandbox/system"
)

// stopWait is how long the service may take to end; it hands running jobs back
// to the queue meanwhile.
const stopWait = 45 * time.Second

// up runs the sandbox until ctx ends or the service does.
func up(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("sandbox up", flag.ContinueOnError)
	flags.SetOutput(stderr)
	port := flags.Int("port", 8080, "port of the service; 0 takes a free one")
	data := flags.String("data", "sandbox-data", "folder for database, files and secrets; it is kept")
	temp := flags.Bool("temp", false, "use a temporary folder instead and remove it at the end")
	noBucket := flags.Bool("no-bucket", false, "run without the object store: files are streamed, render v3 is off")
	fast := flags.Bool("fast", false, "separate by frequency and at once, as tests do")
	processing := flags.Duration("processing", 6*time.Second, "least time a separation takes")
	binary := flags.String("cutroom", "", "the service's binary (default: cutroom beside this one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *temp {
		if *data, err = os.MkdirTemp("", "cutroom-sandbox-"); err != nil {
			return fmt.Errorf("make temporary folder: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(*data)) }()
	}
	if *data, err = filepath.Abs(*data); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if *fast {
		*processing = 0
	}
	// The world has to outlive the first Ctrl-C: the service drains against it.
	s, err := start(ctx, system.Options{
		World:   sandbox.Options{DataDir: *data, Bucket: !*noBucket, Fast: *fast, Processing: *processing},
		Cutroom: *binary, Port: *port, Log: stderr,
	})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
		defer cancel()
		err = errors.Join(err, s.Stop(stopping))
	}()
	if err := furnish(ctx, *data); err != nil {
		return err
	}
	if err := leaveEnv(s, *data); err != nil {
		return err
	}
	welcome(stdout, s, *data)
	select {
	case <-ctx.Done():
		fmt.Fprintln(stdout, "\nstopping; Ctrl-C again ends at once")
		return nil
	case <-s.Ended():
		return errors.New("cutroom ended by itself; its log above says why")
	}
}

// start starts the system such that ctx ends only the starting.
func start(ctx context.Context, opts system.Options) (*system.System, error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, end)
	s, err := system.Start(life, opts)
	if err != nil || !detach() {
		end()
		if err == nil {
			err = errors.Join(context.Cause(ctx), s.Stop(life))
		}
		return nil, err
	}
	return s, nil
}

// furnish makes what the printed examples use: a clip to render and stems for
// the dev mock routes, which serve folders of the service's working directory.
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

// leaveEnv writes addresses and tokens for shells to source.
func leaveEnv(s *system.System, data string) error {
	text := fmt.Sprintf("BASE=%s\nTOKEN=%s\nADMIN_TOKEN=%s\n", s.BaseURL, s.User.AccessToken, s.Admin.AccessToken)
	if err := os.WriteFile(filepath.Join(data, "env.sh"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write env.sh: %w", err)
	}
	return nil
}

func welcome(w io.Writer, s *system.System, data string) {
	fmt.Fprintf(w, "\ncutroom runs at %s\n\n", s.BaseURL)
	fmt.Fprintf(w, "  API docs    %s/swagger\n", s.BaseURL)
	fmt.Fprintf(w, "  admin app   %s/%s/\n", s.BaseURL, sandbox.AdminSlug)
	fmt.Fprintf(w, "  dev mock    %s/api/v2/testdata/separation/list\n", s.BaseURL)
	fmt.Fprintf(w, "  state       %s\n\n", data)
	fmt.Fprintln(w, "stand-ins, each steered under /__control/:")
	servers := s.World.Servers()
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		fmt.Fprintf(w, "  %-19s %s\n", name, servers[name])
	}
	for _, who := range []struct {
		what    string
		session system.Session
	}{{"user", s.User}, {"admin", s.Admin}} {
		fmt.Fprintf(w, "\naccess token of the %s %s (%s):\n%s\n", who.what, who.session.Email, who.session.UserID, who.session.AccessToken)
	}
	fmt.Fprintf(w, "\nrender a clip, from another terminal:\n  . %s/env.sh\n", data)
	fmt.Fprintf(w, "  curl -s -H \"Authorization: Bearer $TOKEN\" -F video=@%s/clip.mp4 \\\n", data)
	fmt.Fprintf(w, "    -F 'config={\"videoDurationMs\":3000,\"quality\":\"low\"}' $BASE/api/v2/render\n")
	fmt.Fprintf(w, "  curl -s -H \"Authorization: Bearer $TOKEN\" $BASE/api/v2/render/<jobId>/status\n")
	fmt.Fprintf(w, "  curl -sL -H \"Authorization: Bearer $TOKEN\" -o film.mp4 $BASE/api/v2/render/<jobId>/download\n\nCtrl-C stops everything.\n")
}
