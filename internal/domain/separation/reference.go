// Separation by reference: a stretch of an asset's sound is priced, matched with earlier jobs of the same sound, and
// cut into the file that the provider gets.

package separation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/rescue"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/credit"
	"cutroom/internal/domain/separation/price"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/job"
	"cutroom/internal/work/user"
)

// Reference is a request to separate a stretch of the sound of an asset.
type Reference struct {
	Source   asset.Key
	From, To time.Duration // of the asset; To 0 is its end
	Language string        // "auto" or an ISO language code
	FileName string        // for the owner's history; "" is the asset key
	Again    bool          // makes a new job even if the owner has one of this sound
}

// sound identifies what a job by reference separates.
func (r Reference) sound() string {
	return fmt.Sprintf("%s %d %d %s", r.Source, r.From.Milliseconds(), r.To.Milliseconds(), r.Language)
}

var (
	errBusy      = fault.Busy(price.SlotWait)
	errLateStart = fault.Invalidf("trimStartMs must be before the end of the asset's sound")
	errEarlyEnd  = fault.Invalidf("trimEndMs must be after the beginning of the asset's sound, or 0 for the end")
	errNoLength  = fault.Invalidf("sourceAssetKey names a file with less than a millisecond of sound between the trims")
	errNoAsset   = fault.NotFoundf("sourceAssetKey: the asset does not exist in the object store")
)

// SubmitReference is Submit for a stretch of an asset. Unless the owner wants the sound separated again, it answers
// with the owner's newest job of the same sound, as long as that has its stems or will have them. reused reports this.
// The owner then needs neither credits nor room in the queue, and the job's lifetime is not extended.
func (s *Service) SubmitReference(ctx context.Context, owner string, ref Reference,
	key idempotency.Key) (jobID string, reused bool, err error) {
	// Another request may insert the job after we looked for it, and the job may end before we look again.
	for range 3 {
		answer, err := s.submitReference(ctx, owner, ref, key)
		if !errors.Is(err, errChanged) {
			jobID, reused = strings.CutSuffix(answer, reusedMark)
			return jobID, reused, err
		}
	}
	return "", false, errBusy
}

func (s *Service) submitReference(ctx context.Context, owner string, ref Reference, key idempotency.Key) (answer string, err error) {
	if !ref.Again {
		if id, err := s.sameSound(ctx, s.DB, owner, ref); err != nil {
			return "", err
		} else if id != "" {
			return s.reuse(ctx, owner, ref, key)
		}
	}
	j := newJob{id: s.jobs.NewID(), owner: owner, language: ref.Language, reference: &ref,
		fileName: cmp.Or(db.Clean(ref.FileName, maxFileName), ref.Source.String())}
	answer, err = idempotency.Prepare(ctx, s.DB, key, func() error { return s.priceReference(ctx, &j, key) })
	if err != nil && !ref.Again {
		// A request at the same time may have used the owner's last credits or room for this very sound.
		if id, lookErr := s.sameSound(ctx, s.DB, owner, ref); lookErr == nil && id != "" {
			return "", errChanged
		}
	}
	if err != nil || answer != "" {
		return answer, err
	}
	return s.enqueue(ctx, key, j)
}

// reusedMark ends the remembered answer to a request that got an earlier request's job.
const reusedMark = " reused"

// errChanged reports that the owner's job of the same sound was submitted, or has ended, since it was looked for.
var errChanged = errors.New("the owner's jobs of this sound have changed")

// reuse answers with the owner's job of the same sound, and remembers that answer.
func (s *Service) reuse(ctx context.Context, owner string, ref Reference, key idempotency.Key) (string, error) {
	if answer, err := idempotency.Find(ctx, s.DB, key); err != nil || answer != "" {
		return answer, err
	}
	answer, _, err := idempotency.Once(ctx, s.DB, key, func(tx *db.Tx) (string, error) {
		if err := user.Lock(ctx, tx, owner); err != nil {
			return "", err
		}
		id, err := s.sameSound(ctx, tx, owner, ref)
		if err == nil && id == "" {
			err = errChanged
		}
		return id + reusedMark, err
	})
	return answer, err
}

// sameSound returns the owner's newest job of the same sound whose stems are there or will be, or "".
func (s *Service) sameSound(ctx context.Context, q db.Querier, owner string, ref Reference) (jobID string, err error) {
	err = q.QueryRow(ctx, `SELECT j.id FROM `+rows+` WHERE j.user_id = $1 AND d.reference = $2 AND j.deleted_at IS NULL
		AND (j.state IN ('QUEUED', 'SUBMITTING', 'PROCESSING') OR j.state = 'READY'
			AND (j.finished_at >= now_ms() - $3 OR COALESCE(d.collected_at, 0) >= now_ms() - $3))
		ORDER BY j.created_at DESC, j.id DESC LIMIT 1`, owner, ref.sound(), s.AbandonAfter.Milliseconds()).Scan(&jobID)
	if err != nil && !db.IsNoRows(err) {
		return "", fmt.Errorf("look for a job of the same sound: %w", err)
	}
	return jobID, nil
}

