package timeline

import (
	"encoding/json"
	"fmt"
)

// storedVersion must be raised when an older reader would misread the stored form.
const storedVersion = 1

type fields Timeline // without its methods

type stored struct {
	Version int `json:"v"`
	fields
}

// MarshalJSON returns the stored form of t, which this and every later version can read. It fails only for numbers that
// are not finite, which Validate refuses.
func (t Timeline) MarshalJSON() ([]byte, error) {
	return json.Marshal(stored{storedVersion, fields(t)})
}

// UnmarshalJSON reads the stored form. It does not validate the result again.
func (t *Timeline) UnmarshalJSON(data []byte) error {
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if s.Version != storedVersion {
		return fmt.Errorf("unknown version %d of a timeline", s.Version)
	}
	*t = Timeline(s.fields)
	return nil
}
