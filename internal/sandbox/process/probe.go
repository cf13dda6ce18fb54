package process

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Media is ffprobe's description of a file.
type Media struct {
	Duration time.Duration
	Format   string
	Streams  []Stream
}

// First returns the first stream of a type ("video", "audio") that is not cover art, or an empty one.
func (m Media) First(kind string) Stream {
	for _, s := range m.Streams {
		if s.Type == kind && s.Disposition["attached_pic"] == 0 {
			return s
		}
	}
	return Stream{}
}

// Length returns how long the first stream of a type lasts, or the whole file if the stream does not state it.
func (m Media) Length(kind string) time.Duration {
	if s := m.First(kind); s.Duration > 0 {
		return s.Start + s.Duration
	}
	return m.Duration
}

// Stream is one track. Fields that ffprobe omits are zero.
type Stream struct {
	Index           int
	Type            string `json:"codec_type"` // "video", "audio", ...
	Codec           string `json:"codec_name"` // ffmpeg's name for it
	Profile         string
	Width, Height   int
	PixelFormat     string `json:"pix_fmt"`
	SAR             string `json:"sample_aspect_ratio"`
	FrameRate       string `json:"r_frame_rate"` // "30000/1001"
	AvgFrameRate    string `json:"avg_frame_rate"`
	Frames          int    `json:"nb_frames,string"`
	Packets         int    `json:"nb_read_packets,string"` // with -count_packets
	ColorRange      string `json:"color_range"`
	ColorSpace      string `json:"color_space"`
	ColorTransfer   string `json:"color_transfer"`
	ColorPrimaries  string `json:"color_primaries"`
	SampleRate      int    `json:"sample_rate,string"`
	Channels        int
	BitRate         int            `json:"bit_rate,string"`
	Start, Duration time.Duration  `json:"-"`
	Disposition     map[string]int // such as attached_pic
	Rotation        int            `json:"-"` // degrees by which the stored picture is rotated
	Rotated         bool           `json:"-"` // a display matrix is present, even if it changes nothing
}

// Probe reads a file's headers with ffprobe and additional arguments.
func Probe(ctx context.Context, path string, args ...string) (Media, error) {
	out, err := Output(ctx, "ffprobe", append(args, "-loglevel", "error", "-show_format", "-show_streams",
		"-print_format", "json", "file:"+path)...)
	if err != nil {
		return Media{}, fmt.Errorf("probe %s: %w", path, err)
	}
	var raw struct {
		Format struct {
			Duration   string
			FormatName string `json:"format_name"`
		}
		Streams []struct {
			Stream
			StartTime string `json:"start_time"`
			Duration  string
			SideData  []struct {
				DisplayMatrix string
				Rotation      float64
			} `json:"side_data_list"`
		}
	}
	if err := json.Unmarshal(out, &raw); err != nil {
		return Media{}, fmt.Errorf("probe %s: %w", path, err)
	}
	m := Media{Duration: Seconds(raw.Format.Duration), Format: raw.Format.FormatName}
	for _, r := range raw.Streams {
		s := r.Stream
		s.Start, s.Duration = Seconds(r.StartTime), Seconds(r.Duration)
		for _, d := range r.SideData {
			if d.DisplayMatrix != "" {
				s.Rotated, s.Rotation = true, int(d.Rotation)
			}
		}
		m.Streams = append(m.Streams, s)
	}
	return m, nil
}

// Seconds parses a time printed by ffprobe, which omits unknown ones; "" is 0.
func Seconds(s string) time.Duration {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return time.Duration(f*1e6+0.5) * time.Microsecond
}