// cut is a stretch of the sound of an asset, in the form in which the provider gets it. It is stored in the job's row
// as JSON.
type cut struct {
	AssetKey   asset.Key
	From, To   time.Duration
	SampleRate int
	Channels   int  // 1 or 2
	AAC        bool // instead of WAV
}

// priceReference completes the job with the length and the cut of the stretch, if the owner can pay for it.
func (s *Service) priceReference(ctx context.Context, j *newJob, key idempotency.Key) error {
	if err := s.Admit(ctx, j.owner, key); err != nil {
		return err
	}
	ref := *j.reference
	found, err := s.Assets.Find(ctx, ref.Source)
	if errors.Is(err, objectstore.ErrNotFound) {
		return errNoAsset
	}
	if err != nil {
		return err
	}
	j.used = []asset.Found{found}
	length := func(end time.Duration) time.Duration {
		if ref.To > 0 {
			end = min(end, ref.To)
		}
		return end - ref.From
	}
	sound, err := s.Sounds.Sound(ctx, j.owner, found, "sourceAssetKey", func(declared time.Duration) error {
		return s.affordable(ctx, j.owner, credit.Price(length(declared).Milliseconds()))
	})
	if err != nil {
		return err
	}
	c := cut{AssetKey: ref.Source, From: ref.From, To: ref.From + length(sound.To), SampleRate: sound.SampleRate,
		Channels: min(2, sound.Channels)}
	switch {
	case c.From >= sound.To:
		return errLateStart
	case c.To <= sound.From:
		return errEarlyEnd
	}
	if whole := length(sound.Claimed); media.CutOff(c.To-c.From, whole) {
		return fault.Invalidf("sourceAssetKey names a damaged file: only %.1f s of %.1f s of the sound are there",
			(c.To - c.From).Seconds(), whole.Seconds())
	}
	if !slices.Contains(cutRates, c.SampleRate) {
		c.SampleRate = 48000
	}
	if j.audio.DurationMs = (c.To - c.From).Milliseconds(); j.audio.DurationMs == 0 {
		return errNoLength
	}
	if err := s.affordable(ctx, j.owner, j.price()); err != nil {
		return err
	}
	c.AAC = c.bytes() > s.MaxAudioBytes
	if c.bytes() > s.MaxAudioBytes {
		return fault.Invalidf("trimEndMs must leave at most %d MB of sound to separate: choose a shorter stretch", s.MaxAudioBytes>>20)
	}
	j.audio.Ext = "wav"
	if c.AAC {
		j.audio.Ext = "m4a"
	}
	stored, err := json.Marshal(c)
	j.cut = string(stored)
	return err
}

// cutRates are the sample rates that WAV and AAC both have; others become 48 kHz.
var cutRates = []int{8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000}

// cutBitrate is the bit rate per channel of a cut that is too long for WAV.
const cutBitrate = 96_000

// errCut reports that ffmpeg could not cut an asset.
var errCut = errors.New("cut asset")

// wavHeader is at least the size of the header of a WAV file.
const wavHeader = 128

// bytes is at least the size of the cut's file. The average of the AAC encoder stays within 5 % of its bit rate,
// container included.
func (c cut) bytes() int64 {
	perSecond := 2 * int64(c.Channels) * int64(c.SampleRate)
	if c.AAC {
		perSecond = cutBitrate * int64(c.Channels) / 8 * 105 / 100
	}
	return wavHeader + media.MulDiv(int64(c.To-c.From), perSecond, int64(time.Second))
}

// cutTimeout bounds the decoding and encoding of a cut: AAC of the usual size limit takes a minute and a half.
const cutTimeout = 3 * time.Minute

// makeCut writes the stretch to a file in dir, as WAV, which is exact, or as AAC if the WAV file would be too large for
// the provider.
func (s *Service) makeCut(ctx context.Context, dir, stored, file string) error {
	var c cut
	if err := json.Unmarshal([]byte(stored), &c); err != nil {
		return fmt.Errorf("read cut: %w", err)
	}
	return derived.WithCopy(filepath.Join(dir, "cut-*"), func(source string) error {
		return job.Retry(ctx, func() error { return s.Assets.FetchTo(ctx, c.AssetKey, source) })
	}, func(source, dir string) error { return s.cutSound(ctx, c, source, dir, file) })
}

