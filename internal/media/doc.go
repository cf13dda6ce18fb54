// Package media runs ffmpeg and ffprobe. It owns the processes: how they are
// started, confined, watched, stopped and judged. It knows containers, streams
// and packets, and refuses to know timelines, jobs or anything else of the
// domain: whoever plans a render builds a [Pass], and [Runner.Encode] runs it.
//
// Every file a stranger sent is untrusted. Three things stand between it and
// the server:
//
//   - Package container looks at the content, and only a handful of kinds have a
//     name there. The demuxer is then forced, with the protocols and demuxers
//     ffmpeg may fall back on whitelisted ([InputArgs]), so a playlist called
//     clip.mp4 cannot make ffmpeg open another file.
//   - [Runner.Measure] counts real packets where the header may lie.
//   - Package confine: the running binary starts itself again, confines itself
//     and only then becomes ffmpeg.
//
// The package runs on Linux only.
package media
