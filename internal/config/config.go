// Package config turns the environment into one validated, typed value. Only this package reads the environment: others
// receive plain fields and do not know the names of keys.
//
// keys.go declares each key once, with its default, its range and its field. rules.go has the rules that involve
// several keys. docs/configuration.md says what the keys mean; tests compare it with [Keys].
package config

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"
)

// Config is the whole configuration. A Config from Load satisfies every rule. Printing it shows no secret.
// docs/configuration.md says what each field means; comments here only add what the type does not show.
type Config struct {
	Roles       Roles
	HTTP        HTTP
	Log         Log
	Monitoring  Monitoring
	Database    Database
	Auth        Auth
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

	// Warnings are sentences about settings that are allowed but probably mistakes. Log them once at start. They
	// contain no values.
	Warnings []string
}

// Roles are the parts of the service that this process runs.
type Roles struct{ API, Render, Separation, Sweep bool }

// AllRoles makes one process run the whole service.
var AllRoles = Roles{API: true, Render: true, Separation: true, Sweep: true}

// Media reports whether the process runs ffmpeg.
func (r Roles) Media() bool { return r.API || r.Render || r.Separation }

// HTTP configures the listeners and the public routes.
type HTTP struct {
	OpsAddr        string // of the operators' listener; "" = off
	Port           int
	BindAddr       string         // an IP address; "" is every address
	PublicBaseURL  string         // absolute, without a trailing slash
	AllowedOrigins []string       // nil allows any
	TrustedProxies []netip.Prefix // may be empty
	ProxyHops      int
	AdminSlug      string // "" = no admin app
	AdminClientID  string // "" = no sign-in to the admin app with provider_a
	APIDocs        bool
	TestdataMock   bool
}

// Log configures the structured log.
type Log struct {
	Level slog.Level
	JSON  bool // false = text
}

// Monitoring configures error reports and traces. The OpenTelemetry SDK reads its other OTEL_* keys from the
// environment of the process.
type Monitoring struct {
	DSN              Secret // blank = no reports
	Environment      string
	Release          string  // "" = the program's own version
	TracesEndpoint   string  // "" = no traces
	TracesSampleRate float64 // 0..1
}

// Database selects the database to open and its user.
type Database struct {
	// URL is postgres://… with a safe sslmode and without user and password, or sqlite:///absolute/path,
	// sqlite://relative/path or sqlite::memory:.
	URL      string
	User     string
	Password Secret
	MaxPool  int
}

