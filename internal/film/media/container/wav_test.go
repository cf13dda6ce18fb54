package container_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"cutroom/internal/film/media/container"
)

func TestUnclaimedWAV(t *testing.T) {
	chunk := func(id string, declared uint32, bytes int) string {
		return id + string(binary.LittleEndian.AppendUint32(nil, declared)) + strings.Repeat("\x01", bytes)
	}
	riff := "RIFF\x00\x00\x00\x00WAVE" + chunk("fmt ", 16, 16)
	large := "RF64\xff\xff\xff\xffWAVEds64\x1c\x00\x00\x00" + strings.Repeat("\x00", 8) + "\x64" + strings.Repeat("\x00", 19)
	for name, tt := range map[string]struct {
		content string
		want    int64
	}{
		"whole":                    {riff + chunk("data", 1000, 1000), 0},
		"cut off":                  {riff + chunk("data", 1000, 500), 0},
		"streamed, size unknown":   {riff + chunk("data", 1<<32-1, 500), 0},
		"streamed, size zero":      {riff + chunk("data", 0, 500), 0},
		"tags after it":            {riff + chunk("data", 999, 1000) + chunk("LIST", 40, 40) + chunk("id3 ", 7, 8), 0},
		"too little declared":      {riff + chunk("data", 100, 1000), 900},
		"after a chunk too long":   {riff + chunk("data", 100, 100) + chunk("LIST", 4000, 400), 408},
		"RF64":                     {large + chunk("data", 1<<32-1, 100), 0},
		"RF64 declares too little": {large + chunk("data", 1<<32-1, 1000), 900},
		"no chunk":                 {riff[:12], 0},
	} {
		if got, err := container.UnclaimedWAV(write(t, []byte(tt.content))); got != tt.want || err != nil {
			t.Errorf("%s: %d (%v), want %d", name, got, err, tt.want)
		}
	}
}
