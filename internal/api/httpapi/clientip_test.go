package httpapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"testing"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.0.0.0/8")}

// clientIP is what a server behind proxies on loopback takes for a client's address.
func clientIP(remote string, forwarded []string, hops int) string {
	s := &Server{o: Options{TrustedProxies: loopback, ProxyHops: hops, Log: slog.New(slog.DiscardHandler)}}
	return s.clientIP(&http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": forwarded}})
}

func TestClientIP(t *testing.T) {
	for _, tt := range []struct {
		name, remote string
		forwarded    []string
		hops         int
		want         string
	}{
		{"no header", "127.0.0.1:5", nil, 0, "127.0.0.1"},
		{"last entry", "127.0.0.1:5", []string{"1.1.1.1, 2.2.2.2, 3.3.3.3"}, 0, "3.3.3.3"},
		{"one hop", "127.0.0.1:5", []string{"1.1.1.1, 2.2.2.2, 3.3.3.3"}, 1, "2.2.2.2"},
		{"leftmost", "127.0.0.1:5", []string{"1.1.1.1, 2.2.2.2, 3.3.3.3"}, 2, "1.1.1.1"},
		{"too few", "127.0.0.1:5", []string{"1.1.1.1"}, 5, "1.1.1.1"},
		{"lines are one list", "127.0.0.1:5", []string{"1.1.1.1", "2.2.2.2,3.3.3.3"}, 2, "1.1.1.1"},
		{"stranger", "9.9.9.9:5", []string{"1.1.1.1"}, 0, "9.9.9.9"},
		{"trusted over IPv6", "[::1]:5", []string{"2001:db8::1"}, 0, "2001:db8::1"},
		{"mapped peer", "[::ffff:127.0.0.1]:5", []string{"1.1.1.1"}, 0, "1.1.1.1"},
		{"mapped client is one with its IPv4 self", "127.0.0.1:5", []string{"::ffff:1.1.1.1"}, 0, "1.1.1.1"},
		{"with a port", "127.0.0.1:5", []string{"1.1.1.1:8080"}, 0, "1.1.1.1"},
		{"in brackets", "127.0.0.1:5", []string{"[2001:db8::1]"}, 0, "2001:db8::1"},
		{"spelled out", "127.0.0.1:5", []string{"2001:0DB8:0:0::0001"}, 0, "2001:db8::1"},
		{"zone", "127.0.0.1:5", []string{"fe80::1%eth0"}, 0, "fe80::1"},
		{"no address", "127.0.0.1:5", []string{"a, b, c"}, 0, "c"},
		{"no address from a stranger", "9.9.9.9:5", []string{"a, b, c"}, 0, "9.9.9.9"},
		{"as long as may be", "127.0.0.1:5", []string{strings.Repeat("x", 64)}, 0, strings.Repeat("x", 64)},
		{"too long", "127.0.0.1:5", []string{strings.Repeat("x", 65)}, 0, "127.0.0.1"},
		{"not printable", "127.0.0.1:5", []string{"a\x01b"}, 0, "127.0.0.1"},
		{"empty entry", "127.0.0.1:5", []string{"1.1.1.1,"}, 0, "127.0.0.1"},
		{"octal", "127.0.0.1:5", []string{"01.1.1.1"}, 0, "01.1.1.1"},
	} {
		if got := clientIP(tt.remote, tt.forwarded, tt.hops); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzForwardedFor(f *testing.F) {
	for _, s := range []string{"", ",", "1.1.1.1", "1.1.1.1, [::1]:5", "::ffff:1.2.3.4", "fe80::1%\x00", "[", "unknown,,,", strings.Repeat("1.1.1.1,", 1000)} {
		f.Add(s, 0)
		f.Add(s, 2)
	}
	f.Fuzz(func(t *testing.T, header string, hops int) {
		hops = max(0, hops)
		if got := clientIP("203.0.113.9:5", []string{header}, hops); got != "203.0.113.9" {
			t.Fatalf("a stranger becomes %q", got)
		}
		got := clientIP("127.0.0.1:5", []string{header}, hops)
		addr, err := netip.ParseAddr(got)
		if err != nil {
			if got == "" || len(got) > 64 || strings.TrimSpace(got) != got || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q is no name of a client", got)
			}
			return
		}
		if addr.Zone() != "" || addr.Is4In6() || addr.String() != got {
			t.Fatalf("%q is no plain address", got)
		}
	})
}

// A proxy that is missing in the configuration is named once an hour, and floods of strangers cost no memory.
func TestProxiesOutsideTheConfigurationAreNamed(t *testing.T) {
	var log bytes.Buffer
	s := &Server{o: Options{TrustedProxies: loopback, Log: slog.New(slog.NewTextHandler(&log, nil))}}
	send := func(remote string, forwarded ...string) int {
		log.Reset()
		s.clientIP(&http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": forwarded}})
		return strings.Count(log.String(), "level=WARN")
	}
	if n := send("9.9.9.9:5", "1.1.1.1"); n != 1 || !strings.Contains(log.String(), "TRUSTED_PROXIES") || !strings.Contains(log.String(), "peer=9.9.9.9") {
		t.Errorf("%d warnings: %s", n, &log)
	}
	if n := send("9.9.9.9:6", "2.2.2.2") + send("9.9.9.8:5") + send("10.1.1.1:5", "1.1.1.1"); n != 0 {
		t.Errorf("%d warnings about a peer again, one without the header and one that is trusted", n)
	}
	for i := range 2 * maxStrangers {
		send(fmt.Sprintf("20.0.%d.%d:5", i>>8, i&0xff), "1.1.1.1")
	}
	if n := len(s.strangers.when); n > maxStrangers {
		t.Errorf("%d peers are remembered", n)
	}
	for peer := range s.strangers.when {
		s.strangers.when[peer] = s.strangers.when[peer].Add(-warnEvery)
	}
	if n := send("9.9.9.9:5", "1.1.1.1"); n != 1 {
		t.Errorf("%d warnings after an hour", n)
	}
}

func partWith(disposition string) *multipart.Part {
	return &multipart.Part{Header: textproto.MIMEHeader{"Content-Disposition": {disposition}}}
}

func TestPartNames(t *testing.T) {
	for disposition, want := range map[string][2]string{
		`form-data; name="video_0"; filename="a.mp4"`:          {"video_0", "a.mp4"},
		`form-data; name=bgm_0.audio; filename=song.m4a`:       {"bgm_0.audio", "song.m4a"},
		`form-data; name=bgm_0.audio`:                          {"bgm_0.audio", ""},
		`form-data; name=file; filename=my song.m4a`:           {"file", "my song.m4a"},
		`form-data; name=file; filename=песня.m4a`:             {"file", "песня.m4a"},
		`form-data; name=video; filename=a;b.mp4`:              {"video", "a"},
		`form-data; filename="a; name=\"evil\".mp4"; name=v é`: {"v é", `a; name="evil".mp4`},
		`FORM-DATA; Name=video; FileName=a b`:                  {"video", "a b"},
		`form-data; name="a\"b"`:                               {`a"b`, ""},
		`attachment; name=video é`:                             {"", ""},
		`form-data`:                                            {"", ""},
		``:                                                     {"", ""},
	} {
		name, file := partNames(partWith(disposition))
		if name != want[0] || file != want[1] {
			t.Errorf("%s: %q and %q, want %q", disposition, name, file, want)
		}
	}
}

func FuzzPartNames(f *testing.F) {
	for _, s := range []string{`form-data; name="video_0"`, `form-data; name=bgm_0.audio; filename=é`, `form-data; name="\`, `;;;="`, `form-data; name*=utf-8''%C3%A9`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, disposition string) {
		name, _ := partNames(partWith(disposition))
		if standard := partWith(disposition).FormName(); standard != "" && name != standard {
			t.Fatalf("%q, but the library reads %q", name, standard)
		}
		if name != "" && !strings.Contains(strings.ToLower(disposition), "form-data") {
			t.Fatalf("%q from %q", name, disposition)
		}
	})
}
