// Package config turns the environment into one checked, typed value. It is the
// only reader of the environment: packages receive plain fields and never learn
// the name of a key.
//
// A key is declared once, in keys.go, with its default, its range, its
// documentation and the field that it sets; what ties keys together is in
// rules.go. .env.example and docs/configuration.md are rendered from [Keys].
package config

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"
)

// Config is the whole configuration. Load returns only values that keep every
// rule; it may be copied freely. Printing it shows no secret.
type Config struct {
	Roles       Roles
	HTTP        HTTP
	Log         Log
	Ops         Ops
	Monitoring  Monitoring
	Tracing     Tracing
	Database    Database
	Auth        Auth
	Retention   Retention
	Storage     Storage
	Asset       Asset
	Account     Account
	ObjectStore ObjectStore
	Separation  Separation
	Render      Render
	Media       Media
	Credit      Credit
	IAP         IAP
	Webhook     Webhook
	Push        Push
	Outbound    Outbound

	// PauseSubmissions lists the kinds of jobs of which this process accepts none:
	// render, separation.
	PauseSubmissions []string

	// Warnings are sentences about settings that are allowed but probably not
	// meant. They are to be logged once at start, and hold no values.
	Warnings []string
}

// Roles says what this process does of all that the service does.
type Roles struct {
	API        bool // answers requests, and measures and pictures what they need at once
	Render     bool // makes films
	Separation bool // carries separations to the provider and back
	Sweep      bool // gives up what is stuck and removes what nobody needs, one replica at a time
}

// AllRoles is one process that is the whole service.
var AllRoles = Roles{API: true, Render: true, Separation: true, Sweep: true}

// Media reports whether the process runs ffmpeg.
func (r Roles) Media() bool { return r.API || r.Render || r.Separation }

// Retention is how long rows live that nothing else needs.
type Retention struct {
	Jobs          time.Duration // after their end
	ProviderCalls time.Duration
}

// HTTP configures the public listener and what it mounts.
type HTTP struct {
	Port           int            // 1..65535
	BindAddr       netip.Addr     // the zero value is every address
	PublicBaseURL  string         // absolute, without a trailing slash
	AllowedOrigins []string       // nil allows any
	TrustedProxies []netip.Prefix // peers whose X-Forwarded-For is believed; may be empty
	ProxyHops      int            // position of the client in X-Forwarded-For, from the right, >= 0
	AdminSlug      string         // "" switches the admin app off
	AdminClientID  string         // provider_a's client id of the admin app; "" = no sign-in with it
	APIDocs        bool           // mount /swagger
	TestdataMock   bool           // mount the dev mock routes
}

// Log configures the structured log.
type Log struct {
	Level slog.Level
	JSON  bool // false: text
}

// Ops configures the listener for operators.
type Ops struct {
	Addr string // "" = off
}

// Tracing configures the export of spans. The OpenTelemetry SDK reads its other
// OTEL_* keys from the environment of the process by itself.
type Tracing struct {
	Endpoint string // "" = off
	// FromFile holds the OTEL_* keys of the .env file, which the environment of
	// the process lacks.
	FromFile map[string]string
}

// Monitoring configures error reports and traces.
type Monitoring struct {
	DSN              Secret // blank = off
	Environment      string
	TracesSampleRate float64 // 0..1
	Release          string  // "" leaves it to the build
}

// Database says which database to open, and as whom.
type Database struct {
	// URL is postgres://… with a safe sslmode and without user and password, or
	// sqlite:///absolute/path, sqlite://relative/path or sqlite::memory:.
	URL      string
	User     string
	Password Secret
	MaxPool  int // >= 1
	// MigrateOnStart has the service bring the schema up to date by itself.
	MigrateOnStart bool
}

// Auth configures sign-in and access tokens.
type Auth struct {
	JWTSecret   Secret        // at least 32 characters
	JWTPrevious Secret        // verifies, and never signs; may be blank
	JWTLifetime time.Duration // whole seconds
	// Session is how long after a sign-in its token may be renewed.
	Session   time.Duration
	ProviderA ProviderA
	ProviderB ProviderB
}

