package lease

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/db"
)

// NodeTTL is how long a node counts as alive after it was last seen.
const NodeTTL = 30 * time.Second

// NodeID returns the identity of the disk under dir, made at the first call
// and kept in a file there. Two processes on one disk are one node; a process
// that restarts on its disk is the node it was.
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
	// Link fails when another process was faster; then its id is the node's.
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

// RunNode says that the node is alive, until ctx ends.
func RunNode(ctx context.Context, d *db.DB, nodeID string, log *slog.Logger) error {
	tick := time.NewTicker(NodeTTL / 3)
	defer tick.Stop()
	for {
		_, err := d.Exec(ctx, `INSERT INTO nodes (id, seen_at) VALUES ($1, now_ms())
			ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at`, nodeID)
		if err != nil && ctx.Err() == nil {
			log.Warn("node heartbeat not written", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
