// The list of all settings: name, default, range, requirement, and the field that each sets. A new setting begins here.

package config

import (
	"log/slog"
	"math"
	"strconv"
	"time"
)

// Requirement is the condition under which a key must be set; "" means never. Only under Always is a blank key a
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

	// set parses a text that is not blank into the field, or returns the rule that it breaks.
	set func(r *reader, text string) (rule string)
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

// Keys lists every environment variable that the service reads, in the order of the documentation. It must not be
// changed.
var Keys = new(settings).keys()

// settings is a Config under construction, with values that only the rules need.
type settings struct {
	Config
	accountID  string // of the object store
	rootCAFile string // of platform_b
}

// Upper bounds shared by many keys. They catch typing errors and prevent overflow; all are far beyond sensible use.
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
		into("ROLES", "api,render,separation,sweep", &s.Roles, roles),
		number("PORT", "8080", 1, 65535, &s.HTTP.Port, 1),
		into("BIND_ADDR", "", &s.HTTP.BindAddr, ipAddress),
		into("PUBLIC_BASE_URL", "", &s.HTTP.PublicBaseURL, httpURL),
		into("CORS_ALLOWED_ORIGINS", "", &s.HTTP.AllowedOrigins, origins),
		into("TRUSTED_PROXIES", "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7",
			&s.HTTP.TrustedProxies, networks),
		number("RATE_LIMIT_TRUSTED_PROXY_HOPS", "0", 0, 100, &s.HTTP.ProxyHops, 1),
		into("ADMIN_SLUG", "", &s.HTTP.AdminSlug, adminSlug),
		text("ADMIN_PROVIDER_A_CLIENT_ID", "", &s.HTTP.AdminClientID),
		toggle("ENABLE_API_DOCS", &s.HTTP.APIDocs),
		toggle("ENABLE_TESTDATA_MOCK", &s.HTTP.TestdataMock),

		// Logs, operations and monitoring
		into("LOG_LEVEL", "info", &s.Log.Level, oneOf("debug, info, warn, error",
			slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError)),
		into("LOG_FORMAT", "json", &s.Log.JSON, oneOf("json, text", true, false)),
		into("OPS_ADDR", "", &s.HTTP.OpsAddr, listenAddress),
		secret("MONITORING_DSN", &s.Monitoring.DSN, dsn),
		text("MONITORING_ENV", "dev", &s.Monitoring.Environment),
		into("MONITORING_TRACES_SAMPLE_RATE", "0.1", &s.Monitoring.TracesSampleRate, fraction),
		text("MONITORING_RELEASE", "", &s.Monitoring.Release),
		into("OTEL_EXPORTER_OTLP_ENDPOINT", "", &s.Monitoring.TracesEndpoint, httpURL),

		// Database
		into("DATABASE_URL", "", &s.Database.URL, databaseURL).needed(Always),
		text("DB_USER", "", &s.Database.User).needed(Always),
		password("DB_PASSWORD", &s.Database.Password).needed(Always),
		number("DB_MAX_POOL", "5", 1, 1000, &s.Database.MaxPool, 1),

		// Sign-in
		secret("AUTH_JWT_SECRET", &s.Auth.JWTSecret, signingSecret).needed(Always),
		secret("AUTH_JWT_SECRET_PREVIOUS", &s.Auth.JWTPrevious, signingSecret),
		number("AUTH_JWT_EXPIRY_SECONDS", "604800", 60, int64(MaxTokenLife/time.Second),
			&s.Auth.JWTLifetime, time.Second),
		number("AUTH_SESSION_MAX_DAYS", "90", 1, maxDays, &s.Auth.Session, day),
		into("AUTH_PROVIDER_A_CLIENT_IDS", "", &s.Auth.ProviderA.ClientIDs, clientIDs).needed(Always),
		into("AUTH_PROVIDER_A_TOKENINFO_URL", "https://oauth2.googleapis.com/tokeninfo",
			&s.Auth.ProviderA.TokenInfoURL, httpURL),
		into("AUTH_PROVIDER_B_CLIENT_IDS", "", &s.Auth.ProviderB.ClientIDs, list),
		into("AUTH_PROVIDER_B_KEYS_URL", "https://appleid.apple.com/auth/keys", &s.Auth.ProviderB.KeysURL, httpURL),
		text("AUTH_PROVIDER_B_ISSUER", "https://appleid.apple.com", &s.Auth.ProviderB.Issuer),

		// Local storage and uploads
		text("STORAGE_PATH", "./storage", &s.Storage.Path),
		number("MAX_UPLOAD_FILE_SIZE_MB", "500", 1, maxMegabytes, &s.Storage.MaxUploadBytes, mebibyte),
		number("UPLOADS_TTL_HOURS", "6", 1, maxHours, &s.Storage.UploadsTTL, time.Hour),
		number("ASSET_CACHE_TTL_HOURS", "24", 1, maxHours, &s.Asset.CacheTTL, time.Hour),
		number("ACCOUNT_MAX_WAITING_JOBS", "50", 0, 1_000_000, &s.Account.MaxWaitingJobs, 1),
		number("ACCOUNT_MAX_STORED_MB", "20480", 0, maxMegabytes, &s.Account.MaxStoredBytes, mebibyte),
		number("ACCOUNT_MAX_ASSETS", "5000", 0, 1_000_000, &s.Account.MaxAssets, 1),

		// Object store
		text("OBJECT_STORE_BUCKET", "", &s.ObjectStore.Bucket),
		text("OBJECT_STORE_ACCOUNT_ID", "", &s.accountID).needed(WithBucket),
		text("OBJECT_STORE_ACCESS_KEY_ID", "", &s.ObjectStore.AccessKeyID).needed(WithBucket),
		secret("OBJECT_STORE_SECRET_ACCESS_KEY", &s.ObjectStore.SecretAccessKey, anySecret).needed(WithBucket),
		into("OBJECT_STORE_ENDPOINT", "", &s.ObjectStore.Endpoint, httpURL),
		into("OBJECT_STORE_REGION", "auto", &s.ObjectStore.Region, region),
		into("OBJECT_STORE_ADDRESSING", "path", &s.ObjectStore.VirtualHost, oneOf("path, virtual", false, true)),
		number("SIGNED_URL_TTL_SEC", "900", 60, 86400, &s.ObjectStore.SignedURLTTL, time.Second),

		// Separation
		secret("SEPARATION_PROVIDER_API_KEY", &s.Separation.APIKey, apiKey).needed(Always),
		number("SEPARATION_PROVIDER_SPACE_ID", "", 1, math.MaxInt64, &s.Separation.SpaceID, 1).needed(Always),
		into("SEPARATION_PROVIDER_BASE_URL", "https://api.perso.ai", &s.Separation.BaseURL, httpURL),
		into("SEPARATION_PROVIDER_STORAGE_BASE_URL", "https://portal-media.perso.ai",
			&s.Separation.StorageBaseURL, httpURL),
		into("PROVIDER_DOWNLOAD_ALLOWED_HOSTS", "", &s.Separation.AllowedHosts, hosts),
		secret("SEPARATION_SIGNING_SECRET", &s.Separation.SigningSecret, signingSecret).needed(Always),
		secret("SEPARATION_SIGNING_SECRET_PREVIOUS", &s.Separation.SigningPrevious, signingSecret),
		number("SEPARATION_URL_TTL_SEC", "604800", 60, 604800, &s.Separation.URLTTL, time.Second),
		number("SEPARATION_ABANDON_TTL_MS", "604800000", 60000, maxHours*3600*1000,
			&s.Separation.AbandonTTL, time.Millisecond),
		number("SEPARATION_MAX_PROVIDER_IN_FLIGHT", "2", 1, 5, &s.Separation.MaxInFlight, 1),
		number("SEPARATION_BUSY_WAIT_MIN", "30", 0, 1440, &s.Separation.BusyWait, time.Minute),
		number("SEPARATION_STUCK_SUBMITTING_SEC", "600", 60, 1800, &s.Separation.StuckSubmitting, time.Second),
		number("PROVIDER_POLL_INTERVAL_MS", "15000", 1000, 3600*1000, &s.Separation.PollInterval, time.Millisecond),
		number("PROVIDER_MAX_POLL_MINUTES", "30", 1, 120, &s.Separation.MaxPoll, time.Minute),
		number("MAX_SEPARATION_AUDIO_MB", "100", 1, maxMegabytes, &s.Separation.MaxAudioBytes, mebibyte),

		// Rendering
		number("RENDER_INPUT_CACHE_TTL_HOURS", "24", 1, maxHours, &s.Render.InputCacheTTL, time.Hour),
		number("RENDER_OUTPUT_TTL_HOURS", "24", 1, maxHours, &s.Render.OutputTTL, time.Hour),
		number("RENDER_MAX_CONCURRENT", "", 1, 1024, &s.Render.MaxConcurrent, 1),
		number("RENDER_PROCESS_TIMEOUT_MIN", "30", 1, 1440, &s.Render.ProcessTimeout, time.Minute),
		number("RENDER_MAX_GIGAPIXELS", "1344", 1, 1_000_000, &s.Render.MaxPixelFrames, 1_000_000_000),
		number("RENDER_MAX_SOUND_HOURS", "24", 1, maxHours, &s.Render.MaxSound, time.Hour),
		number("RENDER_JOB_TIMEOUT_MIN", "240", 1, 10080, &s.Render.JobTimeout, time.Minute),
		number("MEDIA_MAX_MEMORY_MB", "4096", 256, maxMegabytes, &s.Media.MaxMemoryBytes, mebibyte),
		into("MEDIA_CAGE", "required", &s.Media.RequireConfinement, oneOf("required, best-effort", true, false)),

		// Credits
		number("SIGNUP_BONUS_CREDITS", "3", 0, 1000000, &s.Credit.SignupBonus, 1),
		into("SIGNUP_BONUS_PER_IDENTITY", "always", &s.Credit.BonusPerIdentity, oneOf("always, once", false, true)),
		secret("SIGNUP_BONUS_KEY", &s.Credit.BonusKey, signingSecret),
		number("ADMIN_GRANT_DAILY_CAP", "1000", 0, 1000000000, &s.Credit.AdminGrantDailyCap, 1),
		into("CREDIT_PRODUCTS", "credits.10=10,credits.50=50,credits.150=150", &s.Credit.Products, products),

		// In-app purchases
		text("IAP_PLATFORM_A_PACKAGE_NAME", "", &s.IAP.PlatformA.PackageName).needed(ForPlatformA),
		secret("IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON", &s.IAP.PlatformA.ServiceAccountJSON, anySecret).needed(ForPlatformA),
		into("IAP_PLATFORM_A_BASE_URL", platformAURL, &s.IAP.PlatformA.BaseURL, httpURL),
		toggle("IAP_PLATFORM_A_ALLOW_TEST", &s.IAP.PlatformA.AllowTest),
		text("IAP_PLATFORM_A_NOTIFICATION_AUDIENCE", "", &s.IAP.PlatformA.Notifications.Audience),
		text("IAP_PLATFORM_A_NOTIFICATION_SENDER", "", &s.IAP.PlatformA.Notifications.Sender),
		text("IAP_PLATFORM_B_ISSUER_ID", "", &s.IAP.PlatformB.IssuerID).needed(ForPlatformB),
		text("IAP_PLATFORM_B_KEY_ID", "", &s.IAP.PlatformB.KeyID).needed(ForPlatformB),
		secret("IAP_PLATFORM_B_PRIVATE_KEY", &s.IAP.PlatformB.PrivateKey, pemText).needed(ForPlatformB),
		text("IAP_PLATFORM_B_BUNDLE_ID", "", &s.IAP.PlatformB.BundleID).needed(ForPlatformB),
		into("IAP_PLATFORM_B_ENV", "production", &s.IAP.PlatformB.Sandbox, oneOf("production, sandbox", false, true)),
		into("IAP_PLATFORM_B_BASE_URL", "", &s.IAP.PlatformB.BaseURL, httpURL),
		toggle("IAP_PLATFORM_B_ALLOW_TEST", &s.IAP.PlatformB.AllowTest),
		into("IAP_PLATFORM_B_SANDBOX_BASE_URL", platformBSandboxURL, &s.IAP.PlatformB.SandboxURL, httpURL),
		text("IAP_PLATFORM_B_ROOT_CA_FILE", "", &s.rootCAFile),

		// Web hook and push
		into("WEBHOOK_URL", "", &s.Webhook.URL, webhookURL),
		secret("WEBHOOK_SECRET", &s.Webhook.Secret, webhookSecret).needed(WithWebhook),
		secret("WEBHOOK_SECRET_PREVIOUS", &s.Webhook.PreviousSecret, webhookSecret),
		secret("PUSH_PLATFORM_A_SERVICE_ACCOUNT", &s.Push.PlatformA.ServiceAccountJSON, anySecret),
		into("PUSH_PLATFORM_A_BASE_URL", "https://fcm.googleapis.com", &s.Push.PlatformA.BaseURL, httpURL),
		secret("PUSH_PLATFORM_B_KEY", &s.Push.PlatformB.Key, pemText).needed(ForPushB),
		text("PUSH_PLATFORM_B_KEY_ID", "", &s.Push.PlatformB.KeyID).needed(ForPushB),
		text("PUSH_PLATFORM_B_TEAM_ID", "", &s.Push.PlatformB.TeamID).needed(ForPushB),
		text("PUSH_PLATFORM_B_TOPIC", "", &s.Push.PlatformB.Topic).needed(ForPushB),
		into("PUSH_PLATFORM_B_BASE_URL", "https://api.push.apple.com", &s.Push.PlatformB.BaseURL, httpURL),

		// Outbound calls
		number("HTTP_CONNECT_TIMEOUT_MS", "120000", 1, maxDayMs, &s.Outbound.ConnectTimeout, time.Millisecond),
		number("HTTP_REQUEST_TIMEOUT_MS", "600000", 1, maxDayMs, &s.Outbound.RequestTimeout, time.Millisecond),
		number("HTTP_SOCKET_TIMEOUT_MS", "600000", 1, maxDayMs, &s.Outbound.SocketTimeout, time.Millisecond),
	}
}