// ProviderA is the general-purpose identity provider.
type ProviderA struct {
	ClientIDs    []string // not empty
	TokenInfoURL string
}

// ProviderB is the device platform's identity provider.
type ProviderB struct {
	ClientIDs []string // empty = sign-in is off
	KeysURL   string
	Issuer    string
}

// Storage configures the local folder and what may be uploaded to it.
type Storage struct {
	Path             string // as given: possibly relative to the working directory
	UploadsTTL       time.Duration
	MaxUploadBytes   int64 // multipart ceiling, and size limit of an asset
	MinFreeDiskBytes int64 // 0 = not checked
}

// Asset configures uploaded assets and the local copies of objects.
type Asset struct {
	TTL           time.Duration // after the last upload or use; 0 = no limit
	CacheTTL      time.Duration // after the last use; render parts live as long
	CacheMaxBytes int64
}

// Account configures the limits of one account. 0 is no limit.
type Account struct {
	MaxWaitingJobs int64
	MaxStoredBytes int64
}

// ObjectStore configures the bucket. Where Bucket is "" the object store is
// off and every other field but SignedURLTTL is blank.
type ObjectStore struct {
	Bucket          string
	Endpoint        string // absolute, without a trailing slash
	AccessKeyID     string
	SecretAccessKey Secret
	SignedURLTTL    time.Duration // lifetime of presigned downloads
}

// Enabled reports whether a bucket is configured.
func (o ObjectStore) Enabled() bool { return o.Bucket != "" }

// Separation configures the separation provider, its queue and stem links.
type Separation struct {
	APIKey          Secret
	SpaceID         int64         // > 0
	BaseURL         string        // without a trailing slash
	StorageBaseURL  string        // without a trailing slash
	AllowedHosts    []string      // host or host:port, lower case; those of the two addresses included
	SigningSecret   Secret        // at least 32 characters
	SigningPrevious Secret        // verifies, and never signs; may be blank
	URLTTL          time.Duration // whole seconds, <= AbandonTTL
	AbandonTTL      time.Duration
	MaxInFlight     int // over all replicas
	StuckSubmitting time.Duration
	BusyWait        time.Duration // 0 fails at once
	PollInterval    time.Duration
	MaxPoll         time.Duration
	MaxAudioBytes   int64
}

// Render configures render jobs and their limits.
type Render struct {
	InputCacheTTL     time.Duration // after the last use
	OutputTTL         time.Duration // after completion or the last download
	MaxConcurrent     int           // media-processing jobs in this process, >= 1
	ProcessTimeout    time.Duration // of the final pass
	MaxInputPixels    int64         // width x height of a source
	MaxSourceDuration time.Duration
	MaxOutputDuration time.Duration
	MaxPixelFrames    int64         // of canvas and sources together, over all frames
	MaxSound          time.Duration // that one render decodes and stretches
	JobTimeout        time.Duration // from the first attempt to the end
	PartCacheMaxBytes int64
}

// Media configures the ffmpeg programs and the limits of one process.
type Media struct {
	FFmpeg, FFprobe string // "" = looked up in PATH
	MaxMemoryBytes  int64
	MaxFileBytes    int64

	// RequireConfinement refuses to start where neither namespaces nor Landlock
	// confine ffmpeg.
	RequireConfinement bool
}

// Credit configures what credits cost and how they are granted.
type Credit struct {
	SignupBonus        int64            // >= 0
	BonusPerIdentity   bool             // an identity gets the bonus once, also after deleting its account
	BonusKey           Secret           // set if BonusPerIdentity is
	AdminGrantDailyCap int64            // >= 0
	Products           map[string]int64 // product id to credits (> 0), not empty; not to be changed
}

// IAP configures the two stores that verify receipts.
type IAP struct {
	PlatformA PlatformA
	PlatformB PlatformB
}

