package media

// Kind is the container family of a file, as told by its magic bytes.
type Kind int

// The families the service opens. Anything else is KindUnknown and is never
// handed to ffmpeg.
const (
	KindUnknown  Kind = iota
	KindMP4           // the mov family: mp4, m4a, m4v, mov, 3gp
	KindMatroska      // mkv and webm
	KindWAV           // RIFF and RF64
	KindMP3           // MPEG audio layer III, with or without ID3
	KindAAC           // raw ADTS
	KindFLAC
	KindOgg
)

// demuxers names the one demuxer ffmpeg may use for each kind.
var demuxers = map[Kind]string{
	KindMP4: "mov", KindMatroska: "matroska", KindWAV: "wav", KindMP3: "mp3",
	KindAAC: "aac", KindFLAC: "flac", KindOgg: "ogg",
}

// String is the demuxer's name, or "unknown".
func (k Kind) String() string {
	if name, ok := demuxers[k]; ok {
		return name
	}
	return "unknown"
}

// InputArgs returns the arguments, `-i` included, that open path as kind and
// as nothing else. Every input that came from outside must be opened through
// them; options for the same input (-ss, -t) go before. An unknown kind yields
// a whitelist that matches no demuxer, so ffmpeg refuses the file.
//
// A path without a scheme is prefixed with `file:`, so that no name is read as
// a protocol or an option. `pipe:0` passes as it is.
func InputArgs(kind Kind, path string) []string {
	return append(openArgs(kind, path), "-i", inputURL(path))
}

// openArgs are the restrictions of InputArgs without the input itself, as
// ffprobe takes them too.
func openArgs(kind Kind, path string) []string {
	protocol := "file"
	if path == stdinURL {
		protocol = "pipe"
	}
	name, known := demuxers[kind]
	if !known {
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

// MayHoldVideo reports whether files of the family can have pictures.
func (k Kind) MayHoldVideo() bool { return k == KindMP4 || k == KindMatroska }
