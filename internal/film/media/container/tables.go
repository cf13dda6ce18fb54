// Sums up the sample tables of an mp4: how many packets a demuxer would make, before one is started on a hostile file.

package container

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Tables is what the sample tables of an mp4 declare: how much a demuxer would read, determined without reading it.
// Nothing in it is checked against the media.
type Tables struct {
	Tracks     []SampleTable
	Compressed bool // the index is compressed, so what it declares is unknown
}

// SampleTable is what one track declares.
type SampleTable struct {
	Sound   bool
	Codec   string // four characters of its first sample entry, "" if it has none
	Rate    int64  // audio samples per second, the highest rate that the headers state
	Samples int64  // entries of its tables, fragments included: packets, or frames of PCM

	frame int64 // audio samples per packet in the ALAC configuration, 0 without one
	ticks bool  // each packet lasts one tick of the clock
	id    uint32

	pictures    bool
	described   uint32 // number of the sample entry that fragments use if they name none
	redescribed bool   // a fragment uses another sample entry than the first
	edited      bool   // see Index.EditedVideo
	restarted   bool   // a fragment begins no later than an earlier one that has samples
	begun       int64  // when the latest fragment begins, in ticks; -1 before the first
	before      int64  // Samples before the latest fragment
}

// pcm are the sample entries of uncompressed sound, in which each sample is one frame.
var pcm = map[string]bool{
	"raw ": true, "twos": true, "sowt": true, "NONE": true, "in24": true, "in32": true, "fl32": true, "fl64": true,
	"lpcm": true, "ipcm": true, "fpcm": true, "ulaw": true, "alaw": true,
}

// packetSamples is the number of audio samples in a packet, by sample entry: MPEG audio and AAC without ADTS, ALAC as
// every encoder writes it, AC-3.
var packetSamples = map[string]int64{
	"mp4a": 1024, ".mp3": 1152, "ms\x00U": 1152, "alac": 4096, "ac-3": 1536, "ec-3": 1536,
}

// Seconds returns how long the track lasts by its packets. counted is false if the packets do not say.
func (t SampleTable) Seconds() (seconds int64, counted bool) {
	each := packetSamples[t.Codec]
	if pcm[t.Codec] {
		each = 1
	}
	if t.Codec == "alac" && t.frame != 0 && t.frame != each || t.Chunked() {
		each = 0
	}
	return t.Samples * each / max(t.Rate, 8000), each > 0
}

// blocks are the sample entries of QuickTime whose samples come in blocks of a fixed size (ADPCM, GSM). All demuxers
// read them by the chunk.
var blocks = map[string]bool{"ima4": true, "agsm": true, "ms\x00\x02": true, "ms\x00\x11": true, "ms\x001": true}

// Chunked reports whether ffmpeg treats each chunk of the track as one packet, as if the sound were uncompressed. It
// then finds fewer packets than other demuxers.
func (t SampleTable) Chunked() bool { return t.Sound && t.ticks && !pcm[t.Codec] && !blocks[t.Codec] }

// Packets returns how many packets a demuxer makes from the track. It reads up to 1024 frames of PCM at once.
func (t SampleTable) Packets() int64 {
	if pcm[t.Codec] {
		return t.Samples / 1024
	}
	return t.Samples
}

const (
	maxBoxes  = 1 << 20 // of one file: more than a day in fragments of one second
	maxTracks = 256
	maxNested = 8
	maxEntry  = 4096 // bytes of a sample entry that are read
)

// ErrTooManyBoxes means that an mp4 exceeds the limits on boxes or tracks.
var ErrTooManyBoxes = errors.New("too many boxes")

// ReadTables reads the sample tables of an mp4, whole or fragmented, but not their entries. A box that is cut off ends
// the reading of its parent.
func ReadTables(path string) (Tables, error) {
	f, size, err := open(path)
	if err != nil {
		return Tables{}, err
	}
	defer f.Close()
	s := tableScan{r: f}
	if err := s.walk(box{end: size}, 0); err != nil {
		return Tables{}, fmt.Errorf("read sample tables: %w", err)
	}
	return s.tables, nil
}

type tableScan struct {
	r        io.ReaderAt
	seen     int
	tables   Tables
	fragment uint32 // id of the track that the current fragment belongs to
	entry    uint32 // number of the sample entry that it names, or 0
}

