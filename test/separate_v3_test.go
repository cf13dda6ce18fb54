// POST /separate/v3: the range of an asset, its price and size, crashes, and one price for one sound.

package test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

const separateV3Path = "/api/v2/separate/v3"

// separateV3 submits a range of an asset and returns the job's id.
func separateV3(t testing.TB, u *apitest.User, body M) string {
	t.Helper()
	var answer struct{ JobID string }
	whenFree(t, func() *apitest.Response { return u.Post(t, separateV3Path, body) }).Expect(202).JSON(&answer)
	return answer.JobID
}

// The audio between the trims is separated, at the price of the cut.
func TestSeparateAnAsset(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true))
	u := s.SignIn(t, apitest.Credits(5))
	film := generate(t, "film.mp4", "-f", "lavfi", "-i", "color=gray:s=64x64:r=2:d=310", "-i", burst(t), "-af", "apad=whole_dur=310",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", "-t", "310")
	key := uploadAsset(t, u, film, "mp4", "video/mp4")
	before := u.Balance(t)

	// The burst is loud from 1 to 2 s, silent until 3 s, and 18 dB softer until 4 s.
	id := separateV3(t, u, M{"sourceAssetKey": key, "trimStartMs": 1500, "trimEndMs": 3500, "sourceLanguageCode": "en"})
	if spent := before - u.Balance(t); spent != 1 {
		t.Errorf("two seconds of a film of 310 s cost %d credits", spent)
	}
	job := u.WaitReady(t, id)
	if d := job.ActualDurationMs; d != 2000 {
		t.Errorf("the stems last %d ms", d)
	}
	voice := s.DownloadStem(t, job.Stem(t, "voice_all"))
	loud, silent, soft := mediatest.RMS(t, voice, mediatest.Between(0, 490)), mediatest.RMS(t, voice, mediatest.Between(520, 1480)),
		mediatest.RMS(t, voice, mediatest.Between(1520, 1990))
	if math.Abs(loud-soft-18) > 1 || silent > soft-20 {
		t.Errorf("levels %.1f, %.1f, %.1f dBFS: time 0 is not trimStartMs", loud, silent, soft)
	}
	var list struct {
		Jobs []struct{ JobID, FileName string }
	}
	u.Get(t, "/api/v2/separate").Expect(200).JSON(&list)
	if len(list.Jobs) != 1 || list.Jobs[0].FileName != key {
		t.Errorf("history: %+v", list)
	}

	// More than five minutes cost two credits. An idempotency key charges once.
	s.World.FailSeparator(t, fake.Rule{Step: separator.StepUploadToken, Kind: fake.KindStall})
	request := apitest.Request{Method: "POST", Path: separateV3Path, JSON: M{"sourceAssetKey": key, "trimStartMs": nil, "trimEndMs": int64(math.MaxInt64)},
		Header: map[string][]string{"Idempotency-Key": {"again"}}, Valid: true}
	before = u.Balance(t)
	var first, second struct{ JobID string }
	u.Send(t, request).Expect(202).JSON(&first)
	u.Send(t, request).Expect(202).JSON(&second)
	if spent := before - u.Balance(t); spent != 2 || first.JobID != second.JobID {
		t.Errorf("%d credits for %+v and %+v", spent, first, second)
	}
	request.JSON = M{"sourceAssetKey": key, "trimStartMs": 1}
	if got := u.Send(t, request).Expect(400).ErrorText(); !strings.Contains(got, "Idempotency-Key") {
		t.Error(got)
	}

	mute := uploadAsset(t, u, generate(t, "mute.mp4", "-i", film, "-an", "-c", "copy", "-t", "1"), "mp4", "video/mp4")
	late := uploadAsset(t, u, generate(t, "late.mp4", "-i", film, "-itsoffset", "2", "-i", film, "-map", "0:v", "-map", "1:a",
		"-c", "copy", "-t", "4"), "mp4", "video/mp4")
	for _, c := range []struct {
		body M
		want string
	}{
		{M{"sourceAssetKey": late, "trimEndMs": 1900}, "trimEndMs must be after the beginning of the asset's sound, or 0 for the end"},
		{M{"sourceAssetKey": mute}, "sourceAssetKey names a file without readable sound"},
		{M{"sourceAssetKey": key, "trimStartMs": 400000}, "trimStartMs must be before the end of the asset's sound"},
		{M{"sourceAssetKey": key, "trimStartMs": 2000, "trimEndMs": 2000}, "trimEndMs must be > trimStartMs, or 0 for the end"},
		{M{"sourceAssetKey": key, "trimStartMs": -1}, "trimStartMs must be >= 0"},
		{M{"sourceAssetKey": key, "sourceLanguageCode": "English"}, "sourceLanguageCode must be auto or an ISO language code"},
		{M{"sourceAssetKey": "assets/x"}, "invalid_asset_key"},
	} {
		u.Send(t, apitest.Request{Method: "POST", Path: separateV3Path, JSON: c.body}).Error(400, c.want)
	}
	u.Post(t, separateV3Path, M{"sourceAssetKey": "assets/" + strings.Repeat("01ab", 16) + ".mp4"}).Expect(404)
	poor := s.SignIn(t)
	spend(t, poor, 3)
	poor.Post(t, separateV3Path, M{"sourceAssetKey": key, "trimEndMs": 100}).Error(402, "insufficient_credits")
}

