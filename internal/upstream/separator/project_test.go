// The protocol on a provider that works: a whole job, ids and envelopes, progress, and which submissions are repeated.

package separator

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/base/httpcall/calltest"
)

func TestWholeJob(t *testing.T) {
	p := newProvider(t)
	c := p.client()
	ctx := t.Context()
	source := bytes.Repeat(wav("source"), 100_000)

	medium, err := c.Upload(ctx, p.source(source), "my song & co.wav", always)
	if err != nil || medium != (Medium{Seq: 41, DurationMs: 1000}) {
		t.Fatalf("Upload = %+v, %v", medium, err)
	}
	if !bytes.Equal(p.uploaded, source) {
		t.Error("upload is not the source")
	}
	wantJSON(t, p.bodies["register"], map[string]any{
		"spaceSeq": 7.0, "fileUrl": p.storage.URL + "/blob/a", "fileName": "my song & co.wav"})

	id, err := c.Submit(ctx, medium.Seq, "sep-1")
	if err != nil || id != 99 {
		t.Fatalf("Submit = %d, %v", id, err)
	}
	wantJSON(t, p.bodies["audio-separation"], map[string]any{"mediaSeq": 41.0, "isVideoProject": false, "title": "sep-1"})

	progress, err := c.Progress(ctx, id)
	if err != nil || progress != (Progress{Percent: 42}) {
		t.Fatalf("Progress = %+v, %v", progress, err)
	}

	dir := t.TempDir()
	stems, err := c.Download(ctx, id, dir)
	if err != nil {
		t.Fatal(err)
	}
	wantStems(t, dir, stems, "voice", "background", "two", "ten")

	for step, n := range p.withKey {
		if n > 0 && (step == "upload" || step == "file") {
			t.Errorf("key sent to %s", step)
		}
	}
	for _, step := range []string{"upload-token", "register", "audio-separation", "progress", "project", "download"} {
		if p.withKey[step] != p.hits[step] {
			t.Errorf("%s: %d of %d requests carried the key", step, p.withKey[step], p.hits[step])
		}
	}
	for _, call := range p.calls {
		if !call.Success || call.Latency <= 0 {
			t.Errorf("recorded %+v", call)
		}
	}
	p.noSecrets(nil)
}

func wantJSON(t *testing.T, body string, want map[string]any) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal([]byte(body), &got); err != nil || !maps.Equal(got, want) {
		t.Errorf("body %s, want %v (%v)", body, want, err)
	}
}

// wantStems checks which stems exist, by the tags of their content, and that dir contains nothing else.
func wantStems(t *testing.T, dir string, got Stems, voice, background string, speakers ...string) {
	t.Helper()
	files := 0
	check := func(stem Stem, name, tag string) {
		t.Helper()
		path := stem.Path
		if tag == "" {
			if path != "" {
				t.Errorf("%s is there", name)
			}
			return
		}
		files++
		content, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(content, wav(tag)) || path != filepath.Join(dir, name+".wav") {
			t.Errorf("%s at %q holds %q, want tag %q (%v)", name, path, content, tag, err)
		}
	}
	check(got.Voice, "voice", voice)
	check(got.Background, "background", background)
	if len(got.Speakers) != len(speakers) {
		t.Fatalf("speakers %v, want %v", got.Speakers, speakers)
	}
	for i, tag := range speakers {
		check(got.Speakers[i], "speaker_"+string(rune('0'+i)), tag)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != files {
		t.Errorf("dir holds %v, want %d files (%v)", entries, files, err)
	}
}

func TestIDsAndEnvelopes(t *testing.T) {
	for body, want := range map[string]int64{
		`{"result":{"startGenerateProjectIdList":[12]}}`:         12,
		`{"result":{"startGenerateProjectIdList":["12",13]}}`:    12,
		`{"startGenerateProjectIdList":["12"]}`:                  12,
		`{"result":null,"startGenerateProjectIdList":[12]}`:      12,
		`{"result":{"startGenerateProjectIdList":[]}}`:           0,
		`{"result":{"startGenerateProjectIdList":[0]}}`:          0,
		`{"result":{"startGenerateProjectIdList":[-1]}}`:         0,
		`{"result":{"startGenerateProjectIdList":[1.5]}}`:        0,
		`{"result":{"startGenerateProjectIdList":["../x"]}}`:     0,
		`{"result":{"startGenerateProjectIdList":"12"}}`:         0,
		`{"result":{"startGenerateProjectIdList":[12]}} trailer`: 0,
		`null`: 0,
		`[]`:   0,
	} {
		p := newProvider(t)
		p.faults["audio-separation"] = says(body)
		got, err := p.client().Submit(t.Context(), 41, "sep-1")
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%s: %d, %v", body, got, err)
		}
	}
}

