package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// NodeID returns the identity of the disk under dir. The first call creates it and stores
// it in a file there. Processes that share a disk are one node, and a process that
// restarts on its disk stays the same node.
func NodeID(dir string) (string, error) {
	path := filepath.Join(dir, "node-id")
	if b, err := os.ReadFile(path); err == nil {
		if id, err := uuid.Parse(strings.TrimSpace(string(b))); err == nil {
			return id.String(), nil
		}
	}
	id := uuid.NewString()
	f, err := os.CreateTemp(dir, ".node-id-*")
	if err != nil {
		return "", fmt.Errorf("create node id: %w", err)
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString(id + "\n"); err != nil {
		f.Close()
		return "", fmt.Errorf("write node id: %w", err)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("write node id: %w", err)
	}
	// Link fails if another process was faster; then use the id of that process.
	if err := os.Link(f.Name(), path); err != nil {
		b, rerr := os.ReadFile(path)
		if parsed, perr := uuid.Parse(strings.TrimSpace(string(b))); rerr == nil && perr == nil {
			return parsed.String(), nil
		}
		if err := os.Rename(f.Name(), path); err != nil {
			return "", fmt.Errorf("keep node id: %w", err)
		}
	}
	return id, nil
}
