package media

import "cutroom/internal/media/container"

// InputArgs returns the arguments, `-i` included, that open path as kind and
// as nothing else. Every input that came from outside must be opened through
// them; options for the same input (-ss, -t) go before. An unknown kind yields
// a whitelist that matches no demuxer, so ffmpeg refuses the file.
//
// A path without a scheme is prefixed with `file:`, so that no name is read as
// a protocol or an option. `pipe:0` passes as it is.
func InputArgs(kind container.Kind, path string) []string {
	return append(openArgs(kind, path), "-i", inputURL(path))
}

// openArgs are the restrictions of InputArgs without the input itself, as
// ffprobe takes them too.
func openArgs(kind container.Kind, path string) []string {
	protocol := "file"
	if path == stdinURL {
		protocol = "pipe"
	}
	name := kind.Demuxer()
	if name == "" {
		return []string{"-protocol_whitelist", protocol, "-format_whitelist", "none"}
	}
	return []string{"-protocol_whitelist", protocol, "-format_whitelist", name, "-f", name}
}

const stdinURL = "pipe:0"

func inputURL(path string) string {
	if path == stdinURL {
		return path
	}
	return "file:" + path
}
