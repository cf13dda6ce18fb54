// Package media runs ffmpeg and ffprobe. It owns the processes: it starts, confines, watches and stops them, and
// interprets their results. It handles containers, streams and packets, but no timelines, jobs or anything else of the
// domain: callers build a [Pass], and [Runner.Encode] runs it.
//
// Uploaded files are untrusted. Three things protect the server from them:
//
//   - Package container checks the content and accepts only a few kinds of files.
//     [InputArgs] then forces the demuxer and whitelists the protocols and demuxers
//     that ffmpeg may fall back on, so a playlist called clip.mp4 cannot make
//     ffmpeg open another file.
//   - [Runner.Measure] counts real packets where the header may lie.
//   - Package confine: the running binary starts itself again, confines itself
//     and only then becomes ffmpeg.
//
// The package runs only on Linux.
package media
