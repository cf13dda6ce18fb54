// Package sandbox provides every service that cutroom calls, on one machine and without any accounts, as real HTTP
// servers: both identity providers, both stores, both push services, the separation provider, the object store and a
// web hook receiver.
//
// It implements the vendors' wire formats from their public descriptions and imports nothing of the service, so that a
// misread format cannot be wrong on both sides. Every server can be made to fail, by Go methods or by HTTP under
// /__control/, which lists its calls (see package fake).
package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/identity"
	"cutroom/internal/sandbox/notify"
	"cutroom/internal/sandbox/separator"
	"cutroom/internal/sandbox/store"
)

// The identity of the app under test.
const (
	ClientIDA   = "cutroom-sandbox.apps.provider-a.example"
	ClientIDB   = "app.cutroom.sandbox"
	PackageName = "app.cutroom.sandbox"
	BundleID    = "app.cutroom.sandbox"
	BucketName  = "cutroom-sandbox"
	SpaceID     = 4711
	// AdminSlug is the path of the admin app of a service that runs with Env.
	AdminSlug = "sandbox-admin"
)

// Options configures Start.
type Options struct {
	// DataDir is required. It contains uploads, stems, objects, the embedded database, the service's storage, and
	// secrets that survive a restart.
	DataDir string
	// Bucket starts the object store; without it the service streams files.
	Bucket bool
	// Fast makes the separation provider split by frequency, without delay, which suits tests. Otherwise it separates
	// voice from accompaniment.
	Fast bool
	// Processing is the minimum time of a separation. 0 means 2 s, or 200 ms with Fast.
	Processing time.Duration
	// PublicHost is the name or address by which other machines reach this one. The servers then listen on every
	// interface, and use only that name in what they print and sign. Without it they listen on loopback.
	PublicHost string
	// Arrived, unless nil, is called with a readable line for each push or web hook.
	Arrived func(line string)
	// Port is the first of the servers' consecutive ports; 0 uses free ones.
	Port int
}

// World is the set of running stand-ins.
type World struct {
	ProviderA *identity.ProviderA
	ProviderB *identity.ProviderB
	PlatformA *store.PlatformA
	PlatformB *store.PlatformB
	Separator *separator.Provider
	Bucket    *bucket.Bucket // nil without Options.Bucket
	PushA     *notify.PlatformA
	PushB     *notify.PlatformB
	Receiver  *notify.Receiver

	opts    Options
	servers []server
	secrets map[string]string
}

// Start starts the stand-ins. They serve until Close.
func Start(opts Options) (_ *World, err error) {
	if opts.DataDir == "" {
		return nil, errors.New("start sandbox: a data folder is required")
	}
	if opts.DataDir, err = filepath.Abs(opts.DataDir); err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	if opts.Processing == 0 && opts.Fast {
		opts.Processing = 200 * time.Millisecond
	}
	if err := os.MkdirAll(opts.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	w := &World{opts: opts, ProviderA: identity.NewProviderA(ClientIDA), ProviderB: identity.NewProviderB(ClientIDB),
		PlatformA: store.NewPlatformA(PackageName), PlatformB: store.NewPlatformB(BundleID),
		PushA: notify.NewPlatformA(opts.Arrived), PushB: notify.NewPlatformB(BundleID, opts.Arrived)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start sandbox: %w", err), w.Close())
		}
	}()
	if w.secrets, err = loadSecrets(filepath.Join(opts.DataDir, "secrets.json")); err != nil {
		return nil, err
	}
	w.Receiver = notify.NewReceiver(w.secrets["webhook"], opts.Arrived)
	w.Separator, err = separator.New(separator.Options{APIKey: w.secrets["providerApiKey"], Space: SpaceID,
		Dir: filepath.Join(opts.DataDir, "provider"), Fast: opts.Fast, Processing: opts.Processing})
	if err == nil && opts.Bucket {
		w.Bucket, err = bucket.New(bucket.Options{Name: BucketName, AccessKeyID: w.secrets["bucketKeyId"],
			SecretAccessKey: w.secrets["bucketSecret"], Dir: filepath.Join(opts.DataDir, "bucket")})
	}
	if err != nil {
		return nil, err
	}
	if err := w.listen(); err != nil {
		return nil, err
	}
	for name, content := range map[string]string{
		"platform-b-root.pem": w.PlatformB.RootPEM(),
		"world.json":          string(fake.Must(json.MarshalIndent(map[string]any{"servers": w.Servers()}, "", "  "))),
	} {
		if err := os.WriteFile(filepath.Join(opts.DataDir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// server is one server of a stand-in.
type server struct {
	name string
	*fake.Host
}

func (w *World) listen() (err error) {
	w.servers = []server{{"provider_a", w.ProviderA.Host}, {"provider_b", w.ProviderB.Host},
		{"platform_a", w.PlatformA.Host}, {"platform_b", w.PlatformB.Host},
		{"separation_api", w.Separator.API}, {"separation_storage", w.Separator.Storage}, {"separation_upload", w.Separator.Upload}}
	if w.Bucket != nil {
		w.servers = append(w.servers, server{"object_store", w.Bucket.Host})
	}
	w.servers = append(w.servers, server{"push_a", w.PushA.Host}, server{"push_b", w.PushB.Host}, server{"webhook_receiver", w.Receiver.Host})
	for i, s := range w.servers {
		addr := ""
		if w.opts.Port != 0 {
			addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(w.opts.Port+i))
		}
		s.Publish(w.opts.PublicHost)
		if e := s.Listen(addr); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.name, e))
		}
	}
	return err
}

// Close stops every server and waits for everything that they started. The data folder stays.
func (w *World) Close() (err error) {
	for _, s := range w.servers {
		err = errors.Join(err, s.Close())
	}
	if w.Separator != nil {
		err = errors.Join(err, w.Separator.Close())
	}
	return err
}

