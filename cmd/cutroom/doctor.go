// The command doctor: it calls everything that the configured roles depend on (ffmpeg, database, bucket, disk and the
// vendors), without paying for anything, and prints a line for each.

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/app"
	"cutroom/internal/base/db"
	"cutroom/internal/base/httpcall"
	"cutroom/internal/config"
	"cutroom/internal/storage/disk"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/installation"
	"cutroom/internal/work/job"
)

// check is one line of the doctor's report. run returns its finding, or an error if the check fails. Errors contain no
// secret.
type check struct {
	name   string
	needed bool // whether the roles of this process need it
	run    func(ctx context.Context, cfg config.Config) (string, error)
}

// finding is the result of a check, for scripts.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// errUnhealthy makes the doctor exit with status 1. The report has already printed the reason.
var errUnhealthy = errors.New("some checks failed")

// doctor checks everything that the roles of this process depend on, one line each.
func doctor(ctx context.Context, v *invocation) error {
	cfg := v.cfg
	storeA, storeB, err := app.NewStores(cfg, nil)
	if err != nil {
		return err
	}
	pushA, pushB, err := app.NewPushers(cfg, nil)
	if err != nil {
		return err
	}
	provider, err := app.NewProvider(cfg, nil, func(separator.Call) {}, v.log)
	if err != nil {
		return err
	}
	const noStore, noPush = "its purchases are refused", "its phones get no push messages"
	stores := cfg.Roles.API || cfg.Roles.Sweep // the sweep queries refunds
	checks := []check{
		{"ffmpeg", cfg.Roles.Media(), checkFFmpeg},
		{"database", true, checkDatabase},
		{"bucket", true, checkBucket},
		{"storage", true, checkStorage},
		{"separation provider", cfg.Roles.Separation, credentialsOf(provider, "", "accepts the key and knows the workspace")},
		{"provider_a", cfg.Roles.API, func(ctx context.Context, c config.Config) (string, error) {
			return reach(ctx, http.MethodGet, c.Auth.ProviderA.TokenInfoURL)
		}},
		{"provider_b", cfg.Roles.API, checkProviderB},
		{"platform_a", stores, credentialsOf(storeA, noStore, "accepts the service account and knows the app")},
		{"platform_b", stores, credentialsOf(storeB, noStore, "accepts the key, the issuer and the app")},
		{"platform_b tests", stores && storeB != nil && !cfg.IAP.PlatformB.Sandbox, credentialsOf(storeB.Tests(),
			"purchases of the store's review and of testers are refused; see IAP_PLATFORM_B_ALLOW_TEST",
			"accepts the key, the issuer and the app for purchases of the store's review and of testers")},
		{"web hook", cfg.Roles.Sweep, checkWebhook},
		{"push platform_a", cfg.Roles.Sweep, credentialsOf(pushA, noPush,
			"accepts the service account for the project's phones; nothing was sent")},
		{"push platform_b", cfg.Roles.Sweep, credentialsOf(pushB, noPush,
			"accepts the key, the team and the app; it refused a push to an invalid phone, as it should")},
	}
	failed, findings := false, make([]finding, 0, len(checks))
	for _, c := range checks {
		if !c.needed {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		detail, err := c.run(ctx, cfg)
		cancel()
		mark := "ok  "
		if err != nil {
			mark, detail, failed = "FAIL", err.Error(), true
		}
		detail = strings.Join(strings.Fields(detail), " ") // errors may have several lines
		findings = append(findings, finding{Check: c.name, OK: err == nil, Detail: detail})
		if !v.json { // print each at once: a check may take a minute
			fmt.Fprintf(v.stdout, "%s  %-20s %s\n", mark, c.name, detail)
		}
	}
	if v.json {
		if err := v.printJSON(findings); err != nil {
			return err
		}
	}
	if failed {
		return errUnhealthy
	}
	return nil
}

// versionWords is the number of words in the first line of ffmpeg's output that contain its version.
const versionWords = 3

func checkFFmpeg(ctx context.Context, cfg config.Config) (string, error) {
	runner, err := app.NewMedia(cfg)
	if err != nil {
		return "", err
	}
	report, err := runner.Check(ctx)
	if err != nil {
		return "", err
	}
	words := strings.Fields(report.FFmpeg)
	version := strings.Join(words[:min(versionWords, len(words))], " ")
	if len(report.Missing) > 0 {
		return "", fmt.Errorf("%s lacks %s", version, strings.Join(report.Missing, ", "))
	}
	var standing, missing []string
	for _, layer := range report.Confinement {
		if layer.InForce {
			standing = append(standing, layer.Name)
			continue
		}
		missing = append(missing, fmt.Sprintf("no %s (%s)", layer.Name, layer.Detail))
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("%s is not fully confined: %s", version, strings.Join(missing, ", "))
	}
	return version + ", all codecs and filters; confined by " + strings.Join(standing, ", "), nil
}

func checkDatabase(ctx context.Context, cfg config.Config) (string, error) {
	d, err := openDatabase(ctx, cfg)
	if err != nil {
		return "", err
	}
	started := time.Now()
	err = d.Ping(ctx)
	took := time.Since(started).Round(time.Microsecond)
	kind := "SQLite"
	if d.Postgres() {
		kind = "PostgreSQL"
	}
	writes := "accepts writes"
	if d.CheckSchema(ctx) != nil {
		writes = "has no current tables; the first start, or cutroom migrate, makes them"
	} else if err == nil {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		if err = job.CheckWrites(limited, d, "doctor"); err != nil {
			err = fmt.Errorf("the database answers reads but accepts no writes: %w", err)
		}
		cancel()
	}
	return fmt.Sprintf("%s answers in %v and %s", kind, took, writes), errors.Join(err, d.Close())
}

func checkBucket(ctx context.Context, cfg config.Config) (string, error) {
	b := app.NewBucket(cfg, nil)
	if b == nil {
		return "not configured: files stay on this machine, and renders by reference are off", nil
	}
	notes, err := b.Check(ctx)
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "AuthorizationHeaderMalformed"):
		return "", fmt.Errorf("%w; set OBJECT_STORE_REGION", err)
	case strings.Contains(err.Error(), "SecondLevelDomainForbidden"):
		return "", fmt.Errorf("%w; set OBJECT_STORE_ADDRESSING=virtual", err)
	default:
		return "", err
	}
	whose := "not compared with the database" // another check reports a database that does not answer
	if d, err := openDatabase(ctx, cfg); err == nil {
		whose, err = installation.State(ctx, d, b)
		if err = errors.Join(err, d.Close()); err != nil {
			return "", err
		}
	}
	detail := "put, get, presigned put and get, delete; " + whose
	for _, note := range notes {
		detail += "; warning: " + note
	}
	return detail, nil
}

