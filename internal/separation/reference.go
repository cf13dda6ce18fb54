package separation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/credit"
	"cutroom/internal/fault"
	"cutroom/internal/idempotency"
	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/objectstore"
)

// Reference is a request to separate a stretch of the sound of an asset.
type Reference struct {
	AssetKey string
	From, To time.Duration // of the asset; To 0 is its end
	Language string        // "auto" or an ISO language code
}

var (
	errSilentAsset = fault.Invalidf("sourceAssetKey names a file without readable sound")
	errEmptyCut    = fault.Invalidf("trimStartMs and trimEndMs leave no sound of the asset")
	errNoAsset     = fault.NotFoundf("sourceAssetKey: the asset does not exist in the object store")
	errLongAsset   = fault.Invalidf("sourceAssetKey names a file that takes too much time or memory to cut")
)

// SubmitReference is Submit for a stretch of an asset. It cuts the sound at once,
// because the job's charge needs the price of the cut.
func (s *Service) SubmitReference(ctx context.Context, owner string, ref Reference, key idempotency.Key) (jobID string, err error) {
	jobID, err = s.newID()
	if err != nil {
		return "", err
	}
	// The sweep of folders recognises the job's id at the start of the name.
	dir, err := os.MkdirTemp(s.WorkDir, jobID+"-cut-*")
	if err != nil {
		return "", fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	made, file := newJob{id: jobID, owner: owner, fileName: ref.AssetKey, language: ref.Language}, ""
	answer, err := idempotency.Prepare(ctx, s.db, key, func() error {
		found, errs := s.Assets.Lookup(ctx, []string{ref.AssetKey})
		if errors.Is(errs[0], objectstore.ErrNotFound) {
			return errNoAsset
		}
		if errs[0] != nil {
			return errs[0]
		}
		made.used = found
		file, err = s.cut(ctx, dir, ref, &made)
		return err
	})
	if err != nil || answer != "" {
		return answer, err
	}
	return s.accept(ctx, key, made, file)
}

// cut writes the stretch of the asset to a file that the provider accepts, and describes
// that file in the job.
func (s *Service) cut(ctx context.Context, dir string, ref Reference, made *newJob) (file string, err error) {
	source := filepath.Join(dir, "asset")
	found, err := s.fetch(ctx, source, ref, made)
	if err != nil {
		return "", err
	}
	work := filepath.Join(dir, "job")
	if err := os.Mkdir(work, 0o700); err != nil {
		return "", fmt.Errorf("create work folder: %w", err)
	}
	release, err := s.analysisSlot(ctx, made.owner)
	if err != nil {
		return "", err
	}
	defer release()
	return s.encode(ctx, work, source, found, made)
}

// stretch is a part of the sound of a file.
type stretch struct {
	media.Probe
	window media.SoundWindow
}

func (s *Service) fetch(ctx context.Context, path string, ref Reference, made *newJob) (stretch, error) {
	if err := s.room(ctx, made.used[0].SizeBytes); err != nil {
		return stretch{}, err
	}
	switch err := s.Assets.FetchTo(ctx, ref.AssetKey, path); {
	case errors.Is(err, asset.ErrCorrupt):
		return stretch{}, fault.NotFoundf("sourceAssetKey: the asset was damaged and removed; upload it again").WithCause(err)
	case errors.Is(err, objectstore.ErrNotFound): // removed since it was found
		return stretch{}, errNoAsset.WithCause(err)
	case err != nil:
		return stretch{}, fmt.Errorf("fetch asset: %w", err)
	}
	probe, err := s.probe(ctx, made.owner, path)
	if err != nil {
		return stretch{}, assetRefused(err)
	}
	return s.plan(ctx, made.owner, probe, ref)
}

// room refuses a cut if that many bytes of the asset do not fit on the disk.
func (s *Service) room(ctx context.Context, bytes int64) error {
	free, unable := s.CanWork(ctx)
	if unable == nil && bytes+s.MaxAudioBytes <= free {
		return nil
	}
	return errBusy.WithCause(errors.Join(unable, fmt.Errorf("%d bytes to fetch, %d free", bytes, free)))
}

// probe reads a file in an analysis slot.
func (s *Service) probe(ctx context.Context, owner, path string) (media.Probe, error) {
	release, err := s.analysisSlot(ctx, owner)
	if err != nil {
		return media.Probe{}, err
	}
	defer release()
	return s.Media.ProbeWithin(ctx, path, media.MeasureOptions{MaxPackets: maxAssetPackets,
		MaxMemoryBytes: analysisMemory, Timeout: analysisTimeout})
}

// maxAssetPackets is more than the packets of twelve hours of film.
const maxAssetPackets = 6_000_000

// cutTimeout bounds the decoding and encoding of a cut: AAC of the usual size limit takes
// a minute and a half.
const cutTimeout = 3 * time.Minute

// assetRefused separates faults of the asset from faults of the service.
func assetRefused(err error) error {
	switch media.BlameFor(err) {
	case media.BlameMachine:
		return errBusy.WithCause(err)
	case media.BlameCost:
		return errLongAsset.WithCause(err)
	case media.BlameFile:
		return errSilentAsset.WithCause(err)
	}
	return err
}

// plan returns the stretch of sound between the trims, if the owner can pay for it.
func (s *Service) plan(ctx context.Context, owner string, p media.Probe, ref Reference) (stretch, error) {
	if p.Audio == nil || p.AudioPackets.Packets == 0 {
		return stretch{}, errSilentAsset
	}
	begin, end := p.AudioPackets.First-p.Zero(), p.AudioPackets.End-p.Zero()
	if ref.To > 0 {
		end = min(end, ref.To)
	}
	if end <= max(begin, ref.From) {
		return stretch{}, errEmptyCut
	}
	w := media.SoundWindow{From: ref.From, To: end, SampleRate: p.Audio.SampleRate}
	if p.Audio.Channels > 2 {
		w.Layout = "stereo"
	}
	if !slices.Contains(cutRates, w.SampleRate) {
		w.SampleRate = 48000
	}
	return stretch{p, w}, s.affordable(ctx, owner, credit.Price((end - ref.From).Milliseconds()))
}

// cutRates are the sample rates that WAV and AAC both have; others become 48 kHz.
var cutRates = []int{8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000}

// cutBitrate is the bit rate per channel of a cut that is too long for WAV.
const cutBitrate = 96_000

// encode writes the stretch as WAV, which is exact, or as AAC if the WAV file would be
// too large for the provider. It measures the result as it measures an upload.
func (s *Service) encode(ctx context.Context, dir, source string, found stretch, made *newJob) (file string, err error) {
	w, channels := found.window, int64(min(2, found.Audio.Channels))
	length := w.To - w.From
	kind, codec, file := container.WAV, []string{"-c:a", "pcm_s16le", "-f", "wav"}, filepath.Join(dir, "cut.wav")
	if wavHeader+media.MulDiv(int64(length), 2*channels*int64(w.SampleRate), int64(time.Second)) > s.MaxAudioBytes {
		if media.MulDiv(int64(length), cutBitrate*channels/8, int64(time.Second)) > s.MaxAudioBytes {
			return "", s.errLargeCut()
		}
		kind, file = container.MP4, filepath.Join(dir, "cut.m4a")
		codec = []string{"-c:a", "aac", "-b:a", strconv.FormatInt(cutBitrate*channels, 10), "-movflags", "+faststart", "-f", "ipod"}
	}
	args := append(append(found.SoundArgs(source, w), "-map_metadata", "-1", "-bitexact"), append(codec, "file:"+file)...)
	if _, err := s.Media.Encode(ctx, media.Pass{Name: "cut sound", Args: args, Dir: dir, Inputs: []string{source},
		Timeout: cutTimeout, MaxMemoryBytes: analysisMemory}); err != nil {
		return "", assetRefused(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("cut sound: %w", err)
	}
	if made.sizeBytes = info.Size(); made.sizeBytes > s.MaxAudioBytes {
		return "", s.errLargeCut()
	}
	measured, err := s.length(ctx, file, kind, maxPackets)
	if errors.Is(err, errNoSound) || errors.Is(err, errUnsupported) || err == nil && measured <= 0 {
		return "", errEmptyCut.WithCause(err)
	}
	if err != nil {
		return "", fmt.Errorf("measure cut: %w", err)
	}
	made.audio = classified{kind.AudioExt(), measured.Milliseconds()}
	return file, nil
}

// wavHeader is at least the size of the header of a WAV file.
const wavHeader = 128

func (s *Service) errLargeCut() error {
	return fault.Invalidf("the sound to separate is larger than the limit of %d MB: choose a shorter stretch", s.MaxAudioBytes>>20)
}
