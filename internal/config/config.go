// Package config turns the environment into one checked, typed value. It is the
// only reader of the environment: packages receive plain fields and never learn
// the name of a key.
//
// [Keys] is the one table of all keys. Load takes defaults and ranges from it,
// and .env.example and docs/configuration.md are rendered from it.
package config

import (
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is the whole configuration. Load returns only values that keep every
// rule; it may be copied freely. Printing it shows no secret.
type Config struct {
	HTTP        HTTP
	Log         Log
	Ops         Ops
	Monitoring  Monitoring
	Database    Database
	Auth        Auth
	Retention   Retention
	Storage     Storage
	Asset       Asset
	ObjectStore ObjectStore
	Separation  Separation
	Render      Render
	Media       Media
	Credit      Credit
	IAP         IAP
	Outbound    Outbound

	// Warnings are sentences about settings that are allowed but probably not
	// meant. They are to be logged once at start, and hold no values.
	Warnings []string
}

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

// Asset configures the local copies of objects.
type Asset struct {
	CacheTTL      time.Duration // after the last use; render parts live as long
	CacheMaxBytes int64
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
	BonusPerIdentity   bool             // an identity that had the bonus has no other after its account's deletion
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

// Outbound configures calls to other services.
type Outbound struct {
	ConnectTimeout time.Duration
	RequestTimeout time.Duration
	SocketTimeout  time.Duration // longest silence on a connection
}

// Load reads every key through lookup, which behaves like os.LookupEnv. A
// blank value counts as an absent one. The error joins one *Problem for every
// broken rule, a line each; the Config is then the zero value.
func Load(lookup func(string) (string, bool)) (Config, error) {
	r := newReader(lookup)
	cfg := r.config()
	if err := r.err(); err != nil {
		return Config{Log: cfg.Log}, err
	}
	return cfg, nil
}

func (r *reader) config() Config {
	cfg := Config{
		HTTP: r.http(),
		Log:  Log{Level: r.logLevel("LOG_LEVEL"), JSON: r.oneOf("LOG_FORMAT", "json", "text") == "json"},
		Ops:  Ops{Addr: r.listenAddress("OPS_ADDR")},
		Monitoring: Monitoring{
			DSN:              r.dsn("MONITORING_DSN"),
			Environment:      r.text("MONITORING_ENV"),
			TracesSampleRate: r.fraction("MONITORING_TRACES_SAMPLE_RATE"),
			Release:          r.text("MONITORING_RELEASE"),
		},
		Database: r.database(),
		Auth:     r.auth(),
		Storage: Storage{
			Path:             r.text("STORAGE_PATH"),
			UploadsTTL:       r.duration("UPLOADS_TTL_HOURS", time.Hour),
			MaxUploadBytes:   r.megabytes("MAX_UPLOAD_FILE_SIZE_MB"),
			MinFreeDiskBytes: r.megabytes("MIN_FREE_DISK_MB"),
		},
		Retention: Retention{
			Jobs:          r.duration("JOBS_TTL_DAYS", 24*time.Hour),
			ProviderCalls: r.duration("PROVIDER_CALLS_TTL_DAYS", 24*time.Hour),
		},
		Asset: Asset{
			CacheTTL:      r.duration("ASSET_CACHE_TTL_HOURS", time.Hour),
			CacheMaxBytes: r.megabytes("ASSET_CACHE_MAX_MB"),
		},
		ObjectStore: r.objectStore(),
		Separation:  r.separation(),
		Render:      r.render(),
		Media: Media{
			FFmpeg:         r.text("FFMPEG_PATH"),
			FFprobe:        r.text("FFPROBE_PATH"),
			MaxMemoryBytes: r.megabytes("MEDIA_MAX_MEMORY_MB"),
			MaxFileBytes:   r.megabytes("MEDIA_MAX_FILE_MB"),

			RequireConfinement: r.oneOf("MEDIA_CAGE", "required", "best-effort") == "required",
		},
		Credit: Credit{
			SignupBonus:        r.number("SIGNUP_BONUS_CREDITS"),
			BonusPerIdentity:   r.oneOf("SIGNUP_BONUS_PER_IDENTITY", "always", "once") == "once",
			AdminGrantDailyCap: r.number("ADMIN_GRANT_DAILY_CAP"),
			Products:           r.products("CREDIT_PRODUCTS"),
		},
		IAP: IAP{PlatformA: r.platformA(), PlatformB: r.platformB()},
		Outbound: Outbound{
			ConnectTimeout: r.duration("HTTP_CONNECT_TIMEOUT_MS", time.Millisecond),
			RequestTimeout: r.duration("HTTP_REQUEST_TIMEOUT_MS", time.Millisecond),
			SocketTimeout:  r.duration("HTTP_SOCKET_TIMEOUT_MS", time.Millisecond),
		},
	}
	r.acrossRooms(cfg)
	cfg.Warnings = r.warnings
	return cfg
}

var adminSlug = regexp.MustCompile(`^[A-Za-z0-9_-]{6,64}$`)

func (r *reader) http() HTTP {
	h := HTTP{
		Port:           int(r.number("PORT")),
		BindAddr:       r.address("BIND_ADDR"),
		PublicBaseURL:  r.httpURL("PUBLIC_BASE_URL"),
		AllowedOrigins: r.origins("CORS_ALLOWED_ORIGINS"),
		TrustedProxies: r.networks("TRUSTED_PROXIES"),
		ProxyHops:      int(r.number("RATE_LIMIT_TRUSTED_PROXY_HOPS")),
		AdminSlug:      r.text("ADMIN_SLUG"),
		AdminClientID:  r.text("ADMIN_PROVIDER_A_CLIENT_ID"),
		APIDocs:        r.flag("ENABLE_API_DOCS"),
		TestdataMock:   r.flag("ENABLE_TESTDATA_MOCK"),
	}
	if h.PublicBaseURL == "" {
		h.PublicBaseURL = "http://localhost:" + strconv.Itoa(h.Port)
	}
	switch {
	case h.AdminSlug == "":
	case !adminSlug.MatchString(h.AdminSlug):
		r.problem("ADMIN_SLUG", "must be 6 to 64 letters, digits, dashes and underscores")
	case h.AdminSlug == "swagger" || h.AdminSlug == "healthz":
		r.problem("ADMIN_SLUG", "must not be the name of another path of the service")
	}
	return h
}

func (r *reader) auth() Auth {
	a := Auth{
		JWTSecret:   r.signingSecret("AUTH_JWT_SECRET"),
		JWTPrevious: r.signingSecret("AUTH_JWT_SECRET_PREVIOUS"),
		JWTLifetime: r.duration("AUTH_JWT_EXPIRY_SECONDS", time.Second),
		Session:     r.duration("AUTH_SESSION_MAX_DAYS", 24*time.Hour),
		ProviderA: ProviderA{
			ClientIDs:    r.list("AUTH_PROVIDER_A_CLIENT_IDS"),
			TokenInfoURL: r.httpURL("AUTH_PROVIDER_A_TOKENINFO_URL"),
		},
		ProviderB: ProviderB{
			ClientIDs: r.list("AUTH_PROVIDER_B_CLIENT_IDS"),
			KeysURL:   r.httpURL("AUTH_PROVIDER_B_KEYS_URL"),
			Issuer:    r.text("AUTH_PROVIDER_B_ISSUER"),
		},
	}
	if len(a.ProviderA.ClientIDs) == 0 && !r.failed("AUTH_PROVIDER_A_CLIENT_IDS") {
		r.problem("AUTH_PROVIDER_A_CLIENT_IDS", "must list at least one client id")
	}
	if len(a.ProviderB.ClientIDs) == 0 && r.text("AUTH_PROVIDER_B_CLIENT_IDS") != "" {
		r.warn("AUTH_PROVIDER_B_CLIENT_IDS lists no client id: provider_b sign-in is off")
	}
	return a
}

var (
	accountID  = regexp.MustCompile(`^[0-9a-fA-F]{32}$`)
	bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$`)
)

func (r *reader) objectStore() ObjectStore {
	o := ObjectStore{
		Bucket:       r.text("OBJECT_STORE_BUCKET"),
		SignedURLTTL: r.duration("SIGNED_URL_TTL_SEC", time.Second),
	}
	needed := []string{"OBJECT_STORE_ACCOUNT_ID", "OBJECT_STORE_ACCESS_KEY_ID", "OBJECT_STORE_SECRET_ACCESS_KEY"}
	endpoint := r.httpURL("OBJECT_STORE_ENDPOINT")
	missing := r.blank(needed...)
	if o.Bucket == "" {
		if len(missing) < len(needed) {
			r.warn("the object store is off: OBJECT_STORE_BUCKET is blank although other OBJECT_STORE keys are set")
		}
		return o
	}
	for _, key := range missing {
		r.problem(key, "is required when OBJECT_STORE_BUCKET is set")
	}
	if !bucketName.MatchString(o.Bucket) {
		r.problem("OBJECT_STORE_BUCKET", "must be a bucket name: 3 to 63 letters, digits, dots, dashes and underscores")
	}
	account := r.text("OBJECT_STORE_ACCOUNT_ID")
	if account != "" && !accountID.MatchString(account) {
		r.problem("OBJECT_STORE_ACCOUNT_ID", "must be 32 hexadecimal characters")
	}
	if endpoint == "" {
		endpoint = "https://" + strings.ToLower(account) + ".r2.cloudflarestorage.com"
	}
	o.Endpoint = endpoint
	o.AccessKeyID = r.text("OBJECT_STORE_ACCESS_KEY_ID")
	o.SecretAccessKey = r.secret("OBJECT_STORE_SECRET_ACCESS_KEY")
	return o
}

func (r *reader) separation() Separation {
	s := Separation{
		APIKey:          r.secret("SEPARATION_PROVIDER_API_KEY"),
		SpaceID:         r.number("SEPARATION_PROVIDER_SPACE_ID"),
		BaseURL:         r.httpURL("SEPARATION_PROVIDER_BASE_URL"),
		StorageBaseURL:  r.httpURL("SEPARATION_PROVIDER_STORAGE_BASE_URL"),
		AllowedHosts:    r.hosts("PROVIDER_DOWNLOAD_ALLOWED_HOSTS"),
		SigningSecret:   r.signingSecret("SEPARATION_SIGNING_SECRET"),
		SigningPrevious: r.signingSecret("SEPARATION_SIGNING_SECRET_PREVIOUS"),
		URLTTL:          r.duration("SEPARATION_URL_TTL_SEC", time.Second),
		AbandonTTL:      r.duration("SEPARATION_ABANDON_TTL_MS", time.Millisecond),
		MaxInFlight:     int(r.number("SEPARATION_MAX_PROVIDER_IN_FLIGHT")),
		StuckSubmitting: r.duration("SEPARATION_STUCK_SUBMITTING_SEC", time.Second),
		PollInterval:    r.duration("PROVIDER_POLL_INTERVAL_MS", time.Millisecond),
		MaxPoll:         r.duration("PROVIDER_MAX_POLL_MINUTES", time.Minute),
		MaxAudioBytes:   r.megabytes("MAX_SEPARATION_AUDIO_MB"),
	}
	if strings.ContainsFunc(s.APIKey.Reveal(), func(c rune) bool { return c < 0x21 || c > 0x7e }) {
		r.problem("SEPARATION_PROVIDER_API_KEY", "must be printable ASCII without white space")
	}
	for _, base := range [][2]string{{"SEPARATION_PROVIDER_BASE_URL", s.BaseURL}, {"SEPARATION_PROVIDER_STORAGE_BASE_URL", s.StorageBaseURL}} {
		u, err := url.Parse(base[1])
		if err != nil || u.Hostname() == "" {
			continue // already a problem of its key
		}
		if u.Scheme == "http" && !isLoopback(u.Hostname()) {
			r.warn("%s is plain http to another machine: whoever is in between can read what is sent", base[0])
		}
		if host := strings.ToLower(u.Hostname()); !slices.Contains(s.AllowedHosts, host) {
			s.AllowedHosts = append(s.AllowedHosts, host)
		}
	}
	if set, _ := r.lookup("SEPARATION_URL_TTL_SEC"); strings.TrimSpace(set) == "" {
		// A shorter life of the stems shortens the default, and only the default.
		s.URLTTL = min(s.URLTTL, s.AbandonTTL.Truncate(time.Second))
	}
	if !r.failed("SEPARATION_URL_TTL_SEC") && !r.failed("SEPARATION_ABANDON_TTL_MS") && s.URLTTL > s.AbandonTTL {
		r.problem("SEPARATION_URL_TTL_SEC", "must not be longer than SEPARATION_ABANDON_TTL_MS")
	}
	return s
}

func (r *reader) render() Render {
	v := Render{
		InputCacheTTL:     r.duration("RENDER_INPUT_CACHE_TTL_HOURS", time.Hour),
		OutputTTL:         r.duration("RENDER_OUTPUT_TTL_HOURS", time.Hour),
		MaxConcurrent:     int(r.number("RENDER_MAX_CONCURRENT")),
		ProcessTimeout:    r.duration("RENDER_PROCESS_TIMEOUT_MIN", time.Minute),
		MaxInputPixels:    r.number("RENDER_MAX_INPUT_PIXELS"),
		MaxSourceDuration: r.duration("RENDER_MAX_SOURCE_MINUTES", time.Minute),
		MaxOutputDuration: r.duration("RENDER_MAX_OUTPUT_MINUTES", time.Minute),
		MaxPixelFrames:    r.number("RENDER_MAX_GIGAPIXELS") * 1_000_000_000,
		JobTimeout:        r.duration("RENDER_JOB_TIMEOUT_MIN", time.Minute),
		PartCacheMaxBytes: r.megabytes("PART_CACHE_MAX_MB"),
	}
	if v.MaxConcurrent == 0 {
		// GOMAXPROCS and not NumCPU: in a container it is the CPU quota, while
		// NumCPU counts the cores of the whole machine.
		v.MaxConcurrent = max(1, runtime.GOMAXPROCS(0)/2)
	}
	return v
}

func (r *reader) platformA() PlatformA {
	p := PlatformA{
		PackageName:        r.text("IAP_PLATFORM_A_PACKAGE_NAME"),
		ServiceAccountJSON: r.secret("IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON"),
		BaseURL:            r.httpURL("IAP_PLATFORM_A_BASE_URL"),
		AllowTest:          r.flag("IAP_PLATFORM_A_ALLOW_TEST"),
		Notifications: StorePush{
			Audience: r.text("IAP_PLATFORM_A_NOTIFICATION_AUDIENCE"),
			Sender:   r.text("IAP_PLATFORM_A_NOTIFICATION_SENDER"),
			KeysURL:  r.httpURL("IAP_PLATFORM_A_NOTIFICATION_KEYS_URL"),
		},
	}
	if (p.Notifications.Audience == "") != (p.Notifications.Sender == "") {
		r.problem("IAP_PLATFORM_A_NOTIFICATION_AUDIENCE", "must be set together with IAP_PLATFORM_A_NOTIFICATION_SENDER")
	}
	r.warnPartial("platform_a", "IAP_PLATFORM_A_PACKAGE_NAME", "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON")
	if p.Configured() {
		if rule := serviceAccountRule(p.ServiceAccountJSON.Reveal()); rule != "" {
			r.problem("IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON", "%s", rule)
		}
	}
	return p
}

// The public addresses of platform_b's two stores.
const (
	platformBProductionURL = "https://api.storekit.apple.com"
	platformBSandboxURL    = "https://api.storekit-sandbox.apple.com"
)

func (r *reader) platformB() PlatformB {
	p := PlatformB{
		IssuerID:   r.text("IAP_PLATFORM_B_ISSUER_ID"),
		KeyID:      r.text("IAP_PLATFORM_B_KEY_ID"),
		PrivateKey: r.secret("IAP_PLATFORM_B_PRIVATE_KEY"),
		BundleID:   r.text("IAP_PLATFORM_B_BUNDLE_ID"),
		Sandbox:    r.oneOf("IAP_PLATFORM_B_ENV", "production", "sandbox") == "sandbox",
		BaseURL:    r.httpURL("IAP_PLATFORM_B_BASE_URL"),
	}
	if !p.PrivateKey.IsBlank() {
		p.PrivateKey = NewSecret(strings.ReplaceAll(p.PrivateKey.Reveal(), `\n`, "\n"))
	}
	if p.BaseURL == "" {
		p.BaseURL = platformBProductionURL
		if p.Sandbox {
			p.BaseURL = platformBSandboxURL
		}
	}
	r.warnPartial("platform_b", "IAP_PLATFORM_B_ISSUER_ID", "IAP_PLATFORM_B_KEY_ID",
		"IAP_PLATFORM_B_PRIVATE_KEY", "IAP_PLATFORM_B_BUNDLE_ID")
	rootFile := r.text("IAP_PLATFORM_B_ROOT_CA_FILE")
	if !p.Configured() {
		return p
	}
	if !isP256Key(p.PrivateKey.Reveal()) {
		r.problem("IAP_PLATFORM_B_PRIVATE_KEY", "must be a PEM private key on the curve P-256")
	}
	if rootFile != "" {
		p.RootCAs = r.certificates("IAP_PLATFORM_B_ROOT_CA_FILE", rootFile)
	}
	return p
}

// acrossRooms checks the rules that tie keys of different rooms together.
func (r *reader) acrossRooms(cfg Config) {
	if cfg.Ops.Addr != "" && !r.failed("PORT") {
		// The public listener takes its port on every interface.
		if _, port, err := net.SplitHostPort(cfg.Ops.Addr); err == nil {
			if n, err := strconv.Atoi(port); err == nil && n == cfg.HTTP.Port {
				r.problem("OPS_ADDR", "must not use the port of PORT")
			}
		}
	}
	if id := cfg.HTTP.AdminClientID; id != "" && !slices.Contains(cfg.Auth.ProviderA.ClientIDs, id) {
		r.problem("ADMIN_PROVIDER_A_CLIENT_ID", "must be one of AUTH_PROVIDER_A_CLIENT_IDS")
	}
	jwt, stem := cfg.Auth.JWTSecret, cfg.Separation.SigningSecret
	if !jwt.IsBlank() && jwt.Reveal() == stem.Reveal() {
		r.warn("AUTH_JWT_SECRET and SEPARATION_SIGNING_SECRET are the same: give each its own")
	}
}
