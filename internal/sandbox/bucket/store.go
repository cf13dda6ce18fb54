package bucket

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cutroom/internal/sandbox/fake"
)

// Object is the metadata of an object, stored next to its bytes.
type Object struct {
	Key         string    `json:"key"`
	SizeBytes   int64     `json:"sizeBytes"`
	ETag        string    `json:"etag"` // with its quotes
	ContentType string    `json:"contentType"`
	ModifiedAt  time.Time `json:"modifiedAt"`
	File        string    `json:"file"` // in the data folder; never reused
}

// store keeps objects in a folder: data/<random> has the bytes, meta/<hash of the key>.json the metadata. Replacing an
// object writes new bytes first, so readers of the old ones are not disturbed. The caller of its methods holds
// Bucket.mu.
type store struct {
	dir     string
	objects map[string]Object
}

func openStore(dir string) (*store, error) {
	s := &store{dir: dir, objects: map[string]Object{}}
	for _, sub := range []string{"data", "meta"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("open bucket folder: %w", err)
		}
	}
	kept := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "meta", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("open bucket folder: %w", err)
	}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("open bucket folder: %w", err)
		}
		var o Object
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		s.objects[o.Key], kept[o.File] = o, true
	}
	// Remove the parts of unfinished uploads, which ended with the previous process.
	parts, err := os.ReadDir(filepath.Join(dir, "data"))
	for _, part := range parts {
		if !kept[part.Name()] {
			err = errors.Join(err, os.Remove(s.path(part.Name())))
		}
	}
	return s, err
}

// newData returns an unused path for bytes in the data folder.
func (s *store) newData() (name, path string) {
	name = fake.RandomHex(16)
	return name, s.path(name)
}

func (s *store) path(name string) string { return filepath.Join(s.dir, "data", name) }

func (s *store) metaPath(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(s.dir, "meta", hex.EncodeToString(sum[:])+".json")
}

// put makes o the object of its key. Its bytes are already in the data folder.
func (s *store) put(o Object) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode object: %w", err)
	}
	meta := s.metaPath(o.Key)
	if err := os.WriteFile(meta+".part", raw, 0o600); err != nil {
		return fmt.Errorf("write object: %w", err)
	}
	if err := os.Rename(meta+".part", meta); err != nil {
		return fmt.Errorf("write object: %w", err)
	}
	old, replaced := s.objects[o.Key]
	s.objects[o.Key] = o
	if replaced && old.File != o.File {
		return removeIfThere(s.path(old.File))
	}
	return nil
}

// remove deletes an object; a missing object is not an error.
func (s *store) remove(key string) error {
	o, exists := s.objects[key]
	if !exists {
		return nil
	}
	delete(s.objects, key)
	return errors.Join(removeIfThere(s.metaPath(key)), removeIfThere(s.path(o.File)))
}

// keys returns the keys with a prefix, in byte order.
func (s *store) keys(prefix string) []string {
	var list []string
	for key := range s.objects {
		if strings.HasPrefix(key, prefix) {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
