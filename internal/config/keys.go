package config

import (
	"log/slog"
	"math"
	"strconv"
	"time"
)

// Requirement is the condition under which a key must be set; "" is none. Only under Always is a blank key a
// problem of its own. A blank key of the bucket is a problem if a bucket is named; a store or push service with a
// blank key is not configured.
type Requirement string

// The requirements, in the words of docs/configuration.md.
const (
	Always       Requirement = "yes"
	WithBucket   Requirement = "with a bucket"
	ForPlatformA Requirement = "for platform_a"
	ForPlatformB Requirement = "for platform_b"
	WithWebhook  Requirement = "with WEBHOOK_URL"
	ForPushB     Requirement = "for push to platform_b"
)

// Key declares one environment variable: its default and range, and the field that it sets. docs/configuration.md
// says what it means.
type Key struct {
	Name     string
	Required Requirement
	Default  string // replaces a blank value
	// Min and Max bound a whole number, inclusive. Max 0 means that there is no range.
	Min, Max int64
	Secret   bool // the value is never shown

	set setter
}

// Range returns the allowed numbers in words, or "" for a key without bounds.
func (k Key) Range() string {
	switch {
	case k.Max == 0:
		return ""
	case k.Max == math.MaxInt64:
		return strconv.FormatInt(k.Min, 10) + " or more"
	default:
		return strconv.FormatInt(k.Min, 10) + " to " + strconv.FormatInt(k.Max, 10)
	}
}

// Keys lists every environment variable that the service reads, in the order of the documentation.
// It must not be changed.
var Keys = new(settings).keys()

// settings is a Config under construction, with values that only the rules need.
type settings struct {
	Config
	accountID  string // of the object store
	rootCAFile string // of platform_b
}

// Upper bounds shared by many keys. They catch typing errors and prevent overflow; all are far beyond sensible
// use.
const (
	maxMegabytes = 1 << 30       // 1 PiB
	maxHours     = 10 * 365 * 24 // ten years
	maxDays      = 100 * 365     // a hundred years
	maxDayMs     = 24 * 3600 * 1000
)

// MaxTokenLife is the longest lifetime that an access token can be configured to have.
const MaxTokenLife = 90 * day

// Units that the standard library does not name.
const (
	mebibyte = 1 << 20
	day      = 24 * time.Hour
)

