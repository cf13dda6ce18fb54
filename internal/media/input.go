package media

import "cutroom/internal/media/container"

// InputArgs returns the arguments, including `-i`, that open path only as kind. Every input from outside must
// be opened with them; other options for the same input (-ss, -t) precede them. An unknown kind gets a
// whitelist that matches no demuxer, so ffmpeg refuses the file.
//
// A path without a scheme gets the prefix `file:`, so that ffmpeg never parses a name as a protocol or an
// option. `pipe:0` stays unchanged.
func InputArgs(kind container.Kind, path string) []string {
	return append(openArgs(kind, path), "-i", inputURL(path))
}

// openArgs returns the restrictions of InputArgs without the input itself; ffprobe takes them too.
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
