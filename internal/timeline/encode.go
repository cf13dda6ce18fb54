package timeline

import (
	"encoding/json"
	"fmt"
	"time"
)

// storedVersion is raised when the stored form changes in a way that an older
// reader would misread. Decode refuses versions it does not know.
const storedVersion = 1

// The stored form. Jobs survive an upgrade of the program, so it is spelled out
// apart from the domain types: renaming a field there must not change what lies
// in the database. All times are nanoseconds.
type (
	storedTimeline struct {
		Version    int               `json:"v"`
		OutputKind OutputKind        `json:"kind"`
		Quality    Quality           `json:"quality"`
		Segments   []storedSegment   `json:"segments"`
		Clips      []storedClip      `json:"clips,omitempty"`
		Directives []storedDirective `json:"directives,omitempty"`
	}
	storedSegment struct {
		Source    string  `json:"source"`
		Order     int64   `json:"order"`
		Duration  int64   `json:"durationNs"`
		TrimStart int64   `json:"trimStartNs"`
		TrimEnd   int64   `json:"trimEndNs"`
		Volume    float64 `json:"volume"`
		Speed     float64 `json:"speed"`
	}
	storedClip struct {
		Source    string  `json:"source"`
		Start     int64   `json:"startNs"`
		TrimStart int64   `json:"trimStartNs"`
		TrimEnd   int64   `json:"trimEndNs"`
		Volume    float64 `json:"volume"`
		Speed     float64 `json:"speed"`
	}
	storedDirective struct {
		ID           string            `json:"id"`
		Start        int64             `json:"startNs"`
		End          int64             `json:"endNs"`
		MuteOriginal bool              `json:"muteOriginal"`
		SourceOffset int64             `json:"sourceOffsetNs"`
		AppliedSpeed float64           `json:"appliedSpeed"`
		Selections   []storedSelection `json:"selections,omitempty"`
	}
	storedSelection struct {
		StemID string  `json:"stemId"`
		Source string  `json:"source"`
		Volume float64 `json:"volume"`
	}
)

// Encode returns the stored form of t, which Decode of this and every later
// version reads. It fails only for numbers that are not finite, which Validate
// refuses.
func (t Timeline) Encode() ([]byte, error) {
	s := storedTimeline{Version: storedVersion, OutputKind: t.OutputKind, Quality: t.Quality}
	for _, x := range t.Segments {
		s.Segments = append(s.Segments, storedSegment{
			Source: x.SourceKey, Order: x.Order, Duration: int64(x.Duration),
			TrimStart: int64(x.TrimStart), TrimEnd: int64(x.TrimEnd), Volume: x.Volume, Speed: x.Speed,
		})
	}
	for _, x := range t.Clips {
		s.Clips = append(s.Clips, storedClip{
			Source: x.SourceKey, Start: int64(x.Start), TrimStart: int64(x.SourceTrimStart),
			TrimEnd: int64(x.SourceTrimEnd), Volume: x.Volume, Speed: x.Speed,
		})
	}
	for _, x := range t.Directives {
		d := storedDirective{
			ID: x.ID, Start: int64(x.Range.Start), End: int64(x.Range.End), MuteOriginal: x.MuteOriginal,
			SourceOffset: int64(x.SourceOffset), AppliedSpeed: x.AppliedSpeed,
		}
		for _, y := range x.Selections {
			d.Selections = append(d.Selections, storedSelection{StemID: y.StemID, Source: y.SourceKey, Volume: y.Volume})
		}
		s.Directives = append(s.Directives, d)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode timeline: %w", err)
	}
	return data, nil
}

// Decode reads what Encode wrote. The result is not validated again.
func Decode(data []byte) (Timeline, error) {
	var s storedTimeline
	if err := json.Unmarshal(data, &s); err != nil {
		return Timeline{}, fmt.Errorf("decode timeline: %w", err)
	}
	if s.Version != storedVersion {
		return Timeline{}, fmt.Errorf("decode timeline: unknown version %d", s.Version)
	}
	t := Timeline{OutputKind: s.OutputKind, Quality: s.Quality}
	for _, x := range s.Segments {
		t.Segments = append(t.Segments, Segment{
			SourceKey: x.Source, Order: x.Order, Duration: time.Duration(x.Duration),
			TrimStart: time.Duration(x.TrimStart), TrimEnd: time.Duration(x.TrimEnd), Volume: x.Volume, Speed: x.Speed,
		})
	}
	for _, x := range s.Clips {
		t.Clips = append(t.Clips, Clip{
			SourceKey: x.Source, Start: time.Duration(x.Start), SourceTrimStart: time.Duration(x.TrimStart),
			SourceTrimEnd: time.Duration(x.TrimEnd), Volume: x.Volume, Speed: x.Speed,
		})
	}
	for _, x := range s.Directives {
		d := Directive{
			ID: x.ID, Range: Range{time.Duration(x.Start), time.Duration(x.End)}, MuteOriginal: x.MuteOriginal,
			SourceOffset: time.Duration(x.SourceOffset), AppliedSpeed: x.AppliedSpeed,
		}
		for _, y := range x.Selections {
			d.Selections = append(d.Selections, Selection{StemID: y.StemID, SourceKey: y.Source, Volume: y.Volume})
		}
		t.Directives = append(t.Directives, d)
	}
	return t, nil
}
