package analysis

import (
	"context"
	"errors"
	"fmt"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/film/engine"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/derived"
)

// The limits of a storyboard, in tiles and pixels.
const (
	MaxTiles, DefaultTiles              = 60, 12
	MinHeight, MaxHeight, DefaultHeight = 45, 360, 90
	maxStripWidth                       = 65_000 // JPEG allows 65,535
	maxStoryboards                      = 24     // kept for one asset
	jpegQuality                         = 82
)

var (
	// ErrInvalidTiles refuses a number of tiles.
	ErrInvalidTiles = fault.New(fault.Invalid, "invalid_frames")
	// ErrInvalidHeight refuses the height of a storyboard.
	ErrInvalidHeight = fault.New(fault.Invalid, "invalid_height")

	errNoPictures = fault.Invalidf("the asset has no pictures")
)

// Storyboard opens a JPEG with pictures of an asset: up to MaxTiles tiles of equal width from left to right, of a
// height that is rounded down to an even number. It counts as a use of the asset by the owner. Like every analysis, it
// is made once, for all accounts.
func (s *Service) Storyboard(ctx context.Context, owner string, name asset.Key, tiles, height int) (objectstore.Object, error) {
	src, err := s.use(ctx, owner, name, "")
	if err != nil {
		return nil, err
	}
	board := engine.Storyboard{Tiles: tiles, Height: height &^ 1}
	key := name.Derived(fmt.Sprintf("%s%d-%d.jpg", storyboardPrefix, board.Tiles, board.Height))
	obj, err := derived.Get(ctx, s.o.Maker, owner, key, func() (objectstore.Object, error) { return s.openStoryboard(ctx, key) },
		func(ctx context.Context) error {
			return s.derive(ctx, src, func(file, dir string) error {
				err := s.draw(ctx, board, key, file, dir)
				if errors.Is(err, errNotMedia) || errors.Is(err, errExhausted) {
					err = store(ctx, s, key+refusedSuffix, dir, struct{}{}, err)
				}
				if err != nil {
					return err
				}
				return s.dropOldStoryboards(ctx, key)
			})
		})
	if errors.Is(err, errNotMedia) {
		return nil, errNoPictures.WithCause(err)
	}
	return obj, src.refusal(err)
}

const (
	storyboardPrefix = "storyboard-"
	refusedSuffix    = ".json" // of the result that says why there is no storyboard
)

func (s *Service) openStoryboard(ctx context.Context, key string) (objectstore.Object, error) {
	obj, err := s.o.Bucket.Open(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		_, err = read[struct{}](ctx, s, key+refusedSuffix)
	}
	return obj, err
}

// draw makes a storyboard of a local file and stores it.
func (s *Service) draw(ctx context.Context, board engine.Storyboard, key, file, dir string) error {
	p, err := s.o.Media.ProbeWithin(ctx, file, s.limits)
	if err != nil {
		return blame(err)
	}
	v := describeVideo(p)
	if v == nil {
		return errNotMedia
	}
	board.Width = engine.TileWidth(v.Width, v.Height, board.Height)
	if board.Width*board.Tiles > maxStripWidth {
		return ErrInvalidTiles
	}
	strip, err := board.Draw(ctx, s.o.Media, file, dir, p, s.limits)
	if err != nil {
		return blame(err)
	}
	picture := filepath.Join(dir, "storyboard.jpg")
	f, err := os.Create(picture)
	if err != nil {
		return fmt.Errorf("write storyboard: %w", err)
	}
	if err := errors.Join(jpeg.Encode(f, strip, &jpeg.Options{Quality: jpegQuality}), f.Close()); err != nil {
		return fmt.Errorf("write storyboard: %w", err)
	}
	if err := s.o.Bucket.Put(ctx, key, picture, "image/jpeg"); err != nil {
		return fmt.Errorf("store storyboard: %w", err)
	}
	return nil
}

// dropOldStoryboards keeps the newest storyboards of an asset: clients can ask for thousands of sizes, and storyboards
// count against no account's limit.
func (s *Service) dropOldStoryboards(ctx context.Context, key string) error {
	var all []objectstore.Info
	if err := s.o.Bucket.List(ctx, key[:strings.LastIndexByte(key, '/')+1]+storyboardPrefix, func(o objectstore.Info) error {
		all = append(all, o)
		return nil
	}); err != nil {
		return fmt.Errorf("list storyboards: %w", err)
	}
	slices.SortFunc(all, func(a, b objectstore.Info) int { return a.ModTime.Compare(b.ModTime) })
	var old []string
	for _, o := range all[:max(0, len(all)-maxStoryboards)] {
		if !strings.HasPrefix(o.Key, key) {
			old = append(old, o.Key)
		}
	}
	return s.o.Bucket.Delete(ctx, old...)
}
