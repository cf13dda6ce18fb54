// Which addresses the client calls: links, redirects, private addresses behind names, and the operator's own hosts.

package separator

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestResolveLink(t *testing.T) {
	c, err := New(Config{BaseURL: "https://api.example.com/v1", StorageBaseURL: "https://media.example.com", APIKey: "k", SpaceID: 1,
		AllowedHosts: []string{"cdn.example.com", "ports.example.com:8443", "127.0.0.1", "[::1]:9000", "10.0.0.5"}})
	if err != nil {
		t.Fatal(err)
	}
	const refused = "refused"
	for link, want := range map[string]string{
		"/perso-storage/a/b.wav?sig=1":       "https://media.example.com/perso-storage/a/b.wav?sig=1",
		"perso-storage/a.wav":                "https://media.example.com/perso-storage/a.wav",
		"/perso-storage/a%2Fb.wav":           "https://media.example.com/perso-storage/a%2Fb.wav",
		"/other/a.wav?x=y":                   "key https://api.example.com/v1/other/a.wav?x=y",
		"/perso-storage":                     "key https://api.example.com/v1/perso-storage",
		"/@evil.com/x":                       "key https://api.example.com/v1/@evil.com/x",
		"@evil.com/x":                        "key https://api.example.com/v1/@evil.com/x",
		`/\evil.com/x`:                       "key https://api.example.com/v1/%5Cevil.com/x",
		".evil.com/x":                        "key https://api.example.com/v1/.evil.com/x",
		"?a=b":                               "key https://api.example.com/v1/?a=b",
		"https://api.example.com/a.wav":      "https://api.example.com/a.wav",
		"https://MEDIA.example.com./a.wav":   "https://MEDIA.example.com./a.wav",
		"https://cdn.example.com:444/a?b=c":  "https://cdn.example.com:444/a?b=c",
		"https://ports.example.com:8443/a":   "https://ports.example.com:8443/a",
		"https://ports.example.com/a":        refused,
		"http://127.0.0.1:1234/a":            "http://127.0.0.1:1234/a",
		"http://[::1]:9000/a":                "http://[::1]:9000/a",
		"https://10.0.0.5/a":                 "https://10.0.0.5/a",
		"http://10.0.0.5/a":                  refused,
		"http://cdn.example.com/a":           refused,
		"http://localhost/a":                 refused,
		"http://127.0.0.2/a":                 refused,
		"https://evil.com/a":                 refused,
		"https://cdn.example.com.evil.com/a": refused,
		"https://xcdn.example.com/a":         refused,
		"https://u:p@cdn.example.com/a":      refused,
		"https://cdn.example.com@evil.com/a": refused,
		"https://u@cdn.example.com/a":        refused,
		"https://2130706433/a":               refused,
		"https://[::ffff:127.0.0.1]/a":       refused,
		"https://169.254.169.254/latest":     refused,
		"//cdn.example.com/a":                refused,
		"//evil.com/a":                       refused,
		"https:cdn.example.com/a":            refused,
		"https:///a":                         refused,
		"file:///etc/passwd":                 refused,
		"javascript:alert(1)":                refused,
		"HTTPS://CDN.Example.COM/a":          "https://CDN.Example.COM/a",
		"https://cdn.example.com?@evil.com":  "https://cdn.example.com?@evil.com",
		"/perso-storage/../../v1/a":          "https://media.example.com/perso-storage/../../v1/a",
		"https://cdn.example.com../a":        refused,
		"https://.cdn.example.com/a":         refused,
		"https://@cdn.example.com/a":         refused,
		`https://cdn.example.com\@evil.com/`: refused,
		"https://evil.com#@cdn.example.com":  refused,
		"https://cdn.example.com%2eevil.com": refused,
		"https://cdn.example.com%00.evil/a":  refused,
		"https://cdn。example.com/a":          refused,
		"https://ports.example.com:08443/a":  refused,
		"https://0177.0.0.1/a":               refused,
		"https://[::1%25lo]:9000/a":          refused,
		"https://[0:0:0:0:0:0:0:1]:9000/a":   refused,
		"https://cdn.example.com/%zz":        refused,
	} {
		u, withKey, err := c.resolveLink(link)
		got := refused
		if err == nil {
			got = u.String()
			if withKey {
				got = "key " + got
			}
		} else if !errors.Is(err, errForbidden) || strings.Contains(err.Error(), link) {
			t.Errorf("%q: err = %v", link, err)
		}
		if got != want {
			t.Errorf("%q: %s, want %s (%v)", link, got, want, err)
		}
	}
}

