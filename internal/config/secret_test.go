package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecretNeverShows(t *testing.T) {
	const value = "correct horse battery staple"
	s := NewSecret(value)
	holder := struct {
		Public Secret
		Ptr    *Secret
		hidden struct{ inner Secret }
		List   []Secret
		Map    map[string]Secret
	}{s, &s, struct{ inner Secret }{s}, []Secret{s}, map[string]Secret{"k": s}}

	var shown bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%X", "%T", "%10s", "%p"} {
		for _, v := range []any{s, &s, holder, &holder} {
			fmt.Fprintf(&shown, verb+"\n", v)
		}
	}
	text, err := json.Marshal(holder)
	if err != nil || !strings.Contains(string(text), `"Public":"***"`) {
		t.Errorf("JSON: %s, %v", text, err)
	}
	fmt.Fprintln(&shown, string(text), s.String(), holder)
	for _, h := range []slog.Handler{slog.NewJSONHandler(&shown, nil), slog.NewTextHandler(&shown, nil)} {
		slog.New(h).Info("start", "secret", s, "pointer", &s, "holder", holder, "config", Config{Auth: Auth{JWTSecret: s}})
	}
	if all := shown.String(); strings.Contains(all, "horse") || strings.Contains(strings.ToLower(all), fmt.Sprintf("%x", value)) {
		t.Errorf("the secret shows: %s", all)
	}
	if s.Reveal() != value || s.IsBlank() {
		t.Error("Reveal does not give the value")
	}
	if zero := (Secret{}); zero.Reveal() != "" || !zero.IsBlank() || fmt.Sprint(zero) != "***" {
		t.Error("the zero Secret is not blank")
	}
}
