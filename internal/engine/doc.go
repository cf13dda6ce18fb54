// Package engine turns a timeline and the local files of its sources into one
// finished film or sound file.
//
// How a render runs:
//
//	sources ── analyse (headers, every packet's time; once per content) ─▶ Info
//	timeline + Info ── Plan (pure) ─▶ canvas, video parts, sounds, mix
//	video parts ── ffmpeg, several at once ─▶ part*.mp4   (exact frame counts)
//	sounds ── ffmpeg, each source once ─▶ *.f32           (48 kHz, sample exact)
//	mix (package audio, streaming) ─▶ final ffmpeg: AAC once, video copied ─▶ out.mp4
//
// Everything before the mix is kept in a [PartCache] under a key of all that
// shaped it, so that a repeated render, a render after a crash, and a render of
// an edited timeline only do what is new.
//
// The grid. Video is laid out on whole frames of the canvas' rate. Each segment
// starts at the frame of the source that is visible at its trim start, and its
// sound starts at the same instant, so that sound and picture never part. Where
// two segments continue the same source, the second starts at exactly the frame
// and the sample behind the first: cutting a film into pieces changes nothing.
//
// The package knows nothing of jobs, users, HTTP or the object store. Failures
// the client may see are *fault.Error sentences that name the segment; anything
// else is internal.
package engine
