// Package meter measures films and sounds by decoding them: frames, lengths,
// loudness, where a flash and a tick are, and how loud each of several known
// sounds is in a mix.
//
// It runs ffmpeg and ffprobe on its own and knows nothing of how a film was
// made. Both programs must be in PATH.
package meter

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Media is what a file holds.
type Media struct {
	Length time.Duration // of the whole file, by its header
	Video  *Video        // nil: none
	Audio  *Audio        // nil: none
}

// Video is the first video stream, pictures attached to music not counted.
type Video struct {
	Codec         string
	Width, Height int      // as displayed, rotation applied
	Turn          int      // degrees that the stored picture is turned by, counter-clockwise: -180..180
	Rate          *big.Rat // frames a second
	Frames        int      // counted packets
	End           time.Duration
}

// Audio is the first audio stream.
type Audio struct {
	Codec      string
	SampleRate int
	Channels   int
	Start, End time.Duration
}

// Probe reads a file's headers and counts its video packets.
func Probe(ctx context.Context, path string) (Media, error) {
	out, err := run(ctx, nil, "ffprobe", "-loglevel", "error", "-count_packets", "-show_format", "-show_streams", "-print_format", "json", "file:"+path)
	if err != nil {
		return Media{}, fmt.Errorf("probe %s: %w", path, err)
	}
	var raw struct {
		Format  struct{ Duration string }
		Streams []rawStream
	}
	if err := json.Unmarshal(out, &raw); err != nil {
		return Media{}, fmt.Errorf("probe %s: %w", path, err)
	}
	m := Media{Length: seconds(raw.Format.Duration)}
	for _, s := range raw.Streams {
		switch {
		case s.CodecType == "video" && m.Video == nil && s.Disposition.AttachedPic == 0:
			m.Video = s.video()
		case s.CodecType == "audio" && m.Audio == nil:
			m.Audio = &Audio{Codec: s.CodecName, SampleRate: number(s.SampleRate), Channels: s.Channels,
				Start: seconds(s.StartTime), End: seconds(s.StartTime) + seconds(s.Duration)}
		}
	}
	return m, nil
}

type rawStream struct {
	CodecType     string `json:"codec_type"`
	CodecName     string `json:"codec_name"`
	Width, Height int
	RFrameRate    string `json:"r_frame_rate"`
	NbReadPackets string `json:"nb_read_packets"`
	SampleRate    string `json:"sample_rate"`
	Channels      int
	StartTime     string `json:"start_time"`
	Duration      string
	Disposition   struct {
		AttachedPic int `json:"attached_pic"`
	}
	SideDataList []struct{ Rotation float64 } `json:"side_data_list"`
}

func (s rawStream) video() *Video {
	v := &Video{Codec: s.CodecName, Width: s.Width, Height: s.Height, Frames: number(s.NbReadPackets),
		End: seconds(s.StartTime) + seconds(s.Duration)}
	for _, side := range s.SideDataList {
		if v.Turn = int(side.Rotation); v.Turn%180 != 0 {
			v.Width, v.Height = s.Height, s.Width
		}
	}
	if rate, ok := new(big.Rat).SetString(s.RFrameRate); ok && rate.Sign() > 0 {
		v.Rate = rate
	} else {
		v.Rate = big.NewRat(30, 1) // a stream that does not say
	}
	return v
}

// number and seconds read what ffprobe prints; it leaves unknown values out.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

func seconds(s string) time.Duration {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return time.Duration(f*1e6+0.5) * time.Microsecond
}

// IndexFirst reports whether an mp4's index (moov) comes before its media
// (mdat), so that playback can begin before the download ends.
func IndexFirst(path string) (_ bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("look for the index: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for {
		var head [16]byte
		if _, err := io.ReadFull(file, head[:8]); err != nil {
			return false, fmt.Errorf("%s has neither index nor media: %w", path, err)
		}
		size, used := int64(binary.BigEndian.Uint32(head[:])), int64(8)
		switch string(head[4:8]) {
		case "moov":
			return true, nil
		case "mdat":
			return false, nil
		}
		if size == 1 { // the real size follows in 64 bits
			if _, err := io.ReadFull(file, head[8:]); err != nil {
				return false, fmt.Errorf("look for the index of %s: %w", path, err)
			}
			size, used = int64(binary.BigEndian.Uint64(head[8:])), 16
		}
		if size < used {
			return false, fmt.Errorf("%s holds a box of %d bytes", path, size)
		}
		if _, err := file.Seek(size-used, io.SeekCurrent); err != nil {
			return false, fmt.Errorf("look for the index of %s: %w", path, err)
		}
	}
}

// run runs a program to its end and returns what it printed; an error holds
// the end of its complaints.
func run(ctx context.Context, stdin io.Reader, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &complaint
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", program, ctx.Err())
		}
		text := strings.TrimSpace(complaint.String())
		return nil, fmt.Errorf("%s: %w: %s", program, err, text[max(len(text)-500, 0):])
	}
	return out.Bytes(), nil
}
