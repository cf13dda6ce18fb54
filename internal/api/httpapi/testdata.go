package httpapi

import (
	"cmp"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cutroom/internal/base/fault"
	"cutroom/internal/storage/objectstore"
)

type testdataFolder struct {
	Folder   string   `json:"folder"`
	StartSec float64  `json:"startSec"`
	EndSec   float64  `json:"endSec"`
	Stems    []string `json:"stems"`
}

var (
	// testdataRange matches a folder name, <startSec>-<endSec>.
	testdataRange = regexp.MustCompile(`^(\d{1,9}(?:\.\d{1,6})?)-(\d{1,9}(?:\.\d{1,6})?)$`)
	testdataExts  = []string{".wav", ".mp3", ".m4a", ".aac", ".ogg", ".flac"}
)

// testdataList lists the mock stems: folders named by their range in seconds and the audio files in them, without
// extension.
func (s *Server) testdataList(w http.ResponseWriter, r *http.Request) error {
	list := []testdataFolder{}
	entries, err := os.ReadDir(s.o.TestdataDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		m := testdataRange.FindStringSubmatch(e.Name())
		if m == nil || !e.IsDir() {
			continue
		}
		files, err := s.testdataFiles(e.Name())
		if err != nil {
			return err
		}
		f := testdataFolder{Folder: e.Name(), Stems: append([]string{}, slices.Sorted(maps.Keys(files))...)}
		f.StartSec, _ = strconv.ParseFloat(m[1], 64) // the pattern admits only numbers
		f.EndSec, _ = strconv.ParseFloat(m[2], 64)
		list = append(list, f)
	}
	slices.SortStableFunc(list, func(a, b testdataFolder) int { return cmp.Compare(a.StartSec, b.StartSec) })
	return ok(w, list)
}

// testdataFiles returns the names of the audio files in a folder, by stem.
func (s *Server) testdataFiles(folder string) (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.o.TestdataDir, folder))
	files := map[string]string{}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if e.Type().IsRegular() && slices.Contains(testdataExts, strings.ToLower(ext)) {
			files[strings.TrimSuffix(e.Name(), ext)] = e.Name()
		}
	}
	return files, err
}

func (s *Server) testdataStem(w http.ResponseWriter, r *http.Request) error {
	folder := r.PathValue("folder")
	notFound := fault.NotFoundf("mock stem not found")
	if !testdataRange.MatchString(folder) {
		return notFound
	}
	// The stem comes from the client: compare it with existing names, and never join it to a path.
	files, err := s.testdataFiles(folder)
	name, found := files[r.PathValue("stem")]
	if !found {
		return notFound.WithCause(err)
	}
	f, err := os.Open(filepath.Join(s.o.TestdataDir, folder, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", objectstore.ContentType(name))
	return serveContent(w, r, info.ModTime(), f)
}
