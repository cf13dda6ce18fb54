package separator_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/separator"
)

const (
	key   = "pk_live_test"
	space = 4711
)

func start(t *testing.T) *separator.Provider {
	t.Helper()
	p, err := separator.New(separator.Options{APIKey: key, Space: space, Dir: t.TempDir(), Fast: true, Processing: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// wav is a second of silence: stereo, 48 kHz.
func wav() []byte {
	const rate = 48000
	le := binary.LittleEndian
	out := le.AppendUint32([]byte("RIFF"), 36+4*rate)
	out = le.AppendUint32(append(out, "WAVEfmt "...), 16)
	out = le.AppendUint32(le.AppendUint16(le.AppendUint16(out, 1), 2), rate)
	out = le.AppendUint16(le.AppendUint16(le.AppendUint32(out, rate*4), 4), 16)
	out = le.AppendUint32(append(out, "data"...), 4*rate)
	return append(out, make([]byte, 4*rate)...)
}

type caller struct {
	t *testing.T
	p *separator.Provider
}

// call makes an API call and decodes a 2xx answer into out.
func (c caller) call(method, path string, body any, out any) int {
	c.t.Helper()
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			c.t.Fatal(err)
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.p.API.URL()+path, payload)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("XP-API-KEY", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode/100 == 2 && out != nil {
		if err := json.NewDecoder(res.Body).Decode(out); err != nil {
			c.t.Fatal(err)
		}
	}
	return res.StatusCode
}

// put uploads bytes to a SAS address.
func (c caller) put(address string, body []byte, header http.Header) int {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), "PUT", address, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// upload performs the steps from token to media sequence number.
func (c caller) upload(body []byte) (seq int64) {
	c.t.Helper()
	var token struct{ BlobSasURL, ExpirationDatetime string }
	if status := c.call("GET", "/file/api/upload/sas-token?fileName=my%20talk.wav", nil, &token); status != 200 {
		c.t.Fatalf("sas-token: %d", status)
	}
	if status := c.put(token.BlobSasURL, body, http.Header{"X-Ms-Blob-Type": {"BlockBlob"}}); status != 201 {
		c.t.Fatalf("upload: %d", status)
	}
	plain, _, _ := strings.Cut(token.BlobSasURL, "?")
	var media struct{ Seq, DurationMs int64 }
	if status := c.call("PUT", "/file/api/upload/audio", map[string]any{"spaceSeq": space, "fileUrl": plain, "fileName": "my talk.wav"}, &media); status != 200 {
		c.t.Fatalf("register: %d", status)
	}
	if media.DurationMs != 1000 {
		c.t.Errorf("durationMs %d", media.DurationMs)
	}
	return media.Seq
}

func (c caller) submit(seq int64, title string) int64 {
	c.t.Helper()
	var answer struct {
		Result struct{ StartGenerateProjectIDList []int64 }
	}
	status := c.call("POST", fmt.Sprintf("/video-translator/api/v1/projects/spaces/%d/audio-separation", space),
		map[string]any{"mediaSeq": seq, "isVideoProject": false, "title": title}, &answer)
	if status != 200 || len(answer.Result.StartGenerateProjectIDList) != 1 {
		c.t.Fatalf("submit: %d %+v", status, answer)
	}
	return answer.Result.StartGenerateProjectIDList[0]
}

type progress struct {
	ProjectSeq     int64
	Progress       int
	ProgressReason string
	HasFailed      bool
}

func (c caller) progress(id int64) progress {
	c.t.Helper()
	var answer struct{ Result progress }
	if status := c.call("GET", fmt.Sprintf("/video-translator/api/v1/projects/%d/space/%d/progress", id, space), nil, &answer); status != 200 {
		c.t.Fatalf("progress: %d", status)
	}
	return answer.Result
}

// finish polls until the project ends and returns what it saw.
func (c caller) finish(id int64) []progress {
	c.t.Helper()
	var seen []progress
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		now := c.progress(id)
		seen = append(seen, now)
		if now.ProgressReason == "Completed" || now.ProgressReason == "Failed" || now.HasFailed {
			return seen
		}
	}
	c.t.Fatal("project does not end")
	return nil
}

type info struct {
	DownloadInfo     map[string]bool
	DownloadPathInfo map[string]*string
}

func (c caller) info(id int64) info {
	c.t.Helper()
	var answer struct {
		Result *info
		info
	}
	if status := c.call("GET", fmt.Sprintf("/video-translator/api/v1/projects/%d/spaces/%d", id, space), nil, &answer); status != 200 {
		c.t.Fatalf("project: %d", status)
	}
	if answer.Result != nil {
		return *answer.Result
	}
	return answer.info
}

func (c caller) fetch(link string) (int, []byte) {
	c.t.Helper()
	if strings.HasPrefix(link, "/") {
		link = c.p.Storage.URL() + link
	}
	res, err := http.Get(link)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, body
}

func TestRefusals(t *testing.T) {
	p := start(t)
	c := caller{t, p}
	var token struct{ BlobSasURL string }
	c.call("GET", "/file/api/upload/sas-token?fileName=a.wav", nil, &token)
	plain, _, _ := strings.Cut(token.BlobSasURL, "?")
	block := http.Header{"X-Ms-Blob-Type": {"BlockBlob"}}
	for name, got := range map[string][2]int{
		"no signature":     {c.put(plain, []byte("x"), block), 403},
		"no blob type":     {c.put(token.BlobSasURL, []byte("x"), http.Header{}), 400},
		"API key to blob":  {c.put(token.BlobSasURL, []byte("x"), http.Header{"X-Ms-Blob-Type": {"BlockBlob"}, "Xp-Api-Key": {key}}), 403},
		"nothing uploaded": {c.call("PUT", "/file/api/upload/audio", map[string]any{"spaceSeq": space, "fileUrl": plain, "fileName": "a"}, nil), 400},
		"no audio in it": {func() int {
			c.put(token.BlobSasURL, []byte("plain text"), block)
			return c.call("PUT", "/file/api/upload/audio", map[string]any{"spaceSeq": space, "fileUrl": plain, "fileName": "a"}, nil)
		}(), 400},
		"other space":      {c.call("PUT", "/file/api/upload/audio", map[string]any{"spaceSeq": 1, "fileUrl": plain, "fileName": "a"}, nil), 403},
		"space in path":    {c.call("POST", "/video-translator/api/v1/projects/spaces/1/audio-separation", map[string]any{}, nil), 403},
		"unknown media":    {c.call("POST", fmt.Sprintf("/video-translator/api/v1/projects/spaces/%d/audio-separation", space), map[string]any{"mediaSeq": 1, "isVideoProject": false, "title": "x"}, nil), 400},
		"unknown project":  {c.call("GET", fmt.Sprintf("/video-translator/api/v1/projects/1/space/%d/progress", space), nil, nil), 404},
		"no file name":     {c.call("GET", "/file/api/upload/sas-token", nil, nil), 400},
		"a path not known": {c.call("GET", "/video-translator/api/v2/projects", nil, nil), 404},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", name, got[0], got[1])
		}
	}
	res, err := http.Get(p.API.URL() + "/file/api/upload/sas-token?fileName=a")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 401 || p.KeyLeaks() != 1 || len(p.Titles()) != 0 {
		t.Errorf("without key %d, leaks %d, titles %v", res.StatusCode, p.KeyLeaks(), p.Titles())
	}
}

func TestBehaviours(t *testing.T) {
	p := start(t)
	c := caller{t, p}
	seq := c.upload(wav())
	none := 0
	p.Configure(func(b *separator.Behaviour) { b.HoldAtPercent = 60 })
	id := c.submit(seq, "many")
	for deadline := time.Now().Add(time.Minute); c.progress(id).Progress < 60; {
		if time.Now().After(deadline) {
			t.Fatal("project does not reach 60 percent")
		}
	}
	time.Sleep(60 * time.Millisecond) // longer than the whole processing takes
	if now := c.progress(id); now.Progress != 60 {
		t.Errorf("held at 60, shows %d", now.Progress)
	}
	p.Configure(func(b *separator.Behaviour) {
		b.HoldAtPercent = 0
		b.FlagsLagCalls = 2
		b.BareProject = true
		b.StaleLinks = 1
	})
	c.finish(id)
	for call := range 3 {
		if has := c.info(id).DownloadInfo["hasOriginalVoiceOnly"]; has != (call == 2) {
			t.Errorf("call %d: flag %v", call+1, has)
		}
	}
	link := *c.info(id).DownloadPathInfo["originalVoicePath"]
	for range 2 {
		if status, _ := c.fetch(link); status != 404 {
			t.Errorf("stale link: %d", status)
		}
	}
	if status, _ := c.fetch(*c.info(id).DownloadPathInfo["originalVoicePath"]); status != 200 {
		t.Errorf("fresh link: %d", status)
	}
	p.Configure(func(b *separator.Behaviour) { b.StaleLinks = 0 })

	p.Configure(func(b *separator.Behaviour) {
		*b = separator.Behaviour{ProcessingMs: 10, Speakers: &none, NoVoice: true, NoBackground: true, StemFormat: "mp3",
			Links: map[string]string{separator.ResultSubBackground: "http://10.0.0.1/secret"}, AbsoluteLinks: true}
	})
	second := c.submit(seq, "bare")
	c.finish(second)
	got := c.info(second)
	if got.DownloadInfo["hasOriginalVoiceOnly"] || got.DownloadInfo["hasOriginalSpeakerAudioCollection"] ||
		got.DownloadPathInfo["originalVoicePath"] != nil || got.DownloadPathInfo["originalBackgroundPath"] != nil ||
		*got.DownloadPathInfo["originalSubBackgroundPath"] != "http://10.0.0.1/secret" {
		t.Errorf("bare project: %+v", got)
	}
	p.Configure(func(b *separator.Behaviour) { b.NoVoice = false })
	voice := *c.info(second).DownloadPathInfo["originalVoicePath"]
	if status, body := c.fetch(voice); !strings.HasPrefix(voice, p.Storage.URL()) || !strings.Contains(voice, ".mp3") || status != 200 || bytes.HasPrefix(body, []byte("RIFF")) {
		t.Errorf("mp3 voice at %s: %d", voice, status)
	}
	p.Configure(func(b *separator.Behaviour) { b.Bytes = map[string][]byte{separator.ResultVoice: []byte("custom")} })
	if _, body := c.fetch(*c.info(second).DownloadPathInfo["originalVoicePath"]); string(body) != "custom" {
		t.Errorf("custom bytes: %q", body)
	}

	p.Configure(func(b *separator.Behaviour) { *b = separator.Behaviour{ProcessingMs: 10, FailAtPercent: 40} })
	third := c.submit(seq, "fails")
	if seen := c.finish(third); !seen[len(seen)-1].HasFailed {
		t.Errorf("failed project ends with %+v", seen[len(seen)-1])
	}
	p.Configure(func(b *separator.Behaviour) { b.FailByReason = true })
	if now := c.progress(third); now.HasFailed || now.ProgressReason != "Failed" {
		t.Errorf("failure by reason: %+v", now)
	}
}

func TestBehaviourByControlCall(t *testing.T) {
	p := start(t)
	c := caller{t, p}
	if status := c.call("PUT", "/__control/behaviour", map[string]any{"speakers": 3, "bytes": map[string]string{"voice": "aGk="}}, nil); status != 200 {
		t.Fatalf("status %d", status)
	}
	b := p.Behaviour()
	if b.Speakers == nil || *b.Speakers != 3 || string(b.Bytes["voice"]) != "hi" || b.ProcessingMs != 50 {
		t.Errorf("behaviour %+v", b)
	}
}
