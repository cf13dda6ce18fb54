package test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/testkit/apitest"
)

func TestMock(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("ENABLE_TESTDATA_MOCK", "true"), apitest.Replicas(1))
	write := func(path, content string) {
		t.Helper()
		path = filepath.Join(s.Dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, ext := range []string{"wav", "mp3", "m4a", "aac", "ogg", "flac"} {
		write("0-30/stem_"+ext+"."+ext, "bytes of "+ext)
	}
	write("12.5-40/voice_all.wav", "voice")
	write("12.5-40/notes.txt", "not audio")
	write("notes/voice_all.wav", "not a range")
	write("secret.wav", "outside of every folder")

	var list []struct {
		Folder           string
		StartSec, EndSec float64
		Stems            []string
	}
	s.Do(t, apitest.Request{Path: "/api/v2/testdata/separation/list", Valid: true}).Expect(200).JSON(&list)
	if len(list) != 2 {
		t.Fatalf("%d folders, want 2: %+v", len(list), list)
	}
	for _, item := range list {
		slices.Sort(item.Stems)
		got := strings.Join(item.Stems, " ")
		switch item.Folder {
		case "0-30":
			if item.StartSec != 0 || item.EndSec != 30 || got != "stem_aac stem_flac stem_m4a stem_mp3 stem_ogg stem_wav" {
				t.Errorf("%+v", item)
			}
		case "12.5-40":
			if item.StartSec != 12.5 || item.EndSec != 40 || got != "voice_all" {
				t.Errorf("%+v", item)
			}
		default:
			t.Errorf("%+v is not a folder of the mock", item)
		}
	}
	for _, ext := range []string{"wav", "mp3", "m4a", "aac", "ogg", "flac"} {
		res := s.Do(t, apitest.Request{Path: "/api/v2/testdata/separation/0-30/stem_" + ext, Valid: true}).Expect(200)
		if !bytes.Equal(res.Body, []byte("bytes of "+ext)) {
			t.Errorf("%s: %q", ext, res.Body)
		}
	}
	for _, path := range []string{"0-30/none", "0-31/stem_wav", "notes/voice_all", "12.5-40/notes", "0-30/..%2fsecret",
		"..%2f" + filepath.Base(s.Dir) + "/secret", "%2e%2e/secret", "./secret", "0-30/stem_wav.wav%00", "0-30/%2e%2e%2fsecret.wav"} {
		res := s.Do(t, apitest.Request{Path: "/api/v2/testdata/separation/" + path})
		if res.Status != 404 && res.Status/100 != 3 && res.Status != 400 {
			t.Errorf("%s: %d", path, res.Status)
		}
		if bytes.Contains(res.Body, []byte("outside")) {
			t.Errorf("%s: a file outside the mock's folders", path)
		}
	}
}
