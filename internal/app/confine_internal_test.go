package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"cutroom/internal/film/media/confine"
)

func TestCheckConfinement(t *testing.T) {
	for name, c := range map[string]struct {
		namespaces, landlock, seccomp, must bool
		refused, said                       bool
	}{
		"all":                         {true, true, true, true, false, false},
		"no namespaces, as in Docker": {false, true, true, true, false, true},
		"no Landlock":                 {true, false, true, true, false, true},
		"neither":                     {false, false, true, true, true, false},
		"neither, best effort":        {false, false, true, false, false, true},
	} {
		var said bytes.Buffer
		err := checkConfinement([]confine.Layer{
			{Name: "namespaces", InForce: c.namespaces}, {Name: "landlock", InForce: c.landlock}, {Name: "seccomp", InForce: c.seccomp},
		}, c.must, slog.New(slog.NewTextHandler(&said, nil)))
		if refused := err != nil; refused != c.refused || c.refused && !strings.Contains(err.Error(), "MEDIA_CAGE") {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Contains(said.String(), "not fully confined"); got != c.said {
			t.Errorf("%s: said %q", name, said.String())
		}
	}
}
