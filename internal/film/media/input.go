package media

import (
	"strconv"

	"cutroom/internal/film/media/container"
)

// InputArgs returns the arguments, including `-i`, that open path only as kind. Every input from outside must be opened
// with them; other options for the same input (-ss, -t) precede them. An unknown kind gets a whitelist that matches no
// demuxer, so ffmpeg refuses the file.
func InputArgs(kind container.Kind, path string) []string {
	return append(openArgs(kind, path), "-i", inputURL(path))
}

// openArgs returns the restrictions of InputArgs without the input itself. They skip what precedes the first bare
// frame, because ffmpeg would take any sync word in it for a frame.
func openArgs(kind container.Kind, path string) []string {
	name := kind.Demuxer()
	if name == "" {
		return []string{"-protocol_whitelist", "file", "-format_whitelist", "none"}
	}
	args := []string{"-protocol_whitelist", "file", "-format_whitelist", name, "-f", name}
	if lead, _ := container.Lead(path, kind); lead > 0 { // ffmpeg reports the error
		args = append(args, "-skip_initial_bytes", strconv.FormatInt(lead, 10))
	}
	return args
}

// inputURL prefixes a path with a scheme, so that ffmpeg never parses a name as a protocol or an option.
func inputURL(path string) string { return "file:" + path }