// cutSound writes the stretch to a file from a copy of the asset.
func (s *Service) cutSound(ctx context.Context, c cut, source, dir, file string) error {
	probe, err := s.Media.ProbeWithin(ctx, source, media.AnalysisLimits)
	if err != nil {
		return fmt.Errorf("%w: %w", errCut, err)
	}
	if probe.Audio == nil {
		return fmt.Errorf("%w: %w: no sound", errCut, media.ErrNotMedia)
	}
	sound := probe.Sound(source)
	sound.From, sound.To, sound.SampleRate = c.From, c.To, c.SampleRate
	if probe.Audio.Channels > 2 {
		sound.Layout = "stereo"
	}
	made := filepath.Join(dir, "sound")
	pass := media.Pass{Name: "cut sound", Dir: dir, Inputs: []string{source},
		Timeout: cutTimeout, MaxMemoryBytes: media.AnalysisLimits.MaxMemoryBytes}
	rebuilt := sound.Clockless
	if !rebuilt {
		var log bytes.Buffer
		timed := sound
		timed.Log = true
		clocked := pass
		clocked.Args = append(append(timed.Args(), c.output(made)...), "-map", "[log]", "-c:a", "pcm_s16le", "-f", "mkvtimestamp_v2", "pipe:1")
		clocked.Stdout = &log
		if _, err := s.Media.Encode(ctx, clocked); err != nil {
			return fmt.Errorf("%w: %w", errCut, err)
		}
		if rebuilt, err = s.longerThan(ctx, made, c); err != nil {
			return err
		}
		rebuilt = rebuilt || probe.MissesSound(sound, media.DecodedTimes(log.Bytes()))
	}
	if rebuilt {
		if err := s.countCut(ctx, c, sound, pass, made); err != nil {
			return fmt.Errorf("%w: %w", errCut, err)
		}
	}
	return os.Rename(made, file)
}

// output returns the arguments that encode the cut to a file.
func (c cut) output(file string) []string {
	args := []string{"-map_metadata", "-1", "-bitexact"}
	if c.AAC {
		args = append(args, "-c:a", "aac", "-b:a", strconv.Itoa(cutBitrate*c.Channels), "-movflags", "+faststart", "-f", "ipod")
	} else {
		args = append(args, "-c:a", "pcm_s16le", "-f", "wav")
	}
	return append(args, "file:"+file)
}

// cutSlack is more than an encoder adds to a cut.
const cutSlack = 100 * time.Millisecond

// longerThan reports whether the finished file is longer than the cut; see media.Sound.Rebuilt.
func (s *Service) longerThan(ctx context.Context, made string, c cut) (bool, error) {
	kind := container.WAV
	if c.AAC {
		kind = container.MP4
	}
	all, err := s.Media.Measure(ctx, made, kind, media.AnalysisLimits)
	if err != nil || len(all) != 1 {
		return false, fmt.Errorf("%w: %w", errCut, cmp.Or(err, errors.New("it has no sound")))
	}
	return max(all[0].Span, all[0].Samples) > c.To-c.From+cutSlack, nil
}

// countCut makes a cut of sound that changes midway. It fails if it cannot decode all of the sound.
func (s *Service) countCut(ctx context.Context, c cut, sound media.Sound, pass media.Pass, made string) error {
	// Another part of the sound may have more channels than the first.
	sound.Layout, c.Channels = "stereo", 2
	if c.bytes() > s.MaxAudioBytes {
		sound.Layout, c.Channels = "mono", 1
	}
	reader, writer := io.Pipe()
	encode := pass
	encode.Stdin, encode.Inputs = reader, nil
	encode.Args = append([]string{"-f", "f32le", "-ar", strconv.Itoa(c.SampleRate), "-ac", strconv.Itoa(c.Channels), "-i", "pipe:0"},
		c.output(made)...)
	pass.Dir = ""
	var end time.Duration
	group, ctx := errgroup.WithContext(ctx)
	group.Go(rescue.Func(func() (err error) {
		end, err = s.Media.Count(ctx, sound, pass, writer)
		return cmp.Or(writer.CloseWithError(err), err)
	}))
	group.Go(rescue.Func(func() error {
		_, err := s.Media.Encode(ctx, encode)
		reader.CloseWithError(err)
		return err
	}))
	if err := group.Wait(); err != nil {
		return err
	}
	if !sound.Whole(end) {
		return fmt.Errorf("%w: only %v of %v decode", media.ErrNotMedia, end, sound.End)
	}
	return nil
}
