// Package analysis measures an asset: length, size of the picture, loudness, onsets and waveform. Each asset is
// analysed once. The result is stored beside it in the bucket, for all accounts.
package analysis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/derived"
)

// Options configures a Service. All fields are required.
type Options struct {
	Assets  *asset.Service
	Bucket  *objectstore.Bucket
	Media   *media.Runner
	Slots   *media.FairSlots // shared with the analysis of uploads, by user
	Maker   *derived.Maker
	WorkDir string // a local folder for unfinished files
	Log     *slog.Logger
}

// Service analyses assets. It is safe for concurrent use.
type Service struct {
	o      Options
	limits media.MeasureOptions // of one analysis
}

// New returns a Service.
func New(o Options) *Service { return &Service{o, media.AnalysisLimits} }

const (
	slotWait     = 20 * time.Second
	fetchTimeout = 2 * time.Minute
	// retryAfter is how long to wait before repeating an analysis that exceeded a limit. It is repeated because the
	// machine may have been busy.
	retryAfter = time.Hour
)

var errBusy = fault.Busy(slotWait)

// The failures of a file, without the field of the request that names it.
var (
	errNotMedia  = errors.New("file without readable pictures or sound")
	errExhausted = errors.New("file that takes too much time or memory to analyse")
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

// version must change whenever the analysis of an asset would give a different result.
const version = 7

// Get returns the analysis of an asset, with at most this many points of its waveform. It counts as a use of the asset
// by the owner.
func (s *Service) Get(ctx context.Context, owner string, key asset.Key, points int) (Analysis, error) {
	if points < audio.MinPoints || points > audio.MaxPoints {
		return Analysis{}, fault.Invalidf("points must be %d..%d", audio.MinPoints, audio.MaxPoints)
	}
	src, err := s.use(ctx, owner, key, "assetKey")
	if err != nil {
		return Analysis{}, err
	}
	object := key.Derived("analysis.json")
	a, err := once(ctx, s, src, object, func() (Analysis, error) { return read[Analysis](ctx, s, object) }, s.analyse)
	if err != nil {
		return Analysis{}, src.refusal(err)
	}
	if a.Sound != nil {
		a.Sound.Peaks = a.Sound.Peaks.Coarser(points)
	}
	return a, nil
}

// once returns what known finds in the bucket. If it finds nothing, once first measures a copy of the asset and stores
// the result.
func once[T any](ctx context.Context, s *Service, src source, key string, known func() (T, error),
	measure func(ctx context.Context, file string) (T, error)) (T, error) {
	return derived.Get(ctx, s.o.Maker, src.owner, key, known, func(ctx context.Context) error {
		return s.derive(ctx, src, func(file, dir string) error {
			found, err := measure(ctx, file)
			return store(ctx, s, key, dir, found, err)
		})
	})
}

// source is an asset that a request reads.
type source struct {
	asset.Found
	owner string
	field string // of the request, for errors; "" if the request's path names the asset
}

// use finds an asset and makes the owner a holder of it.
func (s *Service) use(ctx context.Context, owner string, key asset.Key, field string) (source, error) {
	found, err := s.o.Assets.Use(ctx, owner, key)
	src := source{found, owner, field}
	return src, src.refusal(err)
}

// refusal names the field in a failure of its file.
func (src source) refusal(err error) error {
	subject := cmp.Or(src.field, "the address")
	switch {
	case errors.Is(err, errNotMedia):
		return fault.Invalidf("%s names a file without readable pictures or sound", subject).WithCause(err)
	case errors.Is(err, errExhausted):
		return fault.Invalidf("%s names a file that takes too much time or memory to analyse", subject).WithCause(err)
	case src.field == "" && (errors.Is(err, asset.ErrCorrupt) || errors.Is(err, objectstore.ErrNotFound)):
		return asset.ErrUnknown.WithCause(err)
	case errors.Is(err, asset.ErrCorrupt):
		return fault.NotFoundf("%s: the asset was damaged and removed; upload it again", src.field).WithCause(err)
	case errors.Is(err, objectstore.ErrNotFound): // removed since it was found
		return fault.NotFoundf("%s: the asset does not exist in the object store", src.field).WithCause(err)
	}
	return err
}

// derive fetches an asset and calls do with a copy of it, and a folder that do may use. It waits for the owner's
// analysis slot before it fetches, so that one user's requests fetch one asset at a time.
func (s *Service) derive(ctx context.Context, src source, do func(file, dir string) error) error {
	release, err := s.o.Slots.AcquireWithin(ctx, src.owner, slotWait, errBusy)
	if err != nil {
		return err
	}
	defer release()
	free, err := s.o.Maker.Space.Reserve(ctx, src.SizeBytes)
	if err != nil {
		return err
	}
	defer free()
	return derived.WithCopy(filepath.Join(s.o.WorkDir, folderPrefix+"*"), func(file string) error {
		ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, errBusy)
		defer cancel()
		return src.refusal(s.o.Assets.FetchForRequest(ctx, src.Key, file))
	}, do)
}

// result is an analysis as it is stored in the bucket.
type result[T any] struct {
	Version  int
	NotMedia bool  // the file has nothing to analyse
	TriedAt  int64 `json:",omitempty"` // when the analysis exceeded a limit, in epoch ms
	Found    T
}

// read returns a stored result, or the failure of the file. It returns ErrNotFound if the result has another version,
// or if the analysis is due to be repeated.
func read[T any](ctx context.Context, s *Service, key string) (found T, err error) {
	obj, err := s.o.Bucket.Open(ctx, key)
	if err != nil {
		return found, fmt.Errorf("open analysis: %w", err)
	}
	defer obj.Close()
	var r result[T]
	err = json.NewDecoder(obj).Decode(&r)
	switch {
	case err != nil:
		return found, fmt.Errorf("read analysis: %w", err)
	case r.Version != version:
		return found, fmt.Errorf("analysis of version %d: %w", r.Version, objectstore.ErrNotFound)
	case r.NotMedia:
		return found, errNotMedia
	case r.TriedAt > 0 && time.Since(time.UnixMilli(r.TriedAt)) > retryAfter:
		return found, fmt.Errorf("analysis due to be repeated: %w", objectstore.ErrNotFound)
	case r.TriedAt > 0:
		return found, errExhausted
	}
	return r.Found, nil
}

// store keeps a result, or the failure of the file. It returns any other failure.
func store[T any](ctx context.Context, s *Service, key, dir string, found T, failure error) error {
	r := result[T]{Version: version, Found: found}
	switch {
	case errors.Is(failure, errNotMedia):
		r.NotMedia = true
	case errors.Is(failure, errExhausted):
		r.TriedAt = time.Now().UnixMilli()
		s.o.Log.Info("an analysis exceeded its time or memory", "object", key, "err", failure)
	case failure != nil:
		return failure
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode analysis: %w", err)
	}
	file := filepath.Join(dir, "result.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return fmt.Errorf("write analysis: %w", err)
	}
	if err := s.o.Bucket.Put(ctx, key, file, "application/json"); err != nil {
		return fmt.Errorf("store analysis: %w", err)
	}
	return nil
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