func TestProgress(t *testing.T) {
	for body, want := range map[string]*Progress{
		`{"result":{"progress":0,"progressReason":"Enqueued","hasFailed":false}}`:     {},
		`{"result":{"progress":99.9,"progressReason":"Mixing"}}`:                      {Percent: 99},
		`{"result":{"progress":-5,"progressReason":"Mixing"}}`:                        {},
		`{"result":{"progress":1e300,"progressReason":"Mixing"}}`:                     {Percent: 100},
		`{"result":{"progress":100,"progressReason":"Mixing"}}`:                       {Percent: 100},
		`{"result":{"progress":100,"progressReason":"Completed","hasFailed":false}}`:  {Percent: 100, Done: true},
		`{"progress":100,"progressReason":"Completed"}`:                               {Percent: 100, Done: true},
		`{"result":{"progress":null,"progressReason":"Completed"}}`:                   {Done: true},
		`{"result":{"progress":30,"progressReason":"Failed","hasFailed":false}}`:      {Percent: 30, Failed: true},
		`{"result":{"progress":30,"progressReason":"Mixing","hasFailed":true}}`:       {Percent: 30, Failed: true},
		`{"result":{"progress":100,"progressReason":"Completed","hasFailed":true}}`:   {Percent: 100, Failed: true},
		`{"result":{"progressReason":"Mixing"}}`:                                      {},
		`{"result":{"progress":"60","progressReason":"Mixing"}}`:                      {Percent: 60},
		`{"result":{"progress":null,"progressReason":null,"hasFailed":null}}`:         nil,
		`{"result":{"hasFailed":true}}`:                                               {Failed: true},
		`{"result":{}}`:                                                               nil,
		`{"result":{"progress":"half","progressReason":"Mixing","hasFailed":false}}`:  nil,
		`{"result":{"progress":10,"progressReason":"Mixing","hasFailed":"dunno"}}`:    nil,
		`{"result":{"progress":10,"progressReason":"Mixing","hasFailed":false}}}}}}}`: nil,
	} {
		p := newProvider(t)
		p.faults["progress"] = says(body)
		got, err := p.client().Progress(t.Context(), 99)
		if (err == nil) != (want != nil) || (want != nil && got != *want) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}

// A submission is repeated only if no connection was established. A peer that is silent during the TLS handshake ends
// at the connect time-out.
func TestSubmitRepeatsOnlyUnsentRequests(t *testing.T) {
	t.Parallel()
	plain, _ := calltest.Serve(t, func(http.ResponseWriter, *http.Request) {})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, base := range map[string]string{
		"refused": calltest.DeadAddress(t),
		"no TLS":  strings.Replace(plain, "http", "https", 1),
		"silent":  "https://" + silent.Addr().String(),
	} {
		p := newProvider(t)
		c := p.client(func(cfg *Config) {
			cfg.BaseURL = base
			if name == "silent" {
				cfg.ConnectTimeout = 100 * time.Millisecond
			}
		})
		_, err := c.Submit(t.Context(), 41, "sep-1")
		var e *Error
		if !errors.As(err, &e) || !e.Transient || e.Status != 0 || e.Public().Sentence != down {
			t.Errorf("%s: %v", name, err)
		}
		if all, good := p.recorded("audio-separation"); all != 3 || good != 0 {
			t.Errorf("%s: recorded %d calls", name, all)
		}
	}
}