func FuzzResolveLink(f *testing.F) {
	c, err := New(Config{BaseURL: "https://api.example.com", StorageBaseURL: "https://media.example.com", APIKey: "k", SpaceID: 1})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"/perso-storage/x", "https://api.example.com/x", "//x", "@x", `\\x`, "https://u@media.example.com", ":80/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, link string) {
		u, withKey, err := c.resolveLink(link)
		if err != nil {
			return
		}
		host := hostName(u)
		if u.Scheme != "https" || u.User != nil || (host != "api.example.com" && host != "media.example.com") {
			t.Errorf("%q leads to %s", link, u)
		}
		if withKey && !sameOrigin(u, c.base) {
			t.Errorf("%q takes the key to %s", link, u)
		}
	})
}

func TestPublic(t *testing.T) {
	for _, s := range []string{"8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "::ffff:8.8.8.8", "2606:4700::1111"} {
		if !public(netip.MustParseAddr(s)) {
			t.Errorf("%s refused", s)
		}
	}
	for _, s := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1", "169.254.169.254",
		"172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1",
		"100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
	} {
		if public(netip.MustParseAddr(s)) {
			t.Errorf("%s allowed", s)
		}
	}
}

// The address is checked after name resolution: localhost passes as the name in an upload address, and is refused when
// dialled.
func TestPrivateAddressBehindAName(t *testing.T) {
	p := newProvider(t)
	p.blobURL = strings.Replace(p.storage.URL, "127.0.0.1", "localhost", 1) + "/blob/a"
	c := p.client()
	_, err := c.Upload(t.Context(), p.source(wav("x")), "a.wav", always)
	var e *Error
	if !errors.Is(err, errForbidden) || !errors.As(err, &e) || e.Transient || e.Op != "upload" || e.Public().Sentence != down {
		t.Errorf("err = %v", err)
	}
	if all, _ := p.recorded("upload"); all != 1 || p.hits["upload"] != 0 {
		t.Errorf("%d calls, %d requests arrived", all, p.hits["upload"])
	}
	p.noSecrets(err)

	c = p.client(func(cfg *Config) { cfg.AllowedHosts = []string{"localhost"} })
	if _, err := c.Upload(t.Context(), p.source(wav("x")), "a.wav", always); err != nil {
		t.Errorf("explicitly configured: %v", err)
	}
}

// The operator's own hosts may use http and private addresses; hosts that they name may not.
func TestConfiguredHosts(t *testing.T) {
	links := []string{"http://provider:9000/a", "http://provider/a", "http://media.internal/a", "http://10.0.0.7:9000/a", "http://10.0.0.8/a",
		"http://127.0.0.1:1/a", "https://localhost/a", "http://[::1]:9/a", "https://evil.example/a", "https://169.254.169.254/a"}
	for _, test := range []struct {
		base, storage string
		may           string
	}{
		{"http://provider:9000", "http://media.internal", "http://provider:9000/a http://provider/a http://media.internal/a"},
		{"https://provider:9000", "http://media.internal", "http://media.internal/a"},
		{"http://10.0.0.7:9000", "https://media.internal", "http://10.0.0.7:9000/a"},
		{"https://[fd00::7]", "https://media.internal", ""},
		{"http://localhost:4000", "https://media.internal", "https://localhost/a"},
		{"https://api.example.com", "http://127.0.0.1:4000", "http://127.0.0.1:1/a"},
		{"https://api.example.com", "https://media.example.com", ""},
	} {
		c, err := New(Config{APIKey: "k", SpaceID: 1, BaseURL: test.base, StorageBaseURL: test.storage})
		if err != nil {
			t.Errorf("%s: %v", test.base, err)
			continue
		}
		var may []string
		for _, link := range links {
			if _, _, err := c.resolveLink(link); err == nil {
				may = append(may, link)
			}
		}
		if got := strings.Join(may, " "); got != test.may {
			t.Errorf("%s and %s: links %s, want %s", test.base, test.storage, got, test.may)
		}
	}
}

// A forbidden address ends the call before anything is sent to it, and before the key is.
func TestForbiddenAddresses(t *testing.T) {
	for _, c := range []struct{ upload, link string }{
		{upload: "http://example.com/blob"}, {upload: "https://u:p@example.com/blob"}, {upload: "https:///blob"}, {upload: "file:///etc/passwd"},
		{upload: "https://10.0.0.1/blob"}, {upload: "https://[::ffff:127.0.0.1]/blob"}, {upload: "http://127.0.0.2:1/blob"}, {upload: "/blob/a"},
		{upload: "%zz"},
		{link: "https://evil.example/voice?sig=" + testSig}, {link: "https://u:" + testSig + "@127.0.0.1/voice"}, {link: "https://example.com/%zz?sig=" + testSig},
	} {
		p := newProvider(t)
		step := "upload"
		p.blobURL = c.upload
		if c.link != "" {
			step = "project"
			p.project = projectWith(`"originalVoicePath":"`+c.link+`"`, hasVoice)
		}
		err := p.run(t.Context(), p.client(), step)
		var e *Error
		if !errors.Is(err, errForbidden) || !errors.As(err, &e) || e.Transient || e.Public().Sentence != down || len(p.hits) != 1 {
			t.Errorf("%+v: err = %v, requests %v", c, err, p.hits)
		}
		p.noSecrets(err)
	}
}

