package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"time"
)

// release is set by the linker for releases: -ldflags "-X main.release=1.2.3".
var release = "dev"

// commit is set by the linker; otherwise the build's VCS stamp is used.
var commit = ""

func commitString() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	return rev + dirty
}

func versionString() string { return release + " (" + commitString() + ")" }

func version(ctx context.Context, v *invocation) error {
	of := struct {
		Version string `json:"version"`
		Commit  string `json:"commit"`
		Go      string `json:"go"`
		FFmpeg  string `json:"ffmpeg"`
	}{release, commitString(), runtime.Version(), ffmpegVersion(ctx)}
	return v.say(of, "cutroom %s\ncommit  %s\ngo      %s\nffmpeg  %s", of.Version, of.Commit, of.Go, of.FFmpeg)
}

// ffmpegVersion runs the ffmpeg in PATH. It opens no media, so it need not be confined.
func ffmpegVersion(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ffmpeg", "-version").Output()
	if err != nil {
		return "not found"
	}
	version := "unknown"
	_, _ = fmt.Sscanf(string(out), "ffmpeg version %s", &version) // another output leaves it unknown
	return version
}
