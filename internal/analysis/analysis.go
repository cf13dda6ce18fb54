// Package analysis measures an asset: length, size of the picture, loudness, onsets and
// waveform. Each asset is analysed once. The result is stored beside it in the bucket,
// for all accounts.
package analysis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/audio"
	"cutroom/internal/derived"
	"cutroom/internal/disk"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/objectstore"
)

// Options configures a Service. All fields are required.
type Options struct {
	Assets *asset.Service
	Bucket *objectstore.Bucket
	Media  *media.Runner
	Slots  *media.FairSlots // shared with the analysis of uploads, by user
	Maker  *derived.Maker
	// CanWork returns how many bytes this replica may still write, or why it must not
	// work now.
	CanWork func(ctx context.Context) (freeBytes int64, err error)
	WorkDir string // a local folder for unfinished files
	Log     *slog.Logger
}

// Service analyses assets. It is safe for concurrent use.
type Service struct {
	o     Options
	limit time.Duration // of one analysis
}

// New returns a Service.
func New(o Options) *Service { return &Service{o, timeLimit} }

// What the analysis of one asset may cost.
const (
	maxMemory  = 512 << 20
	maxPackets = 6_000_000
	timeLimit  = 60 * time.Second
	slotWait   = 20 * time.Second
	// retryAfter is how long an analysis that exceeded a limit is not repeated. Later it
	// is, because the machine may have been busy.
	retryAfter = time.Hour
)

var (
	errBusy      = &fault.Error{Kind: fault.Unavailable, Code: "unavailable", RetryAfter: slotWait}
	errNotMedia  = fault.Invalidf("assetKey names a file without readable pictures or sound")
	errExhausted = fault.Invalidf("assetKey names a file that takes too much time or memory to analyse")
)

// Analysis describes an asset.
type Analysis struct {
	DurationMs int64
	Video      *Video `json:",omitempty"` // nil without a picture
	Sound      *Sound `json:",omitempty"` // nil without sound
}

// Video is the picture as a player shows it.
type Video struct {
	Width, Height int
	FrameRate     float64
}

// Sound has the measurements of the sound.
type Sound struct {
	// Loudness is integrated, in LUFS, and TruePeak in dBFS; nil for silence.
	Loudness, TruePeak *float64
	OnsetsMs           []int64
	Peaks              audio.Waveform
}

// stored is an Analysis as the bucket has it.
type stored struct {
	Version  int
	NotMedia bool // the asset has neither pictures nor sound
	// TriedAt is when the analysis exceeded a limit, in epoch ms.
	TriedAt int64 `json:",omitempty"`
	Analysis
}

// version changes whenever the analysis of an asset would have another result.
const version = 3

// Get returns the analysis of an asset, with at most this many points of its waveform. It
// counts as a use of the asset by the owner.
func (s *Service) Get(ctx context.Context, owner, assetKey string, points int) (Analysis, error) {
	if points < audio.MinPoints || points > audio.MaxPoints {
		return Analysis{}, fault.Invalidf("points must be %d..%d", audio.MinPoints, audio.MaxPoints)
	}
	key, err := s.o.Assets.Use(ctx, owner, assetKey)
	if err != nil {
		return Analysis{}, err
	}
	found, err := derived.Get(ctx, s.o.Maker, key.AnalysisKey(), func() (stored, error) { return s.read(ctx, key.AnalysisKey()) },
		func(ctx context.Context) error { return s.make(ctx, owner, key) })
	if err != nil {
		return Analysis{}, err
	}
	switch {
	case found.NotMedia:
		return Analysis{}, errNotMedia
	case found.TriedAt > 0:
		return Analysis{}, errExhausted
	}
	if found.Sound != nil {
		found.Sound.Peaks = found.Sound.Peaks.Coarser(points)
	}
	return found.Analysis, nil
}

// read returns a stored analysis, or ErrNotFound if it has another version or is due to be repeated.
func (s *Service) read(ctx context.Context, key string) (found stored, err error) {
	obj, err := s.o.Bucket.Open(ctx, key)
	if err != nil {
		return found, fmt.Errorf("open analysis: %w", err)
	}
	defer obj.Close()
	b, err := io.ReadAll(obj)
	if err == nil {
		err = json.Unmarshal(b, &found)
	}
	if err != nil {
		return found, fmt.Errorf("read analysis: %w", err)
	}
	if found.Version != version {
		return found, fmt.Errorf("analysis of version %d: %w", found.Version, objectstore.ErrNotFound)
	}
	if found.TriedAt > 0 && time.Since(time.UnixMilli(found.TriedAt)) > retryAfter {
		return found, fmt.Errorf("analysis due to be repeated: %w", objectstore.ErrNotFound)
	}
	return found, nil
}

// make analyses an asset and stores the result.
func (s *Service) make(ctx context.Context, owner string, key asset.Key) error {
	if err := derived.Room(ctx, s.o.CanWork, 0); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.o.WorkDir, folderPrefix+"*")
	if err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "asset")
	switch err := s.o.Assets.FetchTo(ctx, key.String(), file); {
	case errors.Is(err, asset.ErrCorrupt):
		return fault.NotFoundf("assetKey: the asset was damaged and removed; upload it again").WithCause(err)
	case errors.Is(err, objectstore.ErrNotFound): // removed since it was found
		return fault.NotFoundf("assetKey: the asset does not exist in the object store").WithCause(err)
	case err != nil:
		return err
	}
	wait, cancel := context.WithTimeoutCause(ctx, slotWait, errBusy)
	defer cancel()
	release, err := s.o.Slots.Acquire(wait, owner)
	if err != nil {
		return err
	}
	defer release()
	found := stored{Version: version}
	switch found.Analysis, err = s.analyse(ctx, file); {
	case errors.Is(err, errNotMedia):
		found.NotMedia = true
	case errors.Is(err, errExhausted):
		found.TriedAt = time.Now().UnixMilli()
		s.o.Log.Info("an analysis exceeded its time or memory", "asset", key, "err", err)
	case err != nil:
		return err
	}
	return s.store(ctx, key.AnalysisKey(), filepath.Join(dir, "analysis.json"), found)
}

// folderPrefix begins the names of our work folders.
const folderPrefix = "analysis-"

// SweepFolders removes the work folders that a crash left behind on this disk.
func (s *Service) SweepFolders(context.Context) error {
	if err := disk.RemoveOld(s.o.WorkDir, folderPrefix, time.Hour); err != nil {
		return fmt.Errorf("sweep work folders: %w", err)
	}
	return nil
}

func (s *Service) store(ctx context.Context, key, file string, found stored) error {
	b, err := json.Marshal(found)
	if err != nil {
		return fmt.Errorf("encode analysis: %w", err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return fmt.Errorf("write analysis: %w", err)
	}
	if err := s.o.Bucket.Put(ctx, key, file, "application/json"); err != nil {
		return fmt.Errorf("store analysis: %w", err)
	}
	return nil
}
