// Package container inspects media files without decoding anything. It detects the kind of a file by its content, and
// reads what the boxes of an mp4 declare, how long bare frames last, and how much of a truncated file is present. Every
// file may be hostile: the package trusts no size in it and keeps only a bounded part in memory.
package container

// Kind is the container family of a file, detected by its content.
type Kind int

// The kinds that the service opens. Anything else is Unknown and is never passed to ffmpeg.
const (
	Unknown  Kind = iota
	MP4           // the mov family: mp4, m4a, m4v, mov, 3gp
	Matroska      // mkv and webm
	WAV           // RIFF and RF64
	MP3           // MPEG audio layer III, with or without ID3
	AAC           // raw ADTS
	FLAC
	Ogg
)

// names holds, for each kind, the one demuxer that ffmpeg may use for it and the extension of an audio-only file.
var names = map[Kind]struct{ demuxer, ext string }{
	MP4: {"mov", "m4a"}, Matroska: {"matroska", "webm"}, WAV: {"wav", "wav"}, MP3: {"mp3", "mp3"},
	AAC: {"aac", "aac"}, FLAC: {"flac", "flac"}, Ogg: {"ogg", "ogg"},
}

// Demuxer returns ffmpeg's name of the family's demuxer, "" for Unknown.
func (k Kind) Demuxer() string { return names[k].demuxer }

// AudioExt returns the extension of an audio file of the family without a dot, "" for Unknown.
func (k Kind) AudioExt() string { return names[k].ext }

// MayHoldVideo reports whether files of the kind can have video.
func (k Kind) MayHoldVideo() bool { return k == MP4 || k == Matroska }
