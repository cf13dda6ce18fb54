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
	type hidden struct{ inner Secret }
	holder := struct {
		Public Secret
		Ptr    *Secret
		hidden hidden
		List   []Secret
		Map    map[string]Secret
	}{s, &s, hidden{s}, []Secret{s}, map[string]Secret{"k": s}}

	var shown []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%X", "%T", "%10s", "%p"} {
		for _, v := range []any{s, &s, holder, &holder, error(fmt.Errorf("wrapped: %v", s))} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
		if got := fmt.Sprintf(verb, s); got != "***" && verb != "%T" && verb != "%p" {
			t.Errorf("%s prints %q", verb, got)
		}
	}
	text, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := s.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	shown = append(shown, string(text), string(plain), s.String(), fmt.Sprint(s), fmt.Sprintln(holder))
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(h).Info("start", "secret", s, "pointer", &s, "holder", holder, "config", Config{Auth: Auth{JWTSecret: s}})
	}
	shown = append(shown, log.String())

	hex := fmt.Sprintf("%x", value)
	for _, text := range shown {
		if strings.Contains(text, "horse") || strings.Contains(strings.ToLower(text), hex) {
			t.Errorf("the secret shows: %s", text)
		}
	}
	if !strings.Contains(string(text), `"Public":"***"`) {
		t.Errorf("JSON: %s", text)
	}
	if s.Reveal() != value || s.IsBlank() {
		t.Error("Reveal does not give the value")
	}
	if zero := (Secret{}); zero.Reveal() != "" || !zero.IsBlank() || fmt.Sprint(zero) != "***" {
		t.Error("the zero Secret is not blank")
	}
}
