package render

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/user"
)

// Poster opens the picture of the owner's film, for reading until ctx ends. It does not renew the film's lifetime. The
// caller closes the object. If the job failed to make one, Poster makes and stores it.
//
// Posters are streamed from a bucket too, without a redirect: apps cache pictures by a constant URL and their ETag, and
// would send their bearer token to a presigned URL, which a bucket refuses.
func (s *Service) Poster(ctx context.Context, owner, jobID string) (obj objectstore.Object, fileName string, err error) {
	f, err := s.findFilm(ctx, owner, jobID)
	if err != nil {
		return nil, "", err
	}
	if f.kind == timeline.Audio {
		return nil, "", errNoPicture
	}
	key := posterKey(jobID)
	obj, err = derived.Get(ctx, s.OnDemand, owner, key, func() (objectstore.Object, error) { return s.Store.Open(ctx, key) },
		func(ctx context.Context) error { return s.makePoster(ctx, jobID, f) })
	if errors.Is(err, objectstore.ErrNotFound) { // deleted in the meantime
		return nil, "", errExpired.WithCause(err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("open poster: %w", err)
	}
	return obj, filepath.Base(key), nil
}

var errNoPicture = fault.NotFoundf("an audio-only render has no poster")

// makePoster makes the poster of a stored film and records it in the job's row.
func (s *Service) makePoster(ctx context.Context, jobID string, f stored) error {
	return derived.Recipe{Store: s.Store, Space: s.OnDemand.Space, Bytes: f.size, Source: f.key, Key: posterKey(jobID),
		Folder: filepath.Join(s.WorkDir, jobID+"-poster-*"),
		Make:   func(film, dir string) error { return s.storePoster(ctx, jobID, film, dir) },
		Note: func() (int64, error) {
			return s.DB.Exec(ctx, `UPDATE renders SET poster_key = $2 WHERE job_id = $1 AND output_key = $3
				AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = $1 AND `+user.Exists("j.user_id")+`)`, jobID, posterKey(jobID), f.key)
		}}.Run(ctx)
}

// addPoster makes and stores the poster of a film that was just rendered, and returns its key. If that fails, it
// returns "", the film still succeeds, and Poster makes the poster on request.
func (s *Service) addPoster(ctx context.Context, j claimedJob, film string) string {
	if j.Spec.Timeline.OutputKind == timeline.Audio {
		return ""
	}
	if err := s.storePoster(ctx, j.ID, film, filepath.Dir(film)); err != nil {
		if ctx.Err() == nil {
			s.jobs.AttemptLog(j.Claim).Warn("poster not made; the first request for it will make it", "err", err)
		}
		return ""
	}
	return posterKey(j.ID)
}

// storePoster makes a poster in dir and stores it. ffmpeg may change anything in dir.
func (s *Service) storePoster(ctx context.Context, jobID, film, dir string) error {
	jpeg := filepath.Join(dir, "poster.jpg")
	if err := s.Engine.Poster(ctx, film, jpeg); err != nil {
		return err
	}
	key := posterKey(jobID)
	if err := s.Store.Put(ctx, key, jpeg, objectstore.ContentType(key)); err != nil {
		return fmt.Errorf("store poster: %w", err)
	}
	return nil
}