// Servers returns the servers' addresses by name.
func (w *World) Servers() map[string]string {
	addresses := map[string]string{}
	for _, s := range w.servers {
		addresses[s.name] = s.URL()
	}
	return addresses
}

// Env returns the complete environment of `cutroom serve` in this world, except PORT, which the caller chooses. The
// caller owns the map.
func (w *World) Env() map[string]string {
	env := map[string]string{
		"STORAGE_PATH": filepath.Join(w.opts.DataDir, "storage"),
		"DATABASE_URL": "sqlite://" + filepath.Join(w.opts.DataDir, "cutroom.db"),
		"DB_USER":      "cutroom",
		"DB_PASSWORD":  w.secrets["dbPassword"],

		"AUTH_JWT_SECRET":               w.secrets["jwt"],
		"AUTH_PROVIDER_A_CLIENT_IDS":    ClientIDA,
		"AUTH_PROVIDER_A_TOKENINFO_URL": w.ProviderA.TokenInfoURL(),
		"AUTH_PROVIDER_B_CLIENT_IDS":    ClientIDB,
		"AUTH_PROVIDER_B_KEYS_URL":      w.ProviderB.KeysURL(),

		"SEPARATION_PROVIDER_API_KEY":          w.secrets["providerApiKey"],
		"SEPARATION_PROVIDER_SPACE_ID":         strconv.Itoa(SpaceID),
		"SEPARATION_PROVIDER_BASE_URL":         w.Separator.API.URL(),
		"SEPARATION_PROVIDER_STORAGE_BASE_URL": w.Separator.Storage.URL(),
		"SEPARATION_SIGNING_SECRET":            w.secrets["stemSigning"],
		"PROVIDER_POLL_INTERVAL_MS":            "1000",

		"IAP_PLATFORM_A_PACKAGE_NAME":          PackageName,
		"IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON":  w.PlatformA.ServiceAccountJSON(),
		"IAP_PLATFORM_A_BASE_URL":              w.PlatformA.URL(),
		"IAP_PLATFORM_A_NOTIFICATION_AUDIENCE": store.PushAudience,
		"IAP_PLATFORM_A_NOTIFICATION_SENDER":   store.PushSender,
		"IAP_PLATFORM_B_ISSUER_ID":             w.PlatformB.IssuerID(),
		"IAP_PLATFORM_B_KEY_ID":                w.PlatformB.KeyID(),
		"IAP_PLATFORM_B_PRIVATE_KEY":           w.PlatformB.PrivateKeyPEM(),
		"IAP_PLATFORM_B_BUNDLE_ID":             BundleID,
		"IAP_PLATFORM_B_ENV":                   "sandbox",
		"IAP_PLATFORM_B_BASE_URL":              w.PlatformB.URL(),
		"IAP_PLATFORM_B_SANDBOX_BASE_URL":      w.PlatformB.URL() + store.SandboxPath,
		"IAP_PLATFORM_B_ROOT_CA_FILE":          filepath.Join(w.opts.DataDir, "platform-b-root.pem"),

		"WEBHOOK_URL":                     onLoopback(w.Receiver.Host) + notify.HookPath,
		"WEBHOOK_SECRET":                  w.secrets["webhook"],
		"PUSH_PLATFORM_A_SERVICE_ACCOUNT": w.PushA.ServiceAccountJSON(),
		"PUSH_PLATFORM_A_BASE_URL":        w.PushA.URL(),
		"PUSH_PLATFORM_B_KEY":             w.PushB.KeyPEM(),
		"PUSH_PLATFORM_B_KEY_ID":          w.PushB.KeyID(),
		"PUSH_PLATFORM_B_TEAM_ID":         notify.TeamID,
		"PUSH_PLATFORM_B_TOPIC":           BundleID,
		"PUSH_PLATFORM_B_BASE_URL":        onLoopback(w.PushB.Host),

		"ADMIN_SLUG":           AdminSlug,
		"ENABLE_API_DOCS":      "true",
		"ENABLE_TESTDATA_MOCK": "true",
	}
	if w.Bucket != nil {
		env["OBJECT_STORE_BUCKET"] = BucketName
		env["OBJECT_STORE_ACCOUNT_ID"] = w.secrets["bucketAccountId"]
		env["OBJECT_STORE_ENDPOINT"] = w.Bucket.URL()
		env["OBJECT_STORE_ACCESS_KEY_ID"] = w.secrets["bucketKeyId"]
		env["OBJECT_STORE_SECRET_ACCESS_KEY"] = w.secrets["bucketSecret"]
	}
	return env
}

// onLoopback returns the address of a host for a service on this machine. The service contacts some hosts without TLS
// only on loopback.
func onLoopback(h *fake.Host) string {
	_, port, err := net.SplitHostPort(h.Addr())
	if err != nil {
		panic(err) // the host listens on a valid address
	}
	return "http://" + net.JoinHostPort("127.0.0.1", port)
}

// loadSecrets generates secrets once for a data folder, so that tokens and signed URLs survive a restart of the
// sandbox.
func loadSecrets(path string) (map[string]string, error) {
	s := map[string]string{"jwt": fake.RandomHex(32), "stemSigning": fake.RandomHex(32), "providerApiKey": "pk-" + fake.RandomHex(20),
		"bucketAccountId": fake.RandomHex(16), "bucketKeyId": fake.RandomHex(16), "bucketSecret": fake.RandomHex(32),
		"dbPassword": fake.RandomHex(16),
		"webhook":    "whsec_" + base64.StdEncoding.EncodeToString([]byte(fake.RandomHex(16)))}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, os.WriteFile(path, fake.Must(json.MarshalIndent(s, "", "  ")), 0o600)
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}