func TestRedirects(t *testing.T) {
	for name, test := range map[string]struct {
		hops    string // each hop leads to the next one; "storage:" and "api:" stand for the servers
		refused bool
		keys    int // requests for files with the key
	}{
		"storage to storage":                {hops: "/perso-storage/1 /perso-storage/voice"},
		"API to API keeps the key":          {hops: "/1 /perso-storage/voice", keys: 2},
		"API to storage drops the key":      {hops: "/1 storage:/perso-storage/voice", keys: 1},
		"back to the API without the key":   {hops: "/1 storage:/2 api:/perso-storage/voice", keys: 1},
		"storage to API has no key":         {hops: "/perso-storage/1 api:/perso-storage/voice"},
		"five hops":                         {hops: "/perso-storage/1 /2 /3 /4 /5 /perso-storage/voice"},
		"six hops":                          {hops: "/perso-storage/1 /2 /3 /4 /5 /6 /perso-storage/voice", refused: true},
		"loop":                              {hops: "/perso-storage/1 /perso-storage/1", refused: true},
		"loop of two":                       {hops: "/1 storage:/2 api:/1", refused: true, keys: 1},
		"other host":                        {hops: "/perso-storage/1 elsewhere:/perso-storage/voice", refused: true},
		"private address":                   {hops: "/perso-storage/1 https://169.254.169.254/latest", refused: true},
		"credentials":                       {hops: "/perso-storage/1 http://u:p@127.0.0.1/perso-storage/voice", refused: true},
		"other scheme":                      {hops: "/perso-storage/1 file:///etc/passwd", refused: true},
		"another host without a scheme":     {hops: "/perso-storage/1 //evil.example/voice", refused: true},
		"loopback in another notation":      {hops: "/perso-storage/1 http://2130706433/perso-storage/voice", refused: true},
		"from the API to a host not listed": {hops: "/1 https://evil.example/?key", refused: true, keys: 1},
		"nowhere":                           {hops: "/perso-storage/1 nowhere", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			resolve := strings.NewReplacer("storage:/", p.storage.URL+"/", "api:/", p.api.URL+"/", "nowhere", "",
				"elsewhere:/", strings.Replace(p.storage.URL, "127.0.0.1", "localhost", 1)+"/").Replace
			hops, next := strings.Fields(test.hops), map[string]string{}
			for i, hop := range hops[1:] {
				_, path, found := strings.Cut(hops[i], ":")
				if !found {
					path = hops[i]
				}
				next[path] = resolve(hop)
			}
			p.project = projectWith(`"originalVoicePath":"`+hops[0]+`?sig=`+testSig+`"`, hasVoice)
			p.faults["file"] = func(w http.ResponseWriter, r *http.Request, n int) bool {
				if r.Header.Get("Referer") != "" {
					t.Error("a Referer tells the next host the signature")
				}
				to, ok := next[r.URL.Path]
				return ok && answers(http.StatusFound, "Location", to)(w, r, n)
			}
			_, err := p.client().Download(t.Context(), 99, t.TempDir())
			if test.refused != errors.Is(err, errForbidden) || test.refused != (err != nil) {
				t.Errorf("err = %v", err)
			}
			if p.withKey["file"] != test.keys {
				t.Errorf("%d requests carried the key, want %d", p.withKey["file"], test.keys)
			}
			if all, _ := p.recorded("download"); all != 1 {
				t.Errorf("recorded %d calls", all)
			}
			p.noSecrets(err)
		})
	}
}

// Only downloads follow redirects. A redirected submission may have been executed.
func TestNothingElseFollowsRedirects(t *testing.T) {
	for _, step := range []string{"upload", "audio-separation"} {
		p := newProvider(t)
		p.faults[step] = answers(http.StatusTemporaryRedirect, "Location", p.storage.URL+"/elsewhere")
		err := p.run(t.Context(), p.client(), step)
		if !isStatus(err, 307) || p.hits["file"] != 0 {
			t.Errorf("%s: err = %v, %d requests elsewhere", step, err, p.hits["file"])
		}
	}
}
