package timeline

import (
	"encoding/json"
	"fmt"
)

// storedVersion must be raised when the stored form changes in a way that an older reader would misread. Decode
// refuses unknown versions.
const storedVersion = 1

type stored struct {
	Version int `json:"v"`
	Timeline
}

// Encode returns the stored form of t. Decode of this and every later version can read it. Encode fails only
// for numbers that are not finite, which Validate refuses.
func (t Timeline) Encode() ([]byte, error) {
	data, err := json.Marshal(stored{storedVersion, t})
	if err != nil {
		return nil, fmt.Errorf("encode timeline: %w", err)
	}
	return data, nil
}

// Decode parses the stored form. It does not validate the result again.
func Decode(data []byte) (Timeline, error) {
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return Timeline{}, fmt.Errorf("decode timeline: %w", err)
	}
	if s.Version != storedVersion {
		return Timeline{}, fmt.Errorf("decode timeline: unknown version %d", s.Version)
	}
	return s.Timeline, nil
}
