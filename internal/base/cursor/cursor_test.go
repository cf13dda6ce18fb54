package cursor_test

import (
	"strings"
	"testing"

	"cutroom/internal/base/cursor"
)

func TestParseReadsWhatStringWrote(t *testing.T) {
	for _, id := range []string{"rnd-1", "platform_a-order 7 of März", "platform_b-" + strings.Repeat("x", 255)} {
		c := cursor.Cursor{At: 1795363665000, ID: id}
		if got, err := cursor.Parse(c.String()); got != c || err != nil {
			t.Errorf("%q becomes %+v, %v", id, got, err)
		}
	}
}
