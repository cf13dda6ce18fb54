package config

import (
	"cmp"
	"log/slog"
	"math"
	"strconv"
	"time"
)

// Requirement is the condition under which a key must be set.
type Requirement string

// The requirements. Only under Always is a blank key a problem of its own. A blank key of the bucket is a
// problem if a bucket is named; a store or push service with a blank key is not configured.
const (
	Optional     Requirement = "no"
	Always       Requirement = "yes"
	WithBucket   Requirement = "with a bucket"
	ForPlatformA Requirement = "for platform_a"
	ForPlatformB Requirement = "for platform_b"
	WithWebhook  Requirement = "with WEBHOOK_URL"
	ForPushB     Requirement = "for push to platform_b"
)

// Key declares one environment variable: its documentation, its default and range, and the field
// that it sets.
type Key struct {
	Name     string
	Group    string
	Required Requirement // default: Optional
	// Default replaces a blank value. If Computed is set, Default only describes a value that depends on the
	// machine or on another key.
	Default  string
	Computed bool
	// Min and Max bound a whole number, inclusive. Max 0 means that there is no range.
	Min, Max int64
	Secret   bool // the value is never shown
	// Meaning is one paragraph of prose, ending in a full stop.
	Meaning string

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

// keys declares every key, once.
func (s *settings) keys() (keys []Key) {
	for _, group := range []struct {
		name string
		keys []Key
	}{
		{"Server", s.serverKeys()},
		{"Logs, operations and monitoring", s.logKeys()},
		{"Database", s.databaseKeys()},
		{"Sign-in", s.signInKeys()},
		{"Local storage and uploads", s.storageKeys()},
		{"Object store", s.bucketKeys()},
		{"Separation", s.separationKeys()},
		{"Rendering", s.renderKeys()},
		{"Credits", s.creditKeys()},
		{"In-app purchases", s.storeKeys()},
		{"Web hook and push", s.eventKeys()},
		{"Outbound calls", s.outboundKeys()},
	} {
		for _, k := range group.keys {
			k.Group, k.Required = group.name, cmp.Or(k.Required, Optional)
			keys = append(keys, k)
		}
	}
	return keys
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

func (s *settings) serverKeys() []Key {
	return []Key{
		{Name: "ROLES", Default: "api,render,separation,sweep", set: into(&s.Roles, roles),
			Meaning: "What this process does, as a comma-separated list: `api` answers requests, `render` makes films, " +
				"`separation` works with the separation provider, `sweep` removes expired data. `serve --roles` and " +
				"`doctor --roles` override it. Fewer than all roles need PostgreSQL and a bucket; a process without `api` " +
				"needs OPS_ADDR. Every role must run somewhere."},
		{Name: "PORT", Default: "8080", Min: 1, Max: 65535, set: number(&s.HTTP.Port, 1),
			Meaning: "Port of the public listener."},
		{Name: "BIND_ADDR", set: into(&s.HTTP.BindAddr, ipAddress),
			Meaning: "IP address that the public listener is bound to, such as `127.0.0.1` behind a proxy on the same " +
				"machine. Blank is every address."},
		{Name: "PUBLIC_BASE_URL", Default: "http://localhost:<PORT>", Computed: true,
			set: into(&s.HTTP.PublicBaseURL, httpURL),
			Meaning: "Address under which clients reach the service. Signed stem links start with it. A trailing slash " +
				"is dropped."},
		{Name: "CORS_ALLOWED_ORIGINS", set: into(&s.HTTP.AllowedOrigins, origins),
			Meaning: "Comma-separated origins, such as `https://app.example.com`, whose pages may call the API. Blank or " +
				"`*` allows any."},
		{Name: "TRUSTED_PROXIES", Default: "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7",
			set: into(&s.HTTP.TrustedProxies, networks),
			Meaning: "Comma-separated CIDR ranges or addresses of proxies. The service believes their `X-Forwarded-For` " +
				"header and lets each hold more than 256 connections. The default is loopback and the private ranges; " +
				"`none` trusts no proxy."},
		{Name: "RATE_LIMIT_TRUSTED_PROXY_HOPS", Default: "0", Min: 0, Max: 100, set: number(&s.HTTP.ProxyHops, 1),
			Meaning: "Position of the client's address in `X-Forwarded-For`, counted from the right, starting at 0. " +
				"Entries that are not addresses count, too."},
		{Name: "ADMIN_SLUG", set: into(&s.HTTP.AdminSlug, adminSlug),
			Meaning: "Serves the admin web app at `/<ADMIN_SLUG>/`: 6 to 64 letters, digits, dashes and underscores. " +
				"Blank switches the app off."},
		{Name: "ADMIN_PROVIDER_A_CLIENT_ID", set: text(&s.HTTP.AdminClientID),
			Meaning: "Client id of the admin web app at provider_a, one of `AUTH_PROVIDER_A_CLIENT_IDS`. With it admins " +
				"sign in to the app through provider_a; register `<PUBLIC_BASE_URL>/<ADMIN_SLUG>/` there as a redirect " +
				"address. If it is blank, they paste the tokens that `cutroom admin token` prints."},
		{Name: "ENABLE_API_DOCS", Default: "false", set: toggle(&s.HTTP.APIDocs),
			Meaning: "`true` serves the API description at `/swagger` without authentication."},
		{Name: "ENABLE_TESTDATA_MOCK", Default: "false", set: toggle(&s.HTTP.TestdataMock),
			Meaning: "`true` serves the unauthenticated mock stems under `/api/v2/testdata`. For development only."},
	}
}

func (s *settings) logKeys() []Key {
	return []Key{
		{Name: "LOG_LEVEL", Default: "info",
			set: into(&s.Log.Level, oneOf("debug, info, warn, error",
				slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError)),
			Meaning: "`debug`, `info`, `warn` or `error`."},
		{Name: "LOG_FORMAT", Default: "json", set: into(&s.Log.JSON, oneOf("json, text", true, false)),
			Meaning: "`json` or `text`."},
		{Name: "OPS_ADDR", set: into(&s.Ops.Addr, listenAddress),
			Meaning: "Address (`host:port` or `:port`) of a second listener with `/metrics`, `/healthz`, `/readyz` and " +
				"`/debug/pprof`. It has no authentication, so keep it private. Blank switches it off."},
		{Name: "MONITORING_DSN", Secret: true, set: into(&s.Monitoring.DSN, dsn),
			Meaning: "DSN of the error monitoring service. Blank switches monitoring off."},
		{Name: "MONITORING_ENV", Default: "dev", set: text(&s.Monitoring.Environment),
			Meaning: "Environment name in error reports."},
		{Name: "MONITORING_TRACES_SAMPLE_RATE", Default: "0.1", set: into(&s.Monitoring.TracesSampleRate, fraction),
			Meaning: "Share of requests that are traced, from 0.0 to 1.0, if OTEL_EXPORTER_OTLP_ENDPOINT is set. " +
				"OTEL_TRACES_SAMPLER overrides it."},
		{Name: "MONITORING_RELEASE", set: text(&s.Monitoring.Release),
			Meaning: "Release identifier in error reports. Blank uses the version of the build."},
		{Name: "OTEL_EXPORTER_OTLP_ENDPOINT", set: into(&s.Tracing.Endpoint, httpURL),
			Meaning: "Base address of an OpenTelemetry collector (`http://127.0.0.1:4318`). The service sends it traces by " +
				"OTLP over HTTP. The other standard `OTEL_*` keys apply, such as `OTEL_TRACES_SAMPLER` and " +
				"`OTEL_EXPORTER_OTLP_HEADERS`. Blank switches traces off."},
	}
}

func (s *settings) databaseKeys() []Key {
	return []Key{
		{Name: "DATABASE_URL", Required: Always, set: into(&s.Database.URL, databaseURL),
			Meaning: "`postgres://host/name?sslmode=require` (also `postgresql://` and `jdbc:postgresql://`; `sslmode` " +
				"must be `require`, `verify-ca` or `verify-full`), or the embedded database: `sqlite:///absolute/path.db`, " +
				"`sqlite://relative/path.db` or `sqlite::memory:`. User and password inside the URL are ignored."},
		{Name: "DB_USER", Required: Always, set: text(&s.Database.User),
			Meaning: "Database user. It must be set, although the embedded database ignores it."},
		{Name: "DB_PASSWORD", Required: Always, Secret: true, set: password(&s.Database.Password),
			Meaning: "Database password. It must be set, although the embedded database ignores it."},
		{Name: "JOBS_TTL_DAYS", Default: "365", Min: 1, Max: maxDays, set: number(&s.Retention.Jobs, day),
			Meaning: "How long jobs stay in the database after their end, in days. Credits and purchases stay longer."},
		{Name: "DB_MAX_POOL", Default: "5", Min: 1, Max: 1000, set: number(&s.Database.MaxPool, 1),
			Meaning: "Maximum number of open database connections of this process."},
		{Name: "MIGRATE_ON_START", Default: "true", set: toggle(&s.Database.MigrateOnStart),
			Meaning: "`false` leaves the schema to `cutroom migrate`, which a database role that owns the schema runs. " +
				"`serve` then needs only a role that reads and writes rows, and refuses to start on a schema older than " +
				"the program."},
	}
}

func (s *settings) signInKeys() []Key {
	return []Key{
		{Name: "AUTH_JWT_SECRET", Required: Always, Secret: true, set: into(&s.Auth.JWTSecret, signingSecret),
			Meaning: "Key that signs access tokens, at least 32 characters; `openssl rand -base64 48` makes one. " +
				"Changing it signs everybody out, unless the old one stays as AUTH_JWT_SECRET_PREVIOUS."},
		{Name: "AUTH_JWT_SECRET_PREVIOUS", Secret: true, set: into(&s.Auth.JWTPrevious, signingSecret),
			Meaning: "Previous key: access tokens signed with it are still accepted, new ones are not. Set it to the old " +
				"key when AUTH_JWT_SECRET changes, and remove it after AUTH_JWT_EXPIRY_SECONDS. At least 32 characters."},
		{Name: "AUTH_JWT_EXPIRY_SECONDS", Default: "604800", Min: 60, Max: int64(MaxTokenLife / time.Second),
			set:     number(&s.Auth.JWTLifetime, time.Second),
			Meaning: "Lifetime of an access token, in seconds."},
		{Name: "AUTH_SESSION_MAX_DAYS", Default: "90", Min: 1, Max: maxDays, set: number(&s.Auth.Session, day),
			Meaning: "How long after a sign-in its access token may be renewed, in days."},
		{Name: "AUTH_PROVIDER_A_CLIENT_IDS", Required: Always, set: into(&s.Auth.ProviderA.ClientIDs, clientIDs),
			Meaning: "Comma-separated client ids that are accepted as the audience of provider_a's identity tokens."},
		{Name: "AUTH_PROVIDER_A_TOKENINFO_URL", Default: "https://oauth2.googleapis.com/tokeninfo",
			set:     into(&s.Auth.ProviderA.TokenInfoURL, httpURL),
			Meaning: "Token-info endpoint of provider_a. Change it only for tests and private deployments."},
		{Name: "AUTH_PROVIDER_B_CLIENT_IDS", set: into(&s.Auth.ProviderB.ClientIDs, list),
			Meaning: "Comma-separated client ids that are accepted as the audience of provider_b's identity tokens. Blank " +
				"switches provider_b sign-in off (503)."},
		{Name: "AUTH_PROVIDER_B_KEYS_URL", Default: "https://appleid.apple.com/auth/keys",
			set:     into(&s.Auth.ProviderB.KeysURL, httpURL),
			Meaning: "Published key set of provider_b. Change it only for tests and private deployments."},
		{Name: "AUTH_PROVIDER_B_ISSUER", Default: "https://appleid.apple.com", set: text(&s.Auth.ProviderB.Issuer),
			Meaning: "Issuer that a provider_b identity token must name, compared exactly."},
	}
}

func (s *settings) storageKeys() []Key {
	return []Key{
		{Name: "STORAGE_PATH", Default: "./storage", set: text(&s.Storage.Path),
			Meaning: "Folder for staging, working files, caches and, without a bucket, all results. Created at start."},
		{Name: "MAX_UPLOAD_FILE_SIZE_MB", Default: "500", Min: 1, Max: maxMegabytes,
			set:     number(&s.Storage.MaxUploadBytes, mebibyte),
			Meaning: "Largest body of `/render` and `/render/inputs`, and largest asset, in MiB."},
		{Name: "UPLOADS_TTL_HOURS", Default: "6", Min: 1, Max: maxHours, set: number(&s.Storage.UploadsTTL, time.Hour),
			Meaning: "How long an abandoned upload stays in the staging folder, in hours."},
		{Name: "ASSET_CACHE_TTL_HOURS", Default: "24", Min: 1, Max: maxHours, set: number(&s.Asset.CacheTTL, time.Hour),
			Meaning: "How long locally cached assets and render parts live after their last use, in hours. Swept hourly."},
		{Name: "CACHE_MAX_MB", Default: "30720", Min: 3, Max: maxMegabytes,
			set: number(&s.Storage.CacheMaxBytes, mebibyte),
			Meaning: "Size of the local caches, in MiB: two thirds for downloaded assets and one third for render parts. " +
				"Beyond its share a cache drops its least recently used files."},
		{Name: "ASSET_TTL_DAYS", Default: "0", Min: 0, Max: maxDays, set: number(&s.Asset.TTL, day),
			Meaning: "How long an account holds an uploaded asset after its last upload or use, in days. 0 is for ever, " +
				"or until the bucket's lifecycle rule deletes it."},
		{Name: "ACCOUNT_MAX_WAITING_JOBS", Default: "50", Min: 0, Max: 1_000_000, set: number(&s.Account.MaxWaitingJobs, 1),
			Meaning: "Renders and separations of one account that may wait; further ones are 429 `too_many_jobs`. 0 is no " +
				"limit."},
		{Name: "ACCOUNT_MAX_STORED_MB", Default: "20480", Min: 0, Max: maxMegabytes,
			set: number(&s.Account.MaxStoredBytes, mebibyte),
			Meaning: "Storage of one account, in MiB: assets until they are erased, cached inputs, films, stems, and uploads of " +
				"unfinished jobs. Requests that would exceed it are 403 `storage_full`. 0 is no limit."},
		{Name: "ACCOUNT_MAX_ASSETS", Default: "5000", Min: 0, Max: 1_000_000, set: number(&s.Account.MaxAssets, 1),
			Meaning: "Assets of one account, with those that it gave up and that are not erased yet; requests for further " +
				"uploads are 400. 0 is no limit."},
		{Name: "MIN_FREE_DISK_MB", Default: "512", Min: 0, Max: maxMegabytes,
			set: number(&s.Storage.MinFreeDiskBytes, mebibyte),
			Meaning: "Free space that STORAGE_PATH must have, in MiB. With less, the replica is not ready and claims no " +
				"renders. 0 switches the check off."},
	}
}

func (s *settings) bucketKeys() []Key {
	return []Key{
		{Name: "OBJECT_STORE_BUCKET", set: text(&s.ObjectStore.Bucket),
			Meaning: "Bucket of the S3-compatible object store. Blank switches the object store off: the service streams " +
				"files itself, and `/render/v3` answers 503."},
		{Name: "OBJECT_STORE_ACCOUNT_ID", Required: WithBucket, set: text(&s.accountID),
			Meaning: "Account id, 32 hexadecimal characters. The default endpoint contains it."},
		{Name: "OBJECT_STORE_ACCESS_KEY_ID", Required: WithBucket, set: text(&s.ObjectStore.AccessKeyID),
			Meaning: "Id of a token that may read and write the bucket."},
		{Name: "OBJECT_STORE_SECRET_ACCESS_KEY", Required: WithBucket, Secret: true,
			set:     into(&s.ObjectStore.SecretAccessKey, secret),
			Meaning: "Secret of that token."},
		{Name: "OBJECT_STORE_ENDPOINT", Default: "https://<OBJECT_STORE_ACCOUNT_ID>.r2.cloudflarestorage.com", Computed: true,
			set:     into(&s.ObjectStore.Endpoint, httpURL),
			Meaning: "Address of another S3-compatible store. The account id is required all the same."},
		{Name: "SIGNED_URL_TTL_SEC", Default: "900", Min: 60, Max: 86400,
			set:     number(&s.ObjectStore.SignedURLTTL, time.Second),
			Meaning: "Lifetime of presigned download URLs, in seconds. Used only with a bucket."},
	}
}

func (s *settings) separationKeys() []Key {
	return []Key{
		{Name: "SEPARATION_PROVIDER_API_KEY", Required: Always, Secret: true, set: into(&s.Separation.APIKey, apiKey),
			Meaning: "API key of the separation provider."},
		{Name: "SEPARATION_PROVIDER_SPACE_ID", Required: Always, Min: 1, Max: math.MaxInt64,
			set:     number(&s.Separation.SpaceID, 1),
			Meaning: "Number of the workspace at the separation provider."},
		{Name: "SEPARATION_PROVIDER_BASE_URL", Default: "https://api.perso.ai", set: into(&s.Separation.BaseURL, httpURL),
			Meaning: "API address of the separation provider. Plain http and private addresses are for stand-ins and " +
				"private networks."},
		{Name: "SEPARATION_PROVIDER_STORAGE_BASE_URL", Default: "https://portal-media.perso.ai",
			set:     into(&s.Separation.StorageBaseURL, httpURL),
			Meaning: "Address that stems are downloaded from. The API key is never sent to it."},
		{Name: "PROVIDER_DOWNLOAD_ALLOWED_HOSTS", set: into(&s.Separation.AllowedHosts, hosts),
			Meaning: "Comma-separated additional hosts that stems may be downloaded from, as `host` (any port) or " +
				"`host:port`. The hosts of the two addresses above are always allowed."},
		{Name: "SEPARATION_SIGNING_SECRET", Required: Always, Secret: true,
			set: into(&s.Separation.SigningSecret, signingSecret),
			Meaning: "Key that signs stem links, at least 32 characters, different from AUTH_JWT_SECRET. Changing it " +
				"breaks existing links, unless the old one stays as SEPARATION_SIGNING_SECRET_PREVIOUS."},
		{Name: "SEPARATION_SIGNING_SECRET_PREVIOUS", Secret: true, set: into(&s.Separation.SigningPrevious, signingSecret),
			Meaning: "Previous key: stem links signed with it still work, new ones do not use it. Set it to the old key " +
				"when SEPARATION_SIGNING_SECRET changes, and remove it after SEPARATION_URL_TTL_SEC. At least 32 characters."},
		{Name: "SEPARATION_URL_TTL_SEC", Default: "604800", Min: 60, Max: 604800,
			set: number(&s.Separation.URLTTL, time.Second),
			Meaning: "Lifetime of stem links, in seconds. It must not exceed SEPARATION_ABANDON_TTL_MS; a shorter " +
				"SEPARATION_ABANDON_TTL_MS shortens the default."},
		{Name: "SEPARATION_ABANDON_TTL_MS", Default: "604800000", Min: 60000, Max: maxHours * 3600 * 1000,
			set:     number(&s.Separation.AbandonTTL, time.Millisecond),
			Meaning: "How long stems are kept after they became ready or one was last downloaded, in milliseconds."},
		{Name: "SEPARATION_MAX_PROVIDER_IN_FLIGHT", Default: "2", Min: 1, Max: 5, set: number(&s.Separation.MaxInFlight, 1),
			Meaning: "Separations that run at the provider at a time, over all replicas. The rest wait in the queue."},
		{Name: "SEPARATION_BUSY_WAIT_MIN", Default: "30", Min: 0, Max: 1440,
			set: number(&s.Separation.BusyWait, time.Minute),
			Meaning: "How long a job waits for a provider that answers 429, or 503 with Retry-After, in minutes. After " +
				"that it fails and is refunded. 0 fails at once."},
		{Name: "SEPARATION_STUCK_SUBMITTING_SEC", Default: "600", Min: 60, Max: 1800,
			set:     number(&s.Separation.StuckSubmitting, time.Second),
			Meaning: "A job that has been SUBMITTING for longer goes back to the queue, in seconds."},
		{Name: "PROVIDER_POLL_INTERVAL_MS", Default: "15000", Min: 1000, Max: 3600 * 1000,
			set:     number(&s.Separation.PollInterval, time.Millisecond),
			Meaning: "Interval at which a job's progress is polled from the provider, in milliseconds."},
		{Name: "PROVIDER_MAX_POLL_MINUTES", Default: "30", Min: 1, Max: 120,
			set:     number(&s.Separation.MaxPoll, time.Minute),
			Meaning: "A separation that takes longer at the provider fails, in minutes."},
		{Name: "MAX_SEPARATION_AUDIO_MB", Default: "100", Min: 1, Max: maxMegabytes,
			set:     number(&s.Separation.MaxAudioBytes, mebibyte),
			Meaning: "Largest audio file that can be separated, in MiB."},
	}
}

func (s *settings) renderKeys() []Key {
	return []Key{
		{Name: "RENDER_INPUT_CACHE_TTL_HOURS", Default: "24", Min: 1, Max: maxHours,
			set:     number(&s.Render.InputCacheTTL, time.Hour),
			Meaning: "How long a video of `/render/inputs` is kept after its last use, in hours. Swept hourly."},
		{Name: "RENDER_OUTPUT_TTL_HOURS", Default: "24", Min: 1, Max: maxHours, set: number(&s.Render.OutputTTL, time.Hour),
			Meaning: "How long a film is kept after its completion or last download, in hours."},
		{Name: "RENDER_MAX_CONCURRENT", Default: "half the CPUs, at least 1", Computed: true, Min: 1, Max: 1024,
			set:     number(&s.Render.MaxConcurrent, 1),
			Meaning: "Renders that this process runs at a time."},
		{Name: "RENDER_PROCESS_TIMEOUT_MIN", Default: "30", Min: 1, Max: 1440,
			set:     number(&s.Render.ProcessTimeout, time.Minute),
			Meaning: "The last pass of a render (mix and mux) is killed if it takes longer, in minutes."},
		{Name: "RENDER_MAX_GIGAPIXELS", Default: "1344", Min: 1, Max: 1_000_000,
			set: number(&s.Render.MaxPixelFrames, 1_000_000_000),
			Meaning: "Maximum work of one render, in 10^9 pixels: canvas x output frames + source picture x decoded frames. " +
				"The default is three hours of 1920x1080 at 30 frames a second, twice."},
		{Name: "RENDER_MAX_SOUND_HOURS", Default: "24", Min: 1, Max: maxHours, set: number(&s.Render.MaxSound, time.Hour),
			Meaning: "Maximum sound that one render may decode or time-stretch, in hours; its mix may add up " +
				"16 times as much. An hour takes 1.4 GB of scratch space."},
		{Name: "RENDER_JOB_TIMEOUT_MIN", Default: "240", Min: 1, Max: 10080, set: number(&s.Render.JobTimeout, time.Minute),
			Meaning: "A render that takes longer, counted from the start of its first attempt, fails, in minutes."},
		{Name: "MEDIA_MAX_MEMORY_MB", Default: "4096", Min: 256, Max: maxMegabytes,
			set:     number(&s.Media.MaxMemoryBytes, mebibyte),
			Meaning: "Memory that one ffmpeg process may use, in MiB."},
		{Name: "MEDIA_CAGE", Default: "required",
			set: into(&s.Media.RequireConfinement, oneOf("required, best-effort", true, false)),
			Meaning: "`required` refuses to start if neither namespaces nor Landlock can confine ffmpeg; `best-effort` " +
				"logs that and starts."},
		{Name: "FFMPEG_PATH", set: text(&s.Media.FFmpeg),
			Meaning: "Path of the ffmpeg program; `ffprobe` must be in the same folder. Blank looks for both in PATH."},
	}
}
