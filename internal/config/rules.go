// The rules across several settings, and the defaults that follow from the machine or from other settings.

package config

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/upstream/credentials"
)

// check computes the defaults that depend on the machine or on other keys, and checks the rules that involve
// several keys. A field whose key has a problem is blank here, and breaks no further rule.
func (s *settings) check(r *reader) {
	s.checkServer(r)
	s.checkObjectStore(r)
	s.checkRoles(r)
	s.checkSeparation(r)
	if s.Credit.BonusPerIdentity {
		r.needSecret("SIGNUP_BONUS_KEY", s.Credit.BonusKey, "SIGNUP_BONUS_PER_IDENTITY is once")
	}
	s.checkPlatformA(r)
	s.checkPlatformB(r)
	s.checkWebhook(r)
	s.checkPush(r)
	if s.Render.MaxConcurrent == 0 {
		// In a container GOMAXPROCS is the CPU quota; NumCPU counts the cores of the whole machine.
		s.Render.MaxConcurrent = max(1, runtime.GOMAXPROCS(0)/2)
	}
}

func (s *settings) checkServer(r *reader) {
	if s.HTTP.PublicBaseURL == "" {
		s.HTTP.PublicBaseURL = "http://localhost:" + strconv.Itoa(s.HTTP.Port)
	}
	// The public listener uses its port on every interface.
	if _, port, err := net.SplitHostPort(s.HTTP.OpsAddr); err == nil && s.HTTP.Port != 0 {
		if n, err := strconv.Atoi(port); err == nil && n == s.HTTP.Port {
			r.problem("OPS_ADDR", "must use another port than PORT")
		}
	}
	if id := s.HTTP.AdminClientID; id != "" && !slices.Contains(s.Auth.ProviderA.ClientIDs, id) {
		r.problem("ADMIN_PROVIDER_A_CLIENT_ID", "must be one of AUTH_PROVIDER_A_CLIENT_IDS")
	}
	if len(s.Auth.ProviderB.ClientIDs) == 0 && r.given("AUTH_PROVIDER_B_CLIENT_IDS") != "" {
		r.warn("AUTH_PROVIDER_B_CLIENT_IDS lists no client id: provider_b sign-in is off")
	}
	if !s.Monitoring.DSN.IsBlank() && s.Monitoring.TracesEndpoint == "" && r.given("MONITORING_TRACES_SAMPLE_RATE") != "" {
		r.warn("MONITORING_TRACES_SAMPLE_RATE has no effect: traces go only to OTEL_EXPORTER_OTLP_ENDPOINT, which is blank")
	}
	if jwt := s.Auth.JWTSecret; !jwt.IsBlank() && jwt.Reveal() == s.Separation.SigningSecret.Reveal() {
		r.warn("AUTH_JWT_SECRET and SEPARATION_SIGNING_SECRET are the same: use a different secret for each")
	}
}

var (
	accountID  = regexp.MustCompile(`^[0-9a-fA-F]{32}$`)
	hostLabel  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*[a-z0-9]$`)
	bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$`)
)

func (s *settings) checkObjectStore(r *reader) {
	o := &s.ObjectStore
	missing, all := r.missing(WithBucket)
	if o.Bucket == "" {
		if len(missing) < all {
			r.warn("the object store is off: OBJECT_STORE_BUCKET is blank although other OBJECT_STORE keys are set")
		}
		*o = ObjectStore{SignedURLTTL: o.SignedURLTTL}
		return
	}
	for _, key := range missing {
		r.problem(key, "is required when OBJECT_STORE_BUCKET is set")
	}
	if !bucketName.MatchString(o.Bucket) {
		r.problem("OBJECT_STORE_BUCKET", "must be a bucket name: 3 to 63 letters, digits, dots, dashes and underscores")
	}
	if s.accountID != "" && !accountID.MatchString(s.accountID) {
		r.problem("OBJECT_STORE_ACCOUNT_ID", "must be 32 hexadecimal characters")
	}
	if o.Endpoint == "" {
		o.Endpoint = "https://" + strings.ToLower(s.accountID) + ".r2.cloudflarestorage.com"
	}
	if !o.VirtualHost {
		return
	}
	if !hostLabel.MatchString(o.Bucket) && !r.hasProblem("OBJECT_STORE_BUCKET") {
		r.problem("OBJECT_STORE_BUCKET", "must be lower-case letters, digits and dashes when OBJECT_STORE_ADDRESSING is virtual")
	}
	if u, err := url.Parse(o.Endpoint); err == nil {
		if _, err := netip.ParseAddr(u.Hostname()); err == nil {
			r.problem("OBJECT_STORE_ADDRESSING", "must be path for an endpoint that is an IP address")
		}
	}
}

