// Package engine turns a timeline and the local files of its sources into one finished film or sound file.
//
// How a render runs:
//
//	sources ── analyse (headers, every packet's time; once per content) ─▶ Info
//	timeline + Info ── Plan (pure) ─▶ canvas, video parts, sounds, mix
//	video parts ── ffmpeg, several at once ─▶ part*.mp4   (exact frame counts)
//	sounds ── ffmpeg, each source once ─▶ *.f32           (48 kHz, sample exact)
//	mix (package audio, streaming) ─▶ final ffmpeg: AAC once, video copied ─▶ out.mp4
//
// Everything before the mix is kept in a [PartCache]. A key hashes everything that influenced the part. So a repeated
// render, a render after a crash and a render of an edited timeline only make what is new.
//
// Video is laid out on a grid of whole frames of the canvas's rate. Each segment starts at the source frame that is
// visible at its trim start, and its sound starts at the same instant, so sound and picture never drift apart. If a
// segment continues the source where the previous one ended, it starts at exactly the next frame and sample: cutting a
// film into pieces changes nothing.
//
// The package knows nothing of jobs, users, HTTP or the object store. Failures that the client may see are *fault.Error
// sentences that name the segment. All other errors are internal.
package engine
