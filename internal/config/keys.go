package config

import (
	"math"
	"strconv"
)

// Requirement says when a key must be set.
type Requirement string

// The requirements. Only Always makes a blank key a problem on its own; the
// bucket's keys become problems with a bucket, and a store whose keys are not
// all set is simply not configured.
const (
	Optional     Requirement = "no"
	Always       Requirement = "yes"
	WithBucket   Requirement = "with a bucket"
	ForPlatformA Requirement = "for platform_a"
	ForPlatformB Requirement = "for platform_b"
)

// Key documents one environment variable. Load takes defaults and ranges from
// here, so the documentation cannot differ from the behaviour.
type Key struct {
	Name     string
	Group    string
	Required Requirement
	// Default is the text that a blank value stands for. When Computed is set
	// it only describes a default that depends on the machine or another key.
	Default  string
	Computed bool
	// Min and Max bound a whole number, inclusive. Max 0 means that the value
	// is not a ranged number.
	Min, Max int64
	// Secret keys hold a Secret, and their values are never shown.
	Secret bool
	// Meaning is one paragraph of prose, ending in a full stop.
	Meaning string
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

const (
	groupServer     = "Server"
	groupLog        = "Logs, operations and monitoring"
	groupDatabase   = "Database"
	groupSignIn     = "Sign-in"
	groupStorage    = "Local storage and uploads"
	groupBucket     = "Object store"
	groupSeparation = "Separation"
	groupRender     = "Rendering"
	groupCredit     = "Credits"
	groupIAP        = "In-app purchases"
	groupOutbound   = "Outbound calls"
)

// Upper bounds shared by many keys. They only keep typing errors and
// arithmetic overflow out; every one is far beyond sensible use.
const (
	maxMegabytes = 1 << 30       // 1 PiB
	maxHours     = 10 * 365 * 24 // ten years
	maxDays      = 100 * 365     // a hundred: as good as never
	maxDayMs     = 24 * 3600 * 1000
)

// Keys lists every environment variable the service reads, in the order of the
// documentation. It must not be changed.
var Keys = []Key{
	{Name: "PORT", Group: groupServer, Required: Optional, Default: "8080", Min: 1, Max: 65535,
		Meaning: "Port of the public listener."},
	{Name: "BIND_ADDR", Group: groupServer, Required: Optional,
		Meaning: "IP address that the public listener is bound to, such as `127.0.0.1` behind a proxy on the same machine. Blank is every address."},
	{Name: "PUBLIC_BASE_URL", Group: groupServer, Required: Optional, Default: "http://localhost:<PORT>", Computed: true,
		Meaning: "Address under which clients reach the service. Signed stem links start with it. A trailing slash is dropped."},
	{Name: "CORS_ALLOWED_ORIGINS", Group: groupServer, Required: Optional,
		Meaning: "Comma-separated origins such as `https://app.example.com` that browsers may call from. Blank, or `*`, allows any."},
	{Name: "TRUSTED_PROXIES", Group: groupServer, Required: Optional, Default: "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7",
		Meaning: "Comma-separated CIDR ranges or addresses of peers whose `X-Forwarded-For` header is believed, and who may hold more than 256 connections each. The default is loopback and the private ranges; `none` believes nobody."},
	{Name: "RATE_LIMIT_TRUSTED_PROXY_HOPS", Group: groupServer, Required: Optional, Default: "0", Min: 0, Max: 100,
		Meaning: "Position of the client's address in `X-Forwarded-For`, counted from the right, starting at 0. A name in its place counts as well."},
	{Name: "ADMIN_SLUG", Group: groupServer, Required: Optional,
		Meaning: "The admin web app is served at `/<ADMIN_SLUG>/`: 6 to 64 letters, digits, dashes and underscores. Blank switches the app off."},
	{Name: "ADMIN_PROVIDER_A_CLIENT_ID", Group: groupServer, Required: Optional,
		Meaning: "provider_a's client id of the admin web app, one of `AUTH_PROVIDER_A_CLIENT_IDS`: admins then sign in to the app with provider_a, where `<PUBLIC_BASE_URL>/<ADMIN_SLUG>/` is registered as a redirect address. Blank leaves the tokens that `cutroom admin token` prints."},
	{Name: "ENABLE_API_DOCS", Group: groupServer, Required: Optional, Default: "false",
		Meaning: "`true` serves the API description at `/swagger` without authentication."},
	{Name: "ENABLE_TESTDATA_MOCK", Group: groupServer, Required: Optional, Default: "false",
		Meaning: "`true` serves the unauthenticated mock stems under `/api/v2/testdata`. For development only."},

	{Name: "LOG_LEVEL", Group: groupLog, Required: Optional, Default: "info",
		Meaning: "`debug`, `info`, `warn` or `error`."},
	{Name: "LOG_FORMAT", Group: groupLog, Required: Optional, Default: "json",
		Meaning: "`json` or `text`."},
	{Name: "OPS_ADDR", Group: groupLog, Required: Optional,
		Meaning: "Address (`host:port` or `:port`) of a second listener with `/metrics`, `/readyz` and `/debug/pprof`. It asks for no authentication, so keep it private. Blank switches it off."},
	{Name: "MONITORING_DSN", Group: groupLog, Required: Optional, Secret: true,
		Meaning: "DSN of the error monitoring service. Blank switches monitoring off."},
	{Name: "MONITORING_ENV", Group: groupLog, Required: Optional, Default: "dev",
		Meaning: "Environment name that reports carry."},
	{Name: "MONITORING_TRACES_SAMPLE_RATE", Group: groupLog, Required: Optional, Default: "0.1",
		Meaning: "Share of requests that are traced, from 0.0 to 1.0."},
	{Name: "MONITORING_RELEASE", Group: groupLog, Required: Optional,
		Meaning: "Release identifier that reports carry. Blank leaves it to the build."},

	{Name: "DATABASE_URL", Group: groupDatabase, Required: Always,
		Meaning: "`postgres://host/name?sslmode=require` (also `postgresql://` and `jdbc:postgresql://`; `sslmode` must be `require`, `verify-ca` or `verify-full`), or the embedded database: `sqlite:///absolute/path.db`, `sqlite://relative/path.db` or `sqlite::memory:`. User and password inside the URL are ignored."},
	{Name: "DB_USER", Group: groupDatabase, Required: Always,
		Meaning: "Database user. The embedded database ignores it, yet it must be set."},
	{Name: "DB_PASSWORD", Group: groupDatabase, Required: Always, Secret: true,
		Meaning: "Database password. The embedded database ignores it, yet it must be set."},
	{Name: "JOBS_TTL_DAYS", Group: groupDatabase, Required: Optional, Default: "365", Min: 1, Max: maxDays,
		Meaning: "How long jobs stay in the database after their end, in days. Statistics count the jobs that are there; credits and purchases stay."},
	{Name: "PROVIDER_CALLS_TTL_DAYS", Group: groupDatabase, Required: Optional, Default: "30", Min: 1, Max: maxDays,
		Meaning: "How long the record of calls to the separation provider is kept, in days."},
	{Name: "DB_MAX_POOL", Group: groupDatabase, Required: Optional, Default: "5", Min: 1, Max: 1000,
		Meaning: "Most open database connections of this process."},
	{Name: "MIGRATE_ON_START", Group: groupDatabase, Required: Optional, Default: "true",
		Meaning: "`false` leaves the schema to `cutroom migrate`, run by a role that owns it: `serve` then needs a role that may read and write rows and no more, and refuses to start on a schema older than the program."},

	{Name: "AUTH_JWT_SECRET", Group: groupSignIn, Required: Always, Secret: true,
		Meaning: "Key that signs access tokens, at least 32 characters; `openssl rand -base64 48` makes one. Changing it signs everybody out, unless the old one stays as AUTH_JWT_SECRET_PREVIOUS."},
	{Name: "AUTH_JWT_SECRET_PREVIOUS", Group: groupSignIn, Required: Optional, Secret: true,
		Meaning: "Key of access tokens that are still accepted; nothing is signed with it. Set it to the old key when AUTH_JWT_SECRET changes, and remove it after AUTH_JWT_EXPIRY_SECONDS. At least 32 characters."},
	{Name: "AUTH_JWT_EXPIRY_SECONDS", Group: groupSignIn, Required: Optional, Default: "604800", Min: 60, Max: 7776000,
		Meaning: "Lifetime of an access token, in seconds."},
	{Name: "AUTH_SESSION_MAX_DAYS", Group: groupSignIn, Required: Optional, Default: "90", Min: 1, Max: maxDays,
		Meaning: "How long after a sign-in its access token may be renewed, in days."},
	{Name: "AUTH_PROVIDER_A_CLIENT_IDS", Group: groupSignIn, Required: Always,
		Meaning: "Comma-separated client ids that a provider_a identity token may be made for."},
	{Name: "AUTH_PROVIDER_A_TOKENINFO_URL", Group: groupSignIn, Required: Optional, Default: "https://oauth2.googleapis.com/tokeninfo",
		Meaning: "Token-info endpoint of provider_a. Changed for tests and private deployments only."},
	{Name: "AUTH_PROVIDER_B_CLIENT_IDS", Group: groupSignIn, Required: Optional,
		Meaning: "Comma-separated client ids that a provider_b identity token may be made for. Blank switches provider_b sign-in off (503)."},
	{Name: "AUTH_PROVIDER_B_KEYS_URL", Group: groupSignIn, Required: Optional, Default: "https://appleid.apple.com/auth/keys",
		Meaning: "Published key set of provider_b. Changed for tests and private deployments only."},
	{Name: "AUTH_PROVIDER_B_ISSUER", Group: groupSignIn, Required: Optional, Default: "https://appleid.apple.com",
		Meaning: "Issuer that a provider_b identity token must name, compared exactly."},

	{Name: "STORAGE_PATH", Group: groupStorage, Required: Optional, Default: "./storage",
		Meaning: "Folder for staging, working files, caches and, without a bucket, all results. Created at start."},
	{Name: "MAX_UPLOAD_FILE_SIZE_MB", Group: groupStorage, Required: Optional, Default: "500", Min: 1, Max: maxMegabytes,
		Meaning: "Largest body of `/render` and `/render/inputs`, and largest asset, in MiB."},
	{Name: "UPLOADS_TTL_HOURS", Group: groupStorage, Required: Optional, Default: "6", Min: 1, Max: maxHours,
		Meaning: "How long an abandoned upload stays in the staging folder, in hours."},
	{Name: "ASSET_CACHE_TTL_HOURS", Group: groupStorage, Required: Optional, Default: "24", Min: 1, Max: maxHours,
		Meaning: "How long locally cached assets and render parts live after their last use, in hours. Swept hourly."},
	{Name: "ASSET_CACHE_MAX_MB", Group: groupStorage, Required: Optional, Default: "20480", Min: 1, Max: maxMegabytes,
		Meaning: "Size above which the local asset cache drops its least recently used files, in MiB."},
	{Name: "MIN_FREE_DISK_MB", Group: groupStorage, Required: Optional, Default: "512", Min: 0, Max: maxMegabytes,
		Meaning: "A render fails, with a sentence, and `/readyz` reports the replica while less than this is free under STORAGE_PATH, in MiB. 0 switches the check off."},

	{Name: "OBJECT_STORE_BUCKET", Group: groupBucket, Required: Optional,
		Meaning: "Bucket of the S3-compatible object store. Blank switches the object store off: files are streamed by the service and `/render/v3` answers 503."},
	{Name: "OBJECT_STORE_ACCOUNT_ID", Group: groupBucket, Required: WithBucket,
		Meaning: "Account id, 32 hexadecimal characters. It gives the endpoint's host."},
	{Name: "OBJECT_STORE_ACCESS_KEY_ID", Group: groupBucket, Required: WithBucket,
		Meaning: "Id of a token that may read and write the bucket."},
	{Name: "OBJECT_STORE_SECRET_ACCESS_KEY", Group: groupBucket, Required: WithBucket, Secret: true,
		Meaning: "Secret of that token."},
	{Name: "OBJECT_STORE_ENDPOINT", Group: groupBucket, Required: Optional, Default: "https://<OBJECT_STORE_ACCOUNT_ID>.r2.cloudflarestorage.com", Computed: true,
		Meaning: "Address of another S3-compatible store. The account id stays required with a bucket."},
	{Name: "SIGNED_URL_TTL_SEC", Group: groupBucket, Required: Optional, Default: "900", Min: 60, Max: 86400,
		Meaning: "Lifetime of presigned download URLs, in seconds. Used only with a bucket."},

	{Name: "SEPARATION_PROVIDER_API_KEY", Group: groupSeparation, Required: Always, Secret: true,
		Meaning: "API key of the separation provider."},
	{Name: "SEPARATION_PROVIDER_SPACE_ID", Group: groupSeparation, Required: Always, Min: 1, Max: math.MaxInt64,
		Meaning: "Number of the workspace at the separation provider."},
	{Name: "SEPARATION_PROVIDER_BASE_URL", Group: groupSeparation, Required: Optional, Default: "https://api.perso.ai",
		Meaning: "API address of the separation provider. Plain http and private addresses are for stand-ins and private networks."},
	{Name: "SEPARATION_PROVIDER_STORAGE_BASE_URL", Group: groupSeparation, Required: Optional, Default: "https://portal-media.perso.ai",
		Meaning: "Host that separation outputs are downloaded from. The API key is never sent to it."},
	{Name: "PROVIDER_DOWNLOAD_ALLOWED_HOSTS", Group: groupSeparation, Required: Optional,
		Meaning: "Comma-separated further hosts that stems may be downloaded from, as `host` (any port) or `host:port`. The hosts of the two addresses above are always allowed."},
	{Name: "SEPARATION_SIGNING_SECRET", Group: groupSeparation, Required: Always, Secret: true,
		Meaning: "Key that signs stem links, at least 32 characters; not the same as AUTH_JWT_SECRET. Changing it breaks the links already given out, unless the old one stays as SEPARATION_SIGNING_SECRET_PREVIOUS."},
	{Name: "SEPARATION_SIGNING_SECRET_PREVIOUS", Group: groupSeparation, Required: Optional, Secret: true,
		Meaning: "Key of stem links that are still accepted; nothing is signed with it. Set it to the old key when SEPARATION_SIGNING_SECRET changes, and remove it after SEPARATION_URL_TTL_SEC. At least 32 characters."},
	{Name: "SEPARATION_URL_TTL_SEC", Group: groupSeparation, Required: Optional, Default: "604800", Min: 60, Max: 604800,
		Meaning: "Lifetime of stem links, in seconds. It must not exceed SEPARATION_ABANDON_TTL_MS; the default shrinks to it."},
	{Name: "SEPARATION_ABANDON_TTL_MS", Group: groupSeparation, Required: Optional, Default: "604800000", Min: 60000, Max: maxHours * 3600 * 1000,
		Meaning: "How long the stems of a finished separation are kept after it became ready or was last downloaded, in milliseconds."},
	{Name: "SEPARATION_MAX_PROVIDER_IN_FLIGHT", Group: groupSeparation, Required: Optional, Default: "2", Min: 1, Max: 5,
		Meaning: "Most separations at the provider at a time, over all replicas. The rest wait in the queue."},
	{Name: "SEPARATION_STUCK_SUBMITTING_SEC", Group: groupSeparation, Required: Optional, Default: "600", Min: 60, Max: 1800,
		Meaning: "A job that has been submitting for longer goes back to the queue, in seconds."},
	{Name: "PROVIDER_POLL_INTERVAL_MS", Group: groupSeparation, Required: Optional, Default: "15000", Min: 1000, Max: 3600 * 1000,
		Meaning: "Time between two questions to the provider about a job's progress, in milliseconds."},
	{Name: "PROVIDER_MAX_POLL_MINUTES", Group: groupSeparation, Required: Optional, Default: "30", Min: 1, Max: 120,
		Meaning: "A separation that takes the provider longer has failed, in minutes."},
	{Name: "MAX_SEPARATION_AUDIO_MB", Group: groupSeparation, Required: Optional, Default: "100", Min: 1, Max: maxMegabytes,
		Meaning: "Largest audio file that may be separated, in MiB."},

	{Name: "RENDER_INPUT_CACHE_TTL_HOURS", Group: groupRender, Required: Optional, Default: "24", Min: 1, Max: maxHours,
		Meaning: "How long a video cached by `/render/inputs` lives after its last use, in hours. Swept hourly."},
	{Name: "RENDER_OUTPUT_TTL_HOURS", Group: groupRender, Required: Optional, Default: "24", Min: 1, Max: maxHours,
		Meaning: "How long a finished file lives after completion or its last download, in hours."},
	{Name: "RENDER_MAX_CONCURRENT", Group: groupRender, Required: Optional, Default: "half the CPUs, at least 1", Computed: true, Min: 1, Max: 1024,
		Meaning: "Media-processing jobs that run at a time in this process."},
	{Name: "RENDER_PROCESS_TIMEOUT_MIN", Group: groupRender, Required: Optional, Default: "30", Min: 1, Max: 1440,
		Meaning: "A final render pass that takes longer is killed, in minutes."},
	{Name: "RENDER_MAX_INPUT_PIXELS", Group: groupRender, Required: Optional, Default: "35389440", Min: 1, Max: math.MaxInt32,
		Meaning: "Largest picture of a source video, width x height. The default is 8192x4320."},
	{Name: "RENDER_MAX_SOURCE_MINUTES", Group: groupRender, Required: Optional, Default: "240", Min: 1, Max: 10080,
		Meaning: "Longest source file, in minutes."},
	{Name: "RENDER_MAX_OUTPUT_MINUTES", Group: groupRender, Required: Optional, Default: "180", Min: 1, Max: 10080,
		Meaning: "Longest rendered film, in minutes."},
	{Name: "RENDER_MAX_GIGAPIXELS", Group: groupRender, Required: Optional, Default: "1344", Min: 1, Max: 1_000_000,
		Meaning: "Most work of one render, in 10^9 pixels: canvas x output frames + source picture x frames decoded. The default is three hours of 1920x1080 at 30 a second, twice."},
	{Name: "RENDER_JOB_TIMEOUT_MIN", Group: groupRender, Required: Optional, Default: "240", Min: 1, Max: 10080,
		Meaning: "A render that has not ended this long after its first attempt began is FAILED, in minutes."},
	{Name: "PART_CACHE_MAX_MB", Group: groupRender, Required: Optional, Default: "10240", Min: 1, Max: maxMegabytes,
		Meaning: "Size above which the cache of encoded render parts drops its least recently used ones, in MiB."},
	{Name: "MEDIA_MAX_MEMORY_MB", Group: groupRender, Required: Optional, Default: "4096", Min: 256, Max: maxMegabytes,
		Meaning: "Memory that one ffmpeg process may use, in MiB."},
	{Name: "MEDIA_MAX_FILE_MB", Group: groupRender, Required: Optional, Default: "20480", Min: 1, Max: maxMegabytes,
		Meaning: "Largest file that one ffmpeg process may write, in MiB."},
	{Name: "MEDIA_CAGE", Group: groupRender, Required: Optional, Default: "required",
		Meaning: "`required` refuses to start where neither namespaces nor Landlock confine ffmpeg; `best-effort` starts all the same and says so."},
	{Name: "FFMPEG_PATH", Group: groupRender, Required: Optional,
		Meaning: "The ffmpeg program. Blank looks for `ffmpeg` in PATH."},
	{Name: "FFPROBE_PATH", Group: groupRender, Required: Optional,
		Meaning: "The ffprobe program. Blank looks for `ffprobe` in PATH."},

	{Name: "SIGNUP_BONUS_CREDITS", Group: groupCredit, Required: Optional, Default: "3", Min: 0, Max: 1000000,
		Meaning: "Credits granted at the first sign-in. 0 grants none."},
	{Name: "SIGNUP_BONUS_PER_IDENTITY", Group: groupCredit, Required: Optional, Default: "always",
		Meaning: "`always` grants the bonus to every new account. `once` grants it once to a person of a provider: a keyed hash of who had it outlives the account's deletion, so that deleting and signing in again earns nothing."},
	{Name: "ADMIN_GRANT_DAILY_CAP", Group: groupCredit, Required: Optional, Default: "1000", Min: 0, Max: 1000000000,
		Meaning: "Credits that one admin may grant in any 24 hours."},
	{Name: "CREDIT_PRODUCTS", Group: groupCredit, Required: Optional, Default: "credits.10=10,credits.50=50,credits.150=150",
		Meaning: "The product catalogue: comma-separated `productId=credits`, with 1 to 1000000 credits each."},

	{Name: "IAP_PLATFORM_A_PACKAGE_NAME", Group: groupIAP, Required: ForPlatformA,
		Meaning: "Package name of the app in platform_a's store. Unless both keys of platform_a are set its purchases answer `iap_unconfigured`."},
	{Name: "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON", Group: groupIAP, Required: ForPlatformA, Secret: true,
		Meaning: "The service account's JSON key file, as text; one line will do."},
	{Name: "IAP_PLATFORM_A_BASE_URL", Group: groupIAP, Required: Optional, Default: "https://androidpublisher.googleapis.com",
		Meaning: "Address of platform_a's store. Changed for tests only."},
	{Name: "IAP_PLATFORM_A_ALLOW_TEST", Group: groupIAP, Required: Optional, Default: "false",
		Meaning: "`true` grants credits for purchases of licence testers too, who pay nothing. For tests of the app only."},
	{Name: "IAP_PLATFORM_A_NOTIFICATION_AUDIENCE", Group: groupIAP, Required: Optional,
		Meaning: "Audience of the token with which platform_a's refund notifications are pushed to `/api/v2/stores/platform_a/notifications`, as set for the push subscription. Blank: that address answers 404, and refunds are noticed within a day or two."},
	{Name: "IAP_PLATFORM_A_NOTIFICATION_SENDER", Group: groupIAP, Required: Optional,
		Meaning: "E-mail of the service account that the push subscription signs as; needed with the audience."},
	{Name: "IAP_PLATFORM_A_NOTIFICATION_KEYS_URL", Group: groupIAP, Required: Optional, Default: "https://www.googleapis.com/oauth2/v3/certs",
		Meaning: "Address of the public keys of such tokens. Changed for tests only."},
	{Name: "IAP_PLATFORM_B_ISSUER_ID", Group: groupIAP, Required: ForPlatformB,
		Meaning: "Issuer id of the store's API key. Unless all four keys of platform_b are set its purchases answer `iap_unconfigured`."},
	{Name: "IAP_PLATFORM_B_KEY_ID", Group: groupIAP, Required: ForPlatformB,
		Meaning: "Id of the store's API key."},
	{Name: "IAP_PLATFORM_B_PRIVATE_KEY", Group: groupIAP, Required: ForPlatformB, Secret: true,
		Meaning: "The API key itself, a PEM private key on the curve P-256. Line breaks may be written as the two characters `\\n`."},
	{Name: "IAP_PLATFORM_B_BUNDLE_ID", Group: groupIAP, Required: ForPlatformB,
		Meaning: "Bundle id that every receipt must name."},
	{Name: "IAP_PLATFORM_B_ENV", Group: groupIAP, Required: Optional, Default: "production",
		Meaning: "`production` or `sandbox`: which of platform_b's stores is asked and believed."},
	{Name: "IAP_PLATFORM_B_BASE_URL", Group: groupIAP, Required: Optional, Default: "the address of the store named by IAP_PLATFORM_B_ENV", Computed: true,
		Meaning: "Address of platform_b's store. Changed for tests only."},
	{Name: "IAP_PLATFORM_B_ROOT_CA_FILE", Group: groupIAP, Required: Optional,
		Meaning: "PEM file with a further root that receipts may be signed under, beside the store's own. For tests only."},

	{Name: "HTTP_CONNECT_TIMEOUT_MS", Group: groupOutbound, Required: Optional, Default: "120000", Min: 1, Max: maxDayMs,
		Meaning: "Time to connect to another service, in milliseconds."},
	{Name: "HTTP_REQUEST_TIMEOUT_MS", Group: groupOutbound, Required: Optional, Default: "600000", Min: 1, Max: maxDayMs,
		Meaning: "Time for a whole request to another service, in milliseconds."},
	{Name: "HTTP_SOCKET_TIMEOUT_MS", Group: groupOutbound, Required: Optional, Default: "600000", Min: 1, Max: maxDayMs,
		Meaning: "Longest silence on a connection to another service, in milliseconds."},
}