func (s *settings) checkSeparation(r *reader) {
	v := &s.Separation
	v.allowHost(r, "SEPARATION_PROVIDER_BASE_URL", v.BaseURL)
	v.allowHost(r, "SEPARATION_PROVIDER_STORAGE_BASE_URL", v.StorageBaseURL)
	if r.given("SEPARATION_URL_TTL_SEC") == "" {
		// Links must not outlive the stems, so a short SEPARATION_ABANDON_TTL_MS shortens the default.
		v.URLTTL = min(v.URLTTL, v.AbandonTTL.Truncate(time.Second))
	}
	if v.AbandonTTL > 0 && v.URLTTL > v.AbandonTTL {
		r.problem("SEPARATION_URL_TTL_SEC", "must not be longer than SEPARATION_ABANDON_TTL_MS")
	}
}

// checkRoles refuses to split the roles if the processes could not share database and files.
func (s *settings) checkRoles(r *reader) {
	if s.Roles == AllRoles || s.Roles == (Roles{}) {
		return
	}
	if strings.HasPrefix(s.Database.URL, "sqlite:") {
		r.problem("ROLES", "must be all of api, render, separation and sweep on SQLite, which processes cannot share")
	} else if s.ObjectStore.Bucket == "" {
		r.problem("ROLES",
			"must be all of api, render, separation and sweep without OBJECT_STORE_BUCKET, because other processes could not see the files")
	}
	if !s.Roles.API && s.HTTP.OpsAddr == "" {
		r.problem("OPS_ADDR", "is required if ROLES leaves out api: without it there is no health check")
	}
}

// allowHost allows downloads of stems from the host of an address.
func (v *Separation) allowHost(r *reader, key, address string) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return // parsing the key reported the problem
	}
	if isPlain(u) {
		r.warn("%s is plain http to another machine: the network can read what is sent", key)
	}
	if host := strings.ToLower(u.Hostname()); !slices.Contains(v.AllowedHosts, host) {
		v.AllowedHosts = append(v.AllowedHosts, host)
	}
}

// isPlain reports whether an address is plain http to a machine other than this one.
func isPlain(u *url.URL) bool {
	host := u.Hostname()
	addr, err := netip.ParseAddr(host)
	loopback := err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
	return u.Scheme == "http" && !loopback
}

func (s *settings) checkPlatformA(r *reader) {
	p := &s.IAP.PlatformA
	if (p.Notifications.Audience == "") != (p.Notifications.Sender == "") {
		r.problem("IAP_PLATFORM_A_NOTIFICATION_AUDIENCE", "must be set together with IAP_PLATFORM_A_NOTIFICATION_SENDER")
	}
	p.Notifications.KeysURL = p.BaseURL + "/oauth2/v3/certs"
	if p.BaseURL == platformAURL {
		p.Notifications.KeysURL = "https://www.googleapis.com/oauth2/v3/certs"
	}
	if p.Configured = r.complete("platform_a", ForPlatformA); p.Configured {
		r.serviceAccount("IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON", p.ServiceAccountJSON)
	}
}