// PlatformA is the store of the vendor of provider_a.
type PlatformA struct {
	PackageName        string
	ServiceAccountJSON Secret
	BaseURL            string
	AllowTest          bool // purchases of licence testers count
	Notifications      StorePush
}

// StorePush says whose notifications of refunds are heeded.
type StorePush struct {
	Audience string // of the token that a push carries; "" = not heeded
	Sender   string // e-mail of the service account that signs it
	KeysURL  string // of the public keys of such tokens
}

// Configured reports whether every key the verifier needs is set.
func (p PlatformA) Configured() bool { return p.PackageName != "" && !p.ServiceAccountJSON.IsBlank() }

// PlatformB is the store of the vendor of provider_b.
type PlatformB struct {
	IssuerID   string
	KeyID      string
	PrivateKey Secret // PEM, line breaks restored
	BundleID   string
	Sandbox    bool // the store's sandbox, not production
	BaseURL    string
	RootCAs    []byte // PEM certificates of further roots to believe; nil = the store's own only
}

// Configured reports whether every key the verifier needs is set.
func (p PlatformB) Configured() bool {
	return p.IssuerID != "" && p.KeyID != "" && !p.PrivateKey.IsBlank() && p.BundleID != ""
}

// Webhook configures whom of the operator's we tell that a job has ended.
type Webhook struct {
	URL            string // "" = off
	Secret         Secret // whsec_ and base64
	PreviousSecret Secret // signs as well; may be blank
}

// Push configures the services that notify phones.
type Push struct {
	PlatformA PushPlatformA
	PlatformB PushPlatformB
}

// PushPlatformA is the push service of the vendor of provider_a.
type PushPlatformA struct {
	ServiceAccountJSON Secret // blank = off
	BaseURL            string
}

// PushPlatformB is the push service of the vendor of provider_b.
type PushPlatformB struct {
	Key     Secret // PEM, line breaks restored
	KeyID   string
	TeamID  string
	Topic   string
	BaseURL string
	RootCAs []byte // PEM certificates trusted beside the system's; nil = none
}

// Configured reports whether every key that a push needs is set.
func (p PushPlatformB) Configured() bool {
	return !p.Key.IsBlank() && p.KeyID != "" && p.TeamID != "" && p.Topic != ""
}

// Outbound configures calls to other services.
type Outbound struct {
	ConnectTimeout time.Duration
	RequestTimeout time.Duration
	SocketTimeout  time.Duration // longest silence on a connection
}

// The time-outs are made for media transfers. Where somebody waits for a small
// answer they are capped.
const (
	maxPromptTimeout = 30 * time.Second
	maxBucketSilence = 10 * time.Second
)

// Prompt returns the time-outs of calls to identity providers and app stores.
func (o Outbound) Prompt() Outbound {
	return Outbound{ConnectTimeout: min(o.ConnectTimeout, maxPromptTimeout), RequestTimeout: min(o.RequestTimeout, maxPromptTimeout),
		SocketTimeout: min(o.SocketTimeout, maxPromptTimeout)}
}

// BucketSilence is the longest silence of the bucket that one attempt survives.
func (o Outbound) BucketSilence() time.Duration { return min(o.SocketTimeout, maxBucketSilence) }

// Load reads every key through lookup, which behaves like os.LookupEnv. A
// blank value counts as an absent one. The error joins one *Problem for every
// broken rule, a line each; the Config is then the zero value, but for the
// format of the log that is to tell of it.
func Load(lookup func(string) (string, bool)) (Config, error) {
	return loadFrom(reader{lookup: lookup})
}

func loadFrom(r reader) (Config, error) {
	var s settings
	r.readSecretFiles()
	for _, k := range s.keys() {
		if !r.broken[k.Name] {
			k.set(&r, k)
		}
	}
	s.check(&r)
	if err := errors.Join(r.problems...); err != nil {
		return Config{Log: s.Log}, err
	}
	s.Warnings = r.warnings
	return s.Config, nil
}
