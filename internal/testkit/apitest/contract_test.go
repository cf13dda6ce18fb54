package apitest

import (
	"net/http"
	"strings"
	"testing"

	"cutroom/internal/sandbox/api"
)

// Without this test, a check that accepts every exchange would go unnoticed.
func TestContractCheckTells(t *testing.T) {
	json := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"1"}, "Www-Authenticate": {"Bearer"}}
	state := http.Header{"Content-Type": {"application/json"}, "Etag": {`W/"x"`}}
	const film = `"outputKind":"video","quality":"medium","durationMs":null,"sizeBytes":null,` +
		`"createdAt":1700000000000,"finishedAt":null,"expiresAt":null,"errorCode":null`
	tests := []struct {
		name    string
		request Request
		status  int
		header  http.Header
		body    string
		wrong   string // "" accepts the exchange
	}{
		{"good", Request{Path: "/healthz", Valid: true}, 200, json, `{"status":"ok"}`, ""},
		{"with a charset", Request{Path: "/healthz"}, 200, http.Header{"Content-Type": {"application/json; charset=utf-8"}}, `{"status":"ok"}`, ""},
		{"other value", Request{Path: "/healthz"}, 200, json, `{"status":"fine"}`, "answer breaks"},
		{"unknown field", Request{Path: "/healthz"}, 200, json, `{"status":"ok","x":1}`, "answer breaks"},
		{"unknown status", Request{Path: "/healthz"}, 201, json, `{"status":"ok"}`, "status is not supported"},
		{"plain text", Request{Path: "/healthz"}, 200, http.Header{"Content-Type": {"text/plain"}}, `ok`, "answer breaks"},

		{"no bearer", Request{Path: "/api/v2/credits", Valid: true}, 200, json, `{"balance":3}`, "request breaks"},
		{"null detail", Request{Path: "/api/v2/credits"}, 401, json, `{"error":"missing_token","detail":null}`, ""},

		{"bad query", Request{Path: "/api/v2/credits/cost?durationMs=x", Token: "x", Valid: true}, 400, json, `{"error":"missing_duration_ms"}`, "request breaks"},

		{"refusal without an id", Request{Path: "/api/v2/credits"}, 401, http.Header{"Content-Type": {"application/json"}, "Www-Authenticate": {"Bearer"}}, `{"error":"missing_token"}`, "X-Request-Id"},
		{"limit without Retry-After", Request{Method: "POST", Path: "/api/v2/separate", Token: "x"}, 429, json, `{"error":"rate_limited"}`, "Retry-After"},

		{"rendering", Request{Path: "/api/v2/render/rnd-1/status", Token: "x"}, 200, state, `{"jobId":"rnd-1","status":"PROCESSING","progress":99,` + film + `}`, ""},
		{"all but done", Request{Path: "/api/v2/render/rnd-1/status", Token: "x"}, 200, state, `{"jobId":"rnd-1","status":"PROCESSING","progress":100,` + film + `}`, "answer breaks"},

		{"unknown path", Request{Path: "/nope"}, 404, json, `{"error":"Not found"}`, ""},
		{"unknown path, text", Request{Path: "/nope"}, 404, http.Header{"Content-Type": {"text/plain"}}, `404`, "Content-Type"},
		{"unknown path, 200", Request{Path: "/nope"}, 200, json, `{}`, "want 404"},
		{"wrong method", Request{Method: "PUT", Path: "/healthz"}, 405, http.Header{"Content-Type": {"application/json"}, "Allow": {"GET"}}, `{"error":"Method not allowed"}`, ""},
		{"wrong method without Allow", Request{Method: "PUT", Path: "/healthz"}, 405, json, `{"error":"Method not allowed"}`, "Allow"},

		{"render form", Request{Method: "POST", Path: "/api/v2/render", Token: "x", Valid: true, Form: []Part{
			{Name: "config", Text: `{"videoDurationMs":5,"unknown":1}`}, {Name: "video", Bytes: []byte("x")}, {Name: "bgm_7.audio", Bytes: []byte("x")}}},
			200, http.Header{"Content-Type": {"application/json"}, "Location": {"/api/v2/render/rnd-1/status"}}, `{"jobId":"rnd-1"}`, ""},
		{"render form without config", Request{Method: "POST", Path: "/api/v2/render", Token: "x", Valid: true, Form: []Part{{Name: "video", Bytes: []byte("x")}}},
			200, json, `{"jobId":"rnd-1"}`, "request breaks"},
		{"v3 with a bad key", Request{Method: "POST", Path: "/api/v2/render/v3", Token: "x", Valid: true,
			JSON: M{"segments": []M{{"sourceAssetKey": "x", "order": 0, "durationMs": 5}}}}, 200, json, `{"jobId":"rnd-1"}`, "request breaks"},
		{"stem", Request{Path: "/api/v2/separate/sep-1/stem/voice_all?token=1.x", Valid: true}, 200,
			http.Header{"Content-Type": {"audio/flac"}, "Accept-Ranges": {"bytes"}, "Content-Disposition": {`attachment; filename="voice_all.flac"`}}, "fLaC", ""},
		{"stem as video", Request{Path: "/api/v2/separate/sep-1/stem/voice_all?token=1.x", Valid: true}, 200,
			http.Header{"Content-Type": {"video/mp4"}, "Accept-Ranges": {"bytes"}, "Content-Disposition": {`attachment; filename="voice_all.flac"`}}, "x", "answer breaks"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x, err := tt.request.exchange(t.Context(), "http://127.0.0.1:1", api.Response{Status: tt.status, Header: tt.header, Body: []byte(tt.body)})
			if err != nil {
				t.Fatal(err)
			}
			err = x.check()
			switch {
			case tt.wrong == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.wrong != "" && err == nil:
				t.Error("accepted")
			case tt.wrong != "" && !strings.Contains(err.Error(), tt.wrong):
				t.Errorf("refused for another reason: %v", err)
			}
		})
	}
}