// walk reads the boxes inside another box.
func (s *tableScan) walk(within box, depth int) error {
	for b, err := range boxes(s.r, within.body, within.end) {
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
		if s.seen++; s.seen > maxBoxes || len(s.tables.Tracks) > maxTracks {
			return ErrTooManyBoxes
		}
		switch b.kind {
		case "trak":
			s.tables.Tracks = append(s.tables.Tracks, SampleTable{begun: -1})
			fallthrough
		case "moov", "mdia", "minf", "stbl", "mvex", "udta", "edts", "moof", "traf":
			if depth < maxNested {
				err = s.walk(b, depth+1)
			}
		case "cmov":
			s.tables.Compressed, err = true, nil
		case "tkhd", "mdhd", "hdlr", "stsd", "stts", "stsz", "stz2", "trex", "tfhd", "tfdt", "trun", "elst":
			var content []byte
			if content, err = b.content(s.r, maxEntry); err == nil {
				s.field(b.kind, content)
			}
		default:
			err = nil
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
	}
	return nil
}

// field records a box of the most recent track, or of the track that a fragment names.
func (s *tableScan) field(kind string, b []byte) {
	switch kind {
	case "trex":
		if t := s.track(number(b, 4)); t != nil {
			t.described = number(b, 8)
		}
		return
	case "tfhd":
		s.fragment, s.entry = number(b, 4), 0
		if flags := number(b, 0); flags&2 != 0 {
			s.entry = number(b, 8+8*int(flags&1)) // after an offset, if there is one
		}
		return
	case "tfdt":
		if t := s.track(s.fragment); t != nil && len(b) >= 8 {
			begins := int64(number(b, 4))
			if b[0] == 1 {
				begins = begins<<32 | int64(number(b, 8))
			}
			t.restarted = t.restarted || begins < t.begun || begins == t.begun && t.Samples > t.before
			t.begun, t.before = begins, t.Samples
		}
		return
	case "trun":
		if t := s.track(s.fragment); t != nil {
			n := number(b, 4)
			t.Samples += int64(n)
			t.redescribed = t.redescribed || n > 0 && cmp.Or(s.entry, t.described, 1) != 1
		}
		return
	}
	if len(s.tables.Tracks) == 0 {
		return
	}
	t := &s.tables.Tracks[len(s.tables.Tracks)-1]
	long := 0 // version 1 has longer times
	if len(b) > 0 && b[0] == 1 {
		long = 8
	}
	switch kind {
	case "tkhd":
		t.id = number(b, 12+long)
	case "mdhd":
		t.Rate = max(t.Rate, int64(number(b, 12+long)))
	case "hdlr":
		t.Sound = t.Sound || len(b) >= 12 && string(b[8:12]) == sound
		t.pictures = t.pictures || len(b) >= 12 && string(b[8:12]) == video
	case "stts": // of a single entry
		t.ticks = number(b, 4) == 1 && number(b, 12) == 1
	case "stsz", "stz2":
		t.Samples += int64(number(b, 8))
	case "stsd":
		t.entry(b)
	case "elst":
		t.edited = t.edited || oddEdits(b)
	}
}

// oddEdits reports whether an edit list pauses between two stretches of the media, or plays one at another speed.
func oddEdits(elst []byte) bool {
	size, media := 12, 8 // size of an entry, and offset of its rate
	if len(elst) > 0 && elst[0] == 1 {
		size, media = 20, 16
	}
	played, paused := 0, false
	for at := 8; at+size <= len(elst) && at < 8+size*int(number(elst, 4)); at += size {
		if number(elst, at+media-4) == 0xFFFFFFFF { // an empty edit; before the media it is only a delay
			paused = played > 0
			continue
		}
		played++
		rate := number(elst, at+media)
		if paused || rate != 1<<16 && (rate != 0 || played > 1) { // some writers omit the rate of a single edit
			return true
		}
	}
	return false
}

// track returns the first track with an id, or nil.
func (s *tableScan) track(id uint32) *SampleTable {
	for i := range s.tables.Tracks {
		if t := &s.tables.Tracks[i]; t.id == id {
			return t
		}
	}
	return nil
}

// entry parses the first sample entry of an audio track.
func (t *SampleTable) entry(stsd []byte) {
	if len(stsd) < 16 {
		return
	}
	t.Codec = string(stsd[12:16])
	if t.Codec != "alac" {
		t.Rate = max(t.Rate, int64(number(stsd, 40)>>16))
		return
	}
	if i := bytes.LastIndex(stsd, []byte("alac")); i > 16 {
		t.frame = int64(number(stsd, i+8))
	}
}

// number returns the 32-bit number at an offset, or 0 if b is too short.
func number(b []byte, at int) uint32 {
	if len(b) < at+4 {
		return 0
	}
	return binary.BigEndian.Uint32(b[at:])
}