// Auth configures sign-in and access tokens.
type Auth struct {
	JWTSecret   Secret
	JWTPrevious Secret        // verifies but never signs; may be blank
	JWTLifetime time.Duration // whole seconds
	Session     time.Duration
	ProviderA   ProviderA
	ProviderB   ProviderB
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

// Storage configures the local folder and uploads to it.
type Storage struct {
	Path           string // as given: possibly relative to the working directory
	UploadsTTL     time.Duration
	MaxUploadBytes int64
}

// Asset configures uploaded assets and the local copies of objects.
type Asset struct{ CacheTTL time.Duration }

// Account configures the limits of one account. 0 = no limit.
type Account struct{ MaxWaitingJobs, MaxStoredBytes, MaxAssets int64 }

// ObjectStore configures the bucket. If Bucket is "", every other field but SignedURLTTL is blank.
type ObjectStore struct {
	Bucket          string
	Endpoint        string // absolute, without a trailing slash
	Region          string
	VirtualHost     bool // the bucket's name is part of the host name
	AccessKeyID     string
	SecretAccessKey Secret
	SignedURLTTL    time.Duration
}

// Enabled reports whether a bucket is configured.
func (o ObjectStore) Enabled() bool { return o.Bucket != "" }

// Separation configures the separation provider, its queue and stem links.
type Separation struct {
	APIKey          Secret
	SpaceID         int64
	BaseURL         string   // without a trailing slash
	StorageBaseURL  string   // without a trailing slash
	AllowedHosts    []string // host or host:port, lower case; includes the hosts of both addresses
	SigningSecret   Secret
	SigningPrevious Secret        // verifies but never signs; may be blank
	URLTTL          time.Duration // whole seconds, <= AbandonTTL
	AbandonTTL      time.Duration
	MaxInFlight     int
	StuckSubmitting time.Duration
	BusyWait        time.Duration // 0 = fail at once
	PollInterval    time.Duration
	MaxPoll         time.Duration
	MaxAudioBytes   int64
}

// Render configures render jobs and their limits.
type Render struct {
	InputCacheTTL  time.Duration
	OutputTTL      time.Duration
	MaxConcurrent  int
	ProcessTimeout time.Duration
	MaxPixelFrames int64
	MaxSound       time.Duration
	JobTimeout     time.Duration
}

// Media configures the ffmpeg programs and the limits of one process.
type Media struct {
	MaxMemoryBytes     int64
	RequireConfinement bool
}

// Credit configures the price of credits and how they are granted.
type Credit struct {
	SignupBonus        int64
	BonusPerIdentity   bool
	BonusKey           Secret // set if BonusPerIdentity is
	AdminGrantDailyCap int64
	Products           map[string]int64 // product id to credits (> 0), not empty; not to be changed
}

// IAP configures the two stores that verify receipts.
type IAP struct {
	PlatformA PlatformA
	PlatformB PlatformB
}

// PlatformA is the store of provider_a's vendor.
type PlatformA struct {
	Configured         bool // every key that the verifier needs is set
	PackageName        string
	ServiceAccountJSON Secret
	BaseURL            string
	AllowTest          bool
	Notifications      StorePush
}

// StorePush configures which refund notifications are genuine.
type StorePush struct {
	Audience string // "" = notifications are off
	Sender   string
	KeysURL  string
}

// PlatformB is the store of provider_b's vendor.
type PlatformB struct {
	Configured bool // every key that the verifier needs is set
	IssuerID   string
	KeyID      string
	PrivateKey Secret // PEM, line breaks restored
	BundleID   string
	Sandbox    bool
	BaseURL    string
	AllowTest  bool   // accept free purchases that only SandboxURL knows
	SandboxURL string // of the store's sandbox
	RootCAs    []byte // PEM certificates trusted besides the store's own; nil = none
}

// Webhook configures the operator's web hook.
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

// PushPlatformA is the push service of provider_a's vendor.
type PushPlatformA struct {
	ServiceAccountJSON Secret // blank = off
	BaseURL            string
}

// PushPlatformB is the push service of provider_b's vendor.
type PushPlatformB struct {
	Configured bool   // every key that a push needs is set
	Key        Secret // PEM, line breaks restored
	KeyID      string
	TeamID     string
	Topic      string
	BaseURL    string
}

// Outbound configures calls to other services.
type Outbound struct{ ConnectTimeout, RequestTimeout, SocketTimeout time.Duration }

// The configured time-outs suit media transfers. Calls for which a user waits have these caps.
const (
	maxUserWait      = 30 * time.Second
	maxBucketSilence = 10 * time.Second
)

// WithLimit returns the time-outs of calls to identity providers and app stores, for which a user waits.
func (o Outbound) WithLimit() Outbound {
	return Outbound{min(o.ConnectTimeout, maxUserWait), min(o.RequestTimeout, maxUserWait),
		min(o.SocketTimeout, maxUserWait)}
}

// BucketSilence returns how long the bucket may be silent before an attempt fails.
func (o Outbound) BucketSilence() time.Duration { return min(o.SocketTimeout, maxBucketSilence) }

// Load reads every key through lookup, which behaves like os.LookupEnv. A blank value counts as absent. The error joins
// one *Problem for each broken rule. On error the Config contains only the log format, so that the caller can report
// the problems.
func Load(lookup func(string) (string, bool)) (Config, error) {
	return loadFrom(reader{lookup: lookup})
}

func loadFrom(r reader) (Config, error) {
	var s settings
	r.readSecretFiles()
	for _, k := range s.keys() {
		if !r.hasProblem(k.Name) {
			r.read(k)
		}
	}
	s.check(&r)
	if err := errors.Join(r.problems...); err != nil {
		return Config{Log: s.Log}, err
	}
	s.Warnings = r.warnings
	return s.Config, nil
}