// keys declares every key, once.
func (s *settings) keys() []Key {
	return []Key{
		// Server
		{Name: "ROLES", Default: "api,render,separation,sweep", set: into(&s.Roles, roles)},
		{Name: "PORT", Default: "8080", Min: 1, Max: 65535, set: number(&s.HTTP.Port, 1)},
		{Name: "BIND_ADDR", set: into(&s.HTTP.BindAddr, ipAddress)},
		{Name: "PUBLIC_BASE_URL", set: into(&s.HTTP.PublicBaseURL, httpURL)},
		{Name: "CORS_ALLOWED_ORIGINS", set: into(&s.HTTP.AllowedOrigins, origins)},
		{Name: "TRUSTED_PROXIES", Default: "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7",
			set: into(&s.HTTP.TrustedProxies, networks)},
		{Name: "RATE_LIMIT_TRUSTED_PROXY_HOPS", Default: "0", Min: 0, Max: 100, set: number(&s.HTTP.ProxyHops, 1)},
		{Name: "ADMIN_SLUG", set: into(&s.HTTP.AdminSlug, adminSlug)},
		{Name: "ADMIN_PROVIDER_A_CLIENT_ID", set: text(&s.HTTP.AdminClientID)},
		{Name: "ENABLE_API_DOCS", Default: "false", set: toggle(&s.HTTP.APIDocs)},
		{Name: "ENABLE_TESTDATA_MOCK", Default: "false", set: toggle(&s.HTTP.TestdataMock)},

		// Logs, operations and monitoring
		{Name: "LOG_LEVEL", Default: "info",
			set: into(&s.Log.Level, oneOf("debug, info, warn, error", slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError))},
		{Name: "LOG_FORMAT", Default: "json", set: into(&s.Log.JSON, oneOf("json, text", true, false))},
		{Name: "OPS_ADDR", set: into(&s.HTTP.OpsAddr, listenAddress)},
		{Name: "MONITORING_DSN", Secret: true, set: into(&s.Monitoring.DSN, dsn)},
		{Name: "MONITORING_ENV", Default: "dev", set: text(&s.Monitoring.Environment)},
		{Name: "MONITORING_TRACES_SAMPLE_RATE", Default: "0.1", set: into(&s.Monitoring.TracesSampleRate, fraction)},
		{Name: "MONITORING_RELEASE", set: text(&s.Monitoring.Release)},
		{Name: "OTEL_EXPORTER_OTLP_ENDPOINT", set: into(&s.Monitoring.TracesEndpoint, httpURL)},

		// Database
		{Name: "DATABASE_URL", Required: Always, set: into(&s.Database.URL, databaseURL)},
		{Name: "DB_USER", Required: Always, set: text(&s.Database.User)},
		{Name: "DB_PASSWORD", Required: Always, Secret: true, set: password(&s.Database.Password)},
		{Name: "DB_MAX_POOL", Default: "5", Min: 1, Max: 1000, set: number(&s.Database.MaxPool, 1)},

		// Sign-in
		{Name: "AUTH_JWT_SECRET", Required: Always, Secret: true, set: into(&s.Auth.JWTSecret, signingSecret)},
		{Name: "AUTH_JWT_SECRET_PREVIOUS", Secret: true, set: into(&s.Auth.JWTPrevious, signingSecret)},
		{Name: "AUTH_JWT_EXPIRY_SECONDS", Default: "604800", Min: 60, Max: int64(MaxTokenLife / time.Second),
			set: number(&s.Auth.JWTLifetime, time.Second)},
		{Name: "AUTH_SESSION_MAX_DAYS", Default: "90", Min: 1, Max: maxDays, set: number(&s.Auth.Session, day)},
		{Name: "AUTH_PROVIDER_A_CLIENT_IDS", Required: Always, set: into(&s.Auth.ProviderA.ClientIDs, clientIDs)},
		{Name: "AUTH_PROVIDER_A_TOKENINFO_URL", Default: "https://oauth2.googleapis.com/tokeninfo",
			set: into(&s.Auth.ProviderA.TokenInfoURL, httpURL)},
		{Name: "AUTH_PROVIDER_B_CLIENT_IDS", set: into(&s.Auth.ProviderB.ClientIDs, list)},
		{Name: "AUTH_PROVIDER_B_KEYS_URL", Default: "https://appleid.apple.com/auth/keys",
			set: into(&s.Auth.ProviderB.KeysURL, httpURL)},
		{Name: "AUTH_PROVIDER_B_ISSUER", Default: "https://appleid.apple.com", set: text(&s.Auth.ProviderB.Issuer)},

		// Local storage and uploads
		{Name: "STORAGE_PATH", Default: "./storage", set: text(&s.Storage.Path)},
		{Name: "MAX_UPLOAD_FILE_SIZE_MB", Default: "500", Min: 1, Max: maxMegabytes,
			set: number(&s.Storage.MaxUploadBytes, mebibyte)},
		{Name: "UPLOADS_TTL_HOURS", Default: "6", Min: 1, Max: maxHours, set: number(&s.Storage.UploadsTTL, time.Hour)},
		{Name: "ASSET_CACHE_TTL_HOURS", Default: "24", Min: 1, Max: maxHours, set: number(&s.Asset.CacheTTL, time.Hour)},
		{Name: "ACCOUNT_MAX_WAITING_JOBS", Default: "50", Min: 0, Max: 1_000_000, set: number(&s.Account.MaxWaitingJobs, 1)},
		{Name: "ACCOUNT_MAX_STORED_MB", Default: "20480", Min: 0, Max: maxMegabytes,
			set: number(&s.Account.MaxStoredBytes, mebibyte)},
		{Name: "ACCOUNT_MAX_ASSETS", Default: "5000", Min: 0, Max: 1_000_000, set: number(&s.Account.MaxAssets, 1)},

		// Object store
		{Name: "OBJECT_STORE_BUCKET", set: text(&s.ObjectStore.Bucket)},
		{Name: "OBJECT_STORE_ACCOUNT_ID", Required: WithBucket, set: text(&s.accountID)},
		{Name: "OBJECT_STORE_ACCESS_KEY_ID", Required: WithBucket, set: text(&s.ObjectStore.AccessKeyID)},
		{Name: "OBJECT_STORE_SECRET_ACCESS_KEY", Required: WithBucket, Secret: true,
			set: into(&s.ObjectStore.SecretAccessKey, secret)},
		{Name: "OBJECT_STORE_ENDPOINT", set: into(&s.ObjectStore.Endpoint, httpURL)},
		{Name: "SIGNED_URL_TTL_SEC", Default: "900", Min: 60, Max: 86400, set: number(&s.ObjectStore.SignedURLTTL, time.Second)},

		// Separation
		{Name: "SEPARATION_PROVIDER_API_KEY", Required: Always, Secret: true, set: into(&s.Separation.APIKey, apiKey)},
		{Name: "SEPARATION_PROVIDER_SPACE_ID", Required: Always, Min: 1, Max: math.MaxInt64,
			set: number(&s.Separation.SpaceID, 1)},
		{Name: "SEPARATION_PROVIDER_BASE_URL", Default: "https://api.perso.ai", set: into(&s.Separation.BaseURL, httpURL)},
		{Name: "SEPARATION_PROVIDER_STORAGE_BASE_URL", Default: "https://portal-media.perso.ai",
			set: into(&s.Separation.StorageBaseURL, httpURL)},
		{Name: "PROVIDER_DOWNLOAD_ALLOWED_HOSTS", set: into(&s.Separation.AllowedHosts, hosts)},
		{Name: "SEPARATION_SIGNING_SECRET", Required: Always, Secret: true,
			set: into(&s.Separation.SigningSecret, signingSecret)},
		{Name: "SEPARATION_SIGNING_SECRET_PREVIOUS", Secret: true, set: into(&s.Separation.SigningPrevious, signingSecret)},
		{Name: "SEPARATION_URL_TTL_SEC", Default: "604800", Min: 60, Max: 604800, set: number(&s.Separation.URLTTL, time.Second)},
		{Name: "SEPARATION_ABANDON_TTL_MS", Default: "604800000", Min: 60000, Max: maxHours * 3600 * 1000,
			set: number(&s.Separation.AbandonTTL, time.Millisecond)},
		{Name: "SEPARATION_MAX_PROVIDER_IN_FLIGHT", Default: "2", Min: 1, Max: 5, set: number(&s.Separation.MaxInFlight, 1)},
		{Name: "SEPARATION_BUSY_WAIT_MIN", Default: "30", Min: 0, Max: 1440, set: number(&s.Separation.BusyWait, time.Minute)},
		{Name: "SEPARATION_STUCK_SUBMITTING_SEC", Default: "600", Min: 60, Max: 1800,
			set: number(&s.Separation.StuckSubmitting, time.Second)},
		{Name: "PROVIDER_POLL_INTERVAL_MS", Default: "15000", Min: 1000, Max: 3600 * 1000,
			set: number(&s.Separation.PollInterval, time.Millisecond)},
		{Name: "PROVIDER_MAX_POLL_MINUTES", Default: "30", Min: 1, Max: 120, set: number(&s.Separation.MaxPoll, time.Minute)},
		{Name: "MAX_SEPARATION_AUDIO_MB", Default: "100", Min: 1, Max: maxMegabytes,
			set: number(&s.Separation.MaxAudioBytes, mebibyte)},

		// Rendering
		{Name: "RENDER_INPUT_CACHE_TTL_HOURS", Default: "24", Min: 1, Max: maxHours,
			set: number(&s.Render.InputCacheTTL, time.Hour)},
		{Name: "RENDER_OUTPUT_TTL_HOURS", Default: "24", Min: 1, Max: maxHours, set: number(&s.Render.OutputTTL, time.Hour)},
		{Name: "RENDER_MAX_CONCURRENT", Min: 1, Max: 1024, set: number(&s.Render.MaxConcurrent, 1)},
		{Name: "RENDER_PROCESS_TIMEOUT_MIN", Default: "30", Min: 1, Max: 1440,
			set: number(&s.Render.ProcessTimeout, time.Minute)},
		{Name: "RENDER_MAX_GIGAPIXELS", Default: "1344", Min: 1, Max: 1_000_000,
			set: number(&s.Render.MaxPixelFrames, 1_000_000_000)},
		{Name: "RENDER_MAX_SOUND_HOURS", Default: "24", Min: 1, Max: maxHours, set: number(&s.Render.MaxSound, time.Hour)},
		{Name: "RENDER_JOB_TIMEOUT_MIN", Default: "240", Min: 1, Max: 10080, set: number(&s.Render.JobTimeout, time.Minute)},
		{Name: "MEDIA_MAX_MEMORY_MB", Default: "4096", Min: 256, Max: maxMegabytes,
			set: number(&s.Media.MaxMemoryBytes, mebibyte)},
		{Name: "MEDIA_CAGE", Default: "required",
			set: into(&s.Media.RequireConfinement, oneOf("required, best-effort", true, false))},

		// Credits
		{Name: "SIGNUP_BONUS_CREDITS", Default: "3", Min: 0, Max: 1000000, set: number(&s.Credit.SignupBonus, 1)},
		{Name: "SIGNUP_BONUS_PER_IDENTITY", Default: "always",
			set: into(&s.Credit.BonusPerIdentity, oneOf("always, once", false, true))},
		{Name: "SIGNUP_BONUS_KEY", Secret: true, set: into(&s.Credit.BonusKey, signingSecret)},
		{Name: "ADMIN_GRANT_DAILY_CAP", Default: "1000", Min: 0, Max: 1000000000, set: number(&s.Credit.AdminGrantDailyCap, 1)},
		{Name: "CREDIT_PRODUCTS", Default: "credits.10=10,credits.50=50,credits.150=150",
			set: into(&s.Credit.Products, products)},

		// In-app purchases
		{Name: "IAP_PLATFORM_A_PACKAGE_NAME", Required: ForPlatformA, set: text(&s.IAP.PlatformA.PackageName)},
		{Name: "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON", Required: ForPlatformA, Secret: true,
			set: into(&s.IAP.PlatformA.ServiceAccountJSON, secret)},
		{Name: "IAP_PLATFORM_A_BASE_URL", Default: platformAURL, set: into(&s.IAP.PlatformA.BaseURL, httpURL)},
		{Name: "IAP_PLATFORM_A_ALLOW_TEST", Default: "false", set: toggle(&s.IAP.PlatformA.AllowTest)},
		{Name: "IAP_PLATFORM_A_NOTIFICATION_AUDIENCE", set: text(&s.IAP.PlatformA.Notifications.Audience)},
		{Name: "IAP_PLATFORM_A_NOTIFICATION_SENDER", set: text(&s.IAP.PlatformA.Notifications.Sender)},
		{Name: "IAP_PLATFORM_B_ISSUER_ID", Required: ForPlatformB, set: text(&s.IAP.PlatformB.IssuerID)},
		{Name: "IAP_PLATFORM_B_KEY_ID", Required: ForPlatformB, set: text(&s.IAP.PlatformB.KeyID)},
		{Name: "IAP_PLATFORM_B_PRIVATE_KEY", Required: ForPlatformB, Secret: true,
			set: into(&s.IAP.PlatformB.PrivateKey, pemText)},
		{Name: "IAP_PLATFORM_B_BUNDLE_ID", Required: ForPlatformB, set: text(&s.IAP.PlatformB.BundleID)},
		{Name: "IAP_PLATFORM_B_ENV", Default: "production",
			set: into(&s.IAP.PlatformB.Sandbox, oneOf("production, sandbox", false, true))},
		{Name: "IAP_PLATFORM_B_BASE_URL", set: into(&s.IAP.PlatformB.BaseURL, httpURL)},
		{Name: "IAP_PLATFORM_B_ROOT_CA_FILE", set: text(&s.rootCAFile)},

		// Web hook and push
		{Name: "WEBHOOK_URL", set: into(&s.Webhook.URL, webhookURL)},
		{Name: "WEBHOOK_SECRET", Required: WithWebhook, Secret: true, set: into(&s.Webhook.Secret, webhookSecret)},
		{Name: "WEBHOOK_SECRET_PREVIOUS", Secret: true, set: into(&s.Webhook.PreviousSecret, webhookSecret)},
		{Name: "PUSH_PLATFORM_A_SERVICE_ACCOUNT", Secret: true, set: into(&s.Push.PlatformA.ServiceAccountJSON, secret)},
		{Name: "PUSH_PLATFORM_A_BASE_URL", Default: "https://fcm.googleapis.com", set: into(&s.Push.PlatformA.BaseURL, httpURL)},
		{Name: "PUSH_PLATFORM_B_KEY", Required: ForPushB, Secret: true, set: into(&s.Push.PlatformB.Key, pemText)},
		{Name: "PUSH_PLATFORM_B_KEY_ID", Required: ForPushB, set: text(&s.Push.PlatformB.KeyID)},
		{Name: "PUSH_PLATFORM_B_TEAM_ID", Required: ForPushB, set: text(&s.Push.PlatformB.TeamID)},
		{Name: "PUSH_PLATFORM_B_TOPIC", Required: ForPushB, set: text(&s.Push.PlatformB.Topic)},
		{Name: "PUSH_PLATFORM_B_BASE_URL", Default: "https://api.push.apple.com", set: into(&s.Push.PlatformB.BaseURL, httpURL)},

		// Outbound calls
		{Name: "HTTP_CONNECT_TIMEOUT_MS", Default: "120000", Min: 1, Max: maxDayMs,
			set: number(&s.Outbound.ConnectTimeout, time.Millisecond)},
		{Name: "HTTP_REQUEST_TIMEOUT_MS", Default: "600000", Min: 1, Max: maxDayMs,
			set: number(&s.Outbound.RequestTimeout, time.Millisecond)},
		{Name: "HTTP_SOCKET_TIMEOUT_MS", Default: "600000", Min: 1, Max: maxDayMs,
			set: number(&s.Outbound.SocketTimeout, time.Millisecond)},
	}
}