// The size of a cut is limited: it is WAV if that fits, otherwise AAC, otherwise 400.
func TestACutIsBounded(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true), apitest.Env("MAX_SEPARATION_AUDIO_MB", "1"), apitest.Env("ACCOUNT_MAX_STORED_MB", "3"))
	u := s.SignIn(t, apitest.Credits(5))
	noise := generate(t, "noise.mp3", "-f", "lavfi", "-i", "anoisesrc=d=90:r=44100", "-ac", "2")
	key := uploadAsset(t, u, noise, "mp3", "audio/mpeg")
	before := u.Balance(t)
	u.Post(t, separateV3Path, M{"sourceAssetKey": key}).Sentence(400, "trimEndMs must leave at most 1 MB of sound to separate: choose a shorter stretch")
	job := u.WaitReady(t, separateV3(t, u, M{"sourceAssetKey": key, "trimStartMs": 10_000, "trimEndMs": 40_000}))
	if d := job.ActualDurationMs; math.Abs(float64(d-30_000)) > 60 {
		t.Errorf("the stems last %d ms", d)
	}
	// The asset and the stems use the account's whole quota.
	u.Post(t, separateV3Path, M{"sourceAssetKey": key, "trimEndMs": 1000}).Error(403, "storage_full")
	if spent := before - u.Balance(t); spent != 1 {
		t.Errorf("%d credits", spent)
	}
}

// A crash before the charge costs nothing, and a crash after it loses no job. A repeat of the interrupted request
// returns the same job.
func TestKillInTheMiddleOfASeparationByReference(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	sound := generate(t, "sound.m4a", "-i", mixture(t), "-c:a", "aac")
	for name, c := range map[string]struct {
		request fake.Rule // the request at which the process is killed: to the store, or to the provider
		charged int
	}{
		"while the asset is fetched":  {fake.Rule{Step: bucket.StepGet, Path: "/assets/", Kind: fake.KindStall}, 0},
		"while its sound is measured": {fake.Rule{Step: bucket.StepPut, Path: "/analysis/", Kind: fake.KindStall}, 0},
		"after the job cut the sound": {fake.Rule{Step: separator.StepUploadToken, Kind: fake.KindStall}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := apitest.Start(t, apitest.StandInBucket())
			u := s.SignIn(t)
			body := M{"sourceAssetKey": uploadAsset(t, u, sound, "m4a", "audio/mp4")}
			hits := func() int { return s.World.Separator.Faults.Count(separator.StepUploadToken) }
			if c.charged > 0 {
				s.World.FailSeparator(t, c.request)
			} else {
				s.World.FailBucket(t, c.request)
				hits = func() int { return s.World.Bucket.Faults.Hits()[0] }
			}
			var cutOff sync.WaitGroup
			request := withKey(apitest.Request{Method: "POST", Path: separateV3Path, JSON: body, Token: u.Token, Valid: true}, "key")
			cutOff.Go(func() { _, _ = u.TryDo(t, request) }) // fails, because the service is killed
			apitest.Eventually(t, maxWait, func() bool { return hits() > 0 }, func() string { return "no request to stop at" })
			s.Kill9(t)
			cutOff.Wait()
			s.World.Heal()
			s.Restart(t)
			if b := u.Balance(t); b != 3-c.charged {
				t.Errorf("balance %d after the crash, want %d", b, 3-c.charged)
			}
			id := u.Send(t, request).Job(202)
			u.WaitReady(t, id)
			if jobs := history(t, u, "/api/v2/separate", "10"); len(jobs) != 1 || jobs[0].JobID != id {
				t.Errorf("jobs %v, want %s alone", ids(jobs), id)
			}
			if b := u.Balance(t); b != 2 {
				t.Errorf("balance %d, want 2: charged once", b)
			}
			if n := len(s.World.Separator.Titles()); n != 1 {
				t.Errorf("%d projects at the provider, want 1", n)
			}
			if key := "uploads/" + id; slices.ContainsFunc(s.ObjectKeys(t), func(k string) bool { return strings.HasPrefix(k, key) }) {
				t.Error("the job's source is left in the bucket")
			}
		})
	}
}

