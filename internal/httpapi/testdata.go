package httpapi

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"cutroom/internal/fault"
	"cutroom/internal/objectstore"
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

// testdataList lists the mock stems: folders named by their range in seconds
// and the audio files in them, without extension.
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
		f := testdataFolder{Folder: e.Name(), Stems: []string{}}
		f.StartSec, _ = strconv.ParseFloat(m[1], 64) // the pattern admits only numbers
		f.EndSec, _ = strconv.ParseFloat(m[2], 64)
		files, err := os.ReadDir(filepath.Join(s.o.TestdataDir, e.Name()))
		if err != nil {
			return err
		}
		for _, file := range files {
			ext := filepath.Ext(file.Name())
			stem := strings.TrimSuffix(file.Name(), ext)
			if file.Type().IsRegular() && slices.Contains(testdataExts, strings.ToLower(ext)) && !slices.Contains(f.Stems, stem) {
				f.Stems = append(f.Stems, stem)
			}
		}
		list = append(list, f)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].StartSec < list[j].StartSec })
	return ok(w, list)
}

func (s *Server) testdataStem(w http.ResponseWriter, r *http.Request) error {
	folder, stem := r.PathValue("folder"), r.PathValue("stem")
	notFound := fault.NotFoundf("mock stem not found")
	if !testdataRange.MatchString(folder) {
		return notFound
	}
	// The stem comes from the client: compare it with existing names, and never join it to a path.
	files, err := os.ReadDir(filepath.Join(s.o.TestdataDir, folder))
	if err != nil {
		return notFound.WithCause(err)
	}
	for _, want := range testdataExts {
		for _, file := range files {
			ext := filepath.Ext(file.Name())
			if !file.Type().IsRegular() || strings.ToLower(ext) != want || strings.TrimSuffix(file.Name(), ext) != stem {
				continue
			}
			return serveTestdata(w, r, filepath.Join(s.o.TestdataDir, folder, file.Name()), want)
		}
	}
	return notFound
}

func serveTestdata(w http.ResponseWriter, r *http.Request, path, ext string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", objectstore.ContentType(ext))
	return serveContent(w, r, info.ModTime(), f)
}