func openDatabase(ctx context.Context, cfg config.Config) (*db.DB, error) {
	return db.Open(ctx, db.Options{URL: cfg.Database.URL, User: cfg.Database.User,
		Password: cfg.Database.Password.Reveal(), MaxPool: 1})
}

func checkStorage(_ context.Context, cfg config.Config) (string, error) {
	dir, err := filepath.Abs(cfg.Storage.Path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return "", fmt.Errorf("not writable: %w", err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return "", err
	}
	free, err := disk.Free(dir)
	if err != nil {
		return "", err
	}
	if free < disk.Reserve {
		return "", fmt.Errorf("%d MB free, less than %d MB", free>>20, disk.Reserve>>20)
	}
	return fmt.Sprintf("writable, %d MB free", free>>20), nil
}

func checkProviderB(ctx context.Context, cfg config.Config) (string, error) {
	if len(cfg.Auth.ProviderB.ClientIDs) == 0 {
		return "not configured: sign-in with provider_b is off", nil
	}
	return reach(ctx, http.MethodGet, cfg.Auth.ProviderB.KeysURL)
}

// credentialsOf returns the check of a vendor's service. The service is nil if it is not configured; off then says what
// is missing.
func credentialsOf[C interface {
	comparable
	Check(ctx context.Context) error
}](client C, off, accepted string) func(context.Context, config.Config) (string, error) {
	return func(ctx context.Context, _ config.Config) (string, error) {
		if none := *new(C); client == none {
			return "not configured: " + off, nil
		}
		return accepted, client.Check(ctx)
	}
}

// checkWebhook sends no event. The configuration has already checked the secrets' form.
func checkWebhook(ctx context.Context, cfg config.Config) (string, error) {
	if cfg.Webhook.URL == "" {
		return "not configured: the end of a job is not reported", nil
	}
	detail, err := reach(ctx, http.MethodHead, cfg.Webhook.URL)
	secrets := "WEBHOOK_SECRET"
	if !cfg.Webhook.PreviousSecret.IsBlank() {
		secrets += " and WEBHOOK_SECRET_PREVIOUS"
	}
	return fmt.Sprintf("HEAD: %s; no event was sent; requests are signed with %s", detail, secrets), err
}

// reach accepts any answer: even a 404 proves that the service can be reached.
func reach(ctx context.Context, method, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return "", err
	}
	started := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("%s cannot be reached: %w", req.URL.Host, httpcall.WithoutURL(err))
	}
	resp.Body.Close()
	if resp.StatusCode >= 500 {
		return "", fmt.Errorf("%s answers %d", req.URL.Host, resp.StatusCode)
	}
	return fmt.Sprintf("%s answers in %v", req.URL.Host, time.Since(started).Round(100*time.Microsecond)), nil
}