// The same sound costs an account once. TestOneSoundAtBothReplicasIsOneJob asks for it many times at once.
func TestOnePriceForOneSound(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true), apitest.Env("ACCOUNT_MAX_WAITING_JOBS", "2"))
	s.World.FailSeparator(t, fake.Rule{Step: separator.StepUploadToken, Kind: fake.KindStall}) // so that no job ends
	u, other := s.SignIn(t), s.SignIn(t)
	spend(t, u, 1)
	key := uploadAsset(t, u, generate(t, "sound.m4a", "-i", mixture(t), "-c:a", "aac"), "m4a", "audio/mp4")
	type answer struct {
		JobID  string
		Reused bool
	}
	ask := func(u *apitest.User, body M) (a answer) {
		t.Helper()
		u.Post(t, separateV3Path, body).Expect(202).JSON(&a)
		return a
	}
	first := M{"sourceAssetKey": key, "trimEndMs": 1500, "fileName": "  Inter\x00view "}
	fresh := ask(u, first)
	if again := ask(u, first); fresh.Reused || again != (answer{fresh.JobID, true}) || u.Balance(t) != 1 {
		t.Errorf("%+v and %+v, balance %d", fresh, again, u.Balance(t))
	}

	again := M{"sourceAssetKey": key, "trimStartMs": 0, "trimEndMs": 1500, "sourceLanguageCode": "AUTO", "fileName": "Another"}
	withKeyA := withKey(apitest.Request{Method: "POST", Path: separateV3Path, JSON: maps.Clone(again), Valid: true}, "a")
	var kept answer
	u.Send(t, withKeyA).Expect(202).JSON(&kept)
	if want := (answer{fresh.JobID, true}); kept != want {
		t.Errorf("%+v, want %+v", kept, want)
	}
	if o := ask(other, again); o.Reused || o.JobID == kept.JobID {
		t.Errorf("another account: %+v", o)
	}
	again["again"] = true
	second := ask(u, again)
	if second.Reused || second.JobID == kept.JobID || u.Balance(t) != 0 {
		t.Errorf("separated again: %+v, balance %d", second, u.Balance(t))
	}
	again["again"] = nil
	if newest := ask(u, again); newest != (answer{second.JobID, true}) { // without credits, and with all places taken
		t.Errorf("%+v, want the newest of several, %s", newest, second.JobID)
	}
	for field, value := range map[string]any{"trimStartMs": 1, "trimEndMs": 1400, "sourceLanguageCode": "en", "again": true} {
		body := maps.Clone(again)
		body[field] = value
		u.Post(t, separateV3Path, body).Error(402, "insufficient_credits")
	}
	names := map[string]string{}
	var list struct {
		Jobs []struct{ JobID, FileName string }
	}
	u.Get(t, "/api/v2/separate").Expect(200).JSON(&list)
	for _, j := range list.Jobs {
		names[j.JobID] = j.FileName
	}
	if names[kept.JobID] != "Interview" || names[second.JobID] != "Another" {
		t.Errorf("names %v", names)
	}
	again["fileName"] = strings.Repeat("ä", 201)
	u.Send(t, apitest.Request{Method: "POST", Path: separateV3Path, JSON: again}).Error(400, "fileName must have at most 200 characters")
	again["fileName"] = strings.Repeat("ä", 200)
	ask(u, again)

	// Deleted jobs do not count, but a key repeats its first answer.
	for _, id := range []string{kept.JobID, second.JobID} {
		u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/separate/" + id, Valid: true}).Expect(204)
	}
	if a := ask(u, again); a.Reused {
		t.Errorf("a deleted job is reused: %+v", a)
	}
	var repeated answer
	if u.Send(t, withKeyA).Expect(202).JSON(&repeated); repeated != kept {
		t.Errorf("the key answers %+v, first %+v", repeated, kept)
	}
}
