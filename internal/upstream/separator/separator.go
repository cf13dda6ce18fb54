// Package separator is the client of the separation provider: it uploads audio, submits it for separation, polls the
// project and downloads the stems.
//
// It owns the provider's wire format, its time-outs and retries, the rules about which addresses may be contacted, and
// the unpacking of the provider's archive, which it treats as hostile. It does not handle jobs, credits or users:
// callers pass file paths and titles, and get paths, numbers and [Error] values.
//
// The steps, in the order a job takes them:
//
//	Upload    upload-token → upload → register   safe to repeat
//	Submit    audio-separation                   paid for; never repeated blindly
//	Progress  progress                           safe to repeat
//	Download  project → download                 safe to repeat
//
// Errors and log lines of this package never contain the API key, a signed URL or its query.
package separator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"cutroom/internal/base/httpcall"
)

// Config says where the provider is, who we are, and which time-outs and limits apply. A zero value means the
// default given beside the field.
type Config struct {
	// The operator configured the base URLs explicitly, so they may be plain http and private. That applies only to
	// these hosts.
	BaseURL        string // API, without a trailing slash
	StorageBaseURL string // stem downloads, without a trailing slash; never receives the key
	APIKey         string
	SpaceID        int64

	// AllowedHosts are further hosts ("host" or "host:port", lower case) that absolute download links and redirects may
	// name. The hosts of the two base URLs are always allowed. Only a host named here or in a base URL may resolve to a
	// private address.
	AllowedHosts []string

	ConnectTimeout time.Duration // dialling, and again the TLS handshake; 2 minutes
	RequestTimeout time.Duration // one attempt as a whole, its body included; 10 minutes
	SocketTimeout  time.Duration // the longest silence within an attempt; 10 minutes

	MaxDownloadBytes int64 // one stem, downloaded or unpacked; 2 GiB

	// Record, if set, receives every HTTP call after it has ended, including retries. It runs in the goroutine of the
	// method that made the call, so it must be quick and safe for concurrent use.
	Record func(Call)
	// Observe, if set, wraps the transport of every request.
	Observe func(http.RoundTripper) http.RoundTripper
	Log     *slog.Logger // failed attempts and missing stems; discarded when nil

	// Sleep waits for d between two attempts or polls. If ctx ends first, it returns ctx's cause. nil uses a timer.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Call is one HTTP call to the provider, including its redirects.
type Call struct {
	Endpoint string        // upload-token, upload, register, audio-separation, progress, project or download
	Success  bool          // answered as the protocol promises, body included
	Latency  time.Duration // from dialling to the last byte read
}

// Client talks to the separation provider. It is safe for concurrent use and holds no connections between calls.
type Client struct {
	cfg       Config
	base      *url.URL
	storage   *url.URL
	hosts     hostSet // hosts that links may name
	plain     hostSet // hosts that may be contacted over http, besides loopback
	transport *http.Transport
	observed  http.RoundTripper // transport, wrapped by Config.Observe if set
}

// New returns a client. It makes no request.
func New(cfg Config) (*Client, error) {
	cfg = withDefaults(cfg)
	c := &Client{cfg: cfg, hosts: hostSet{}, plain: hostSet{}}
	var baseErr, storageErr error
	c.base, baseErr = url.Parse(cfg.BaseURL)
	c.storage, storageErr = url.Parse(cfg.StorageBaseURL)
	if err := errors.Join(baseErr, storageErr); err != nil {
		return nil, fmt.Errorf("separation provider: %w", err)
	}
	for _, host := range cfg.AllowedHosts {
		c.hosts[host] = true
	}
	for _, base := range []*url.URL{c.base, c.storage} {
		c.hosts[hostName(base)] = true
		if base.Scheme == "http" {
			c.plain[hostName(base)] = true
		}
	}
	c.transport = c.newTransport()
	c.observed = c.transport
	if cfg.Observe != nil {
		c.observed = cfg.Observe(c.transport)
	}
	return c, nil
}

func withDefaults(cfg Config) Config {
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, 2*time.Minute)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, 10*time.Minute)
	cfg.SocketTimeout = cmp.Or(cfg.SocketTimeout, 10*time.Minute)
	cfg.MaxDownloadBytes = cmp.Or(cfg.MaxDownloadBytes, 2<<30)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Record == nil {
		cfg.Record = func(Call) {}
	}
	if cfg.Sleep == nil {
		cfg.Sleep = httpcall.Sleep
	}
	return cfg
}