// The public addresses of the stores; platform_b has two.
const (
	platformAURL           = "https://androidpublisher.googleapis.com"
	platformBProductionURL = "https://api.storekit.apple.com"
	platformBSandboxURL    = "https://api.storekit-sandbox.apple.com"
)

func (s *settings) checkPlatformB(r *reader) {
	p := &s.IAP.PlatformB
	store := platformBProductionURL
	if p.Sandbox {
		store = platformBSandboxURL
	}
	p.BaseURL = cmp.Or(p.BaseURL, store)
	if p.Configured = r.complete("platform_b", ForPlatformB); p.Configured {
		r.checkP256("IAP_PLATFORM_B_PRIVATE_KEY", p.PrivateKey)
		p.RootCAs = r.certificates("IAP_PLATFORM_B_ROOT_CA_FILE", s.rootCAFile)
		if p.AllowTest && p.Sandbox {
			r.warn("IAP_PLATFORM_B_ALLOW_TEST has no effect: with IAP_PLATFORM_B_ENV=sandbox every purchase is one of the sandbox")
		}
	}
}

func (s *settings) checkWebhook(r *reader) {
	switch {
	case s.Webhook.URL != "":
		r.needSecret("WEBHOOK_SECRET", s.Webhook.Secret, "WEBHOOK_URL is set")
	case r.given("WEBHOOK_URL") == "" && !s.Webhook.Secret.IsBlank():
		r.warn("the web hook is off: WEBHOOK_URL is blank although WEBHOOK_SECRET is set")
	}
}

// needSecret reports a secret that is blank although a condition requires it.
func (r *reader) needSecret(key string, value Secret, condition string) {
	if value.IsBlank() && !r.hasProblem(key) {
		r.problem(key, "is required when "+condition)
	}
}

func (s *settings) checkPush(r *reader) {
	if a := s.Push.PlatformA.ServiceAccountJSON; !a.IsBlank() {
		if account, ok := r.serviceAccount("PUSH_PLATFORM_A_SERVICE_ACCOUNT", a); ok && account.ProjectID == "" {
			r.problem("PUSH_PLATFORM_A_SERVICE_ACCOUNT", "must have a project_id")
		}
	}
	b := &s.Push.PlatformB
	if b.Configured = r.complete("push to platform_b", ForPushB); !b.Configured {
		return
	}
	r.checkP256("PUSH_PLATFORM_B_KEY", b.Key)
	if u, err := url.Parse(b.BaseURL); err == nil && isPlain(u) {
		r.problem("PUSH_PLATFORM_B_BASE_URL", "must be an https address, or http on loopback")
	}
}

// complete reports whether all keys of a feature are set, and warns if only some are.
func (r *reader) complete(feature string, needs Requirement) bool {
	blank, all := r.missing(needs)
	if len(blank) > 0 && len(blank) < all {
		r.warn("%s is not configured: it lacks %s", feature, strings.Join(blank, ", "))
	}
	return len(blank) == 0
}

// maxCertificatesBytes is far more than a file of root certificates needs.
const maxCertificatesBytes = 1 << 20

// certificates reads the PEM file of certificates that a key names, or nothing for a blank path.
func (r *reader) certificates(key, path string) []byte {
	if path == "" {
		return nil
	}
	text, err := readFile(path, maxCertificatesBytes)
	certificates, parseErr := credentials.ParseCertificates(text)
	switch {
	case err != nil:
		r.problem(key, unreadable)
	case len(text) > maxCertificatesBytes, parseErr != nil, len(certificates) == 0:
		r.problem(key, "must name a file of PEM certificates")
	}
	return text
}

func (r *reader) checkP256(key string, pem Secret) {
	if _, err := credentials.ParseP256([]byte(pem.Reveal())); err != nil {
		r.problem(key, err.Error())
	}
}

func (r *reader) serviceAccount(key string, json Secret) (account credentials.ServiceAccount, ok bool) {
	account, err := credentials.ParseServiceAccount([]byte(json.Reveal()))
	if err != nil {
		r.problem(key, err.Error())
	}
	return account, err == nil
}
