// Package httpapi is the HTTP layer: routes, wire structs, authentication of requests, rate limits, and the mapping
// from failures to statuses.
//
// A handler decodes the request, calls one method of the domain, and encodes the result or returns the error.
// Domain types have no JSON tags. Their wire form is here and in openapi.yaml, which describes every endpoint.
package httpapi

import (
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/cors"

	"cutroom/internal/api/httpserve"
	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/tracing"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/admin"
	"cutroom/internal/domain/analysis"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/credit"
	"cutroom/internal/domain/render"
	"cutroom/internal/domain/separation"
	"cutroom/internal/storage/staging"
	"cutroom/internal/work/events"
	"cutroom/internal/work/job"
	"cutroom/internal/work/quota"
)

// Options configures the API.
type Options struct {
	DB          *db.DB
	Accounts    *account.Service
	Credits     *credit.Ledger
	Separations *separation.Service
	Renders     *render.Service
	Assets      *asset.Service
	Analyses    *analysis.Service
	Quota       *quota.Limits
	Devices     *events.Devices
	Admin       *admin.Reports
	Staging     *staging.Area

	MaxUploadBytes int64 // largest multipart body of a render submit
	MaxAudioBytes  int64 // of a separation upload
	// MaxRenderPixels bounds the work of one render, and RenderOutputTTL is how long its film is kept. The API only
	// reports them to apps.
	MaxRenderPixels int64
	RenderOutputTTL time.Duration

	AllowedOrigins []string // nil allows any
	TrustedProxies []netip.Prefix
	ProxyHops      int

	AdminSlug string // "" = no admin web app
	// AdminClientID is provider_a's client id of the admin web app; "" if admins sign in only with a token from the
	// command line.
	AdminClientID string
	// AdminAuthorizeURL is provider_a's page where admins sign in.
	AdminAuthorizeURL string
	APIDocs           bool
	// TestdataDir contains the folders of the development mock; "" disables it.
	TestdataDir string

	// Tracer begins the span of a request; nil disables tracing.
	Tracer *tracing.Tracer
	// Observe counts a finished request for metrics; pattern is the route.
	Observe func(method, pattern string, status int, seconds float64)
	// Stopping is closed when the service stops, so that waiting requests get their answer. It may be nil.
	Stopping <-chan struct{}
	// Log receives only failures of the service at level Error.
	Log *slog.Logger
}

// Server is the public HTTP API.
type Server struct {
	o   Options
	mux *http.ServeMux
	// paths maps each path to its methods. Methods are not registered with the mux: otherwise GET /separate/v3 would
	// match /separate/{jobId}.
	paths map[string]methods

	outages   fault.Outage
	strangers strangers
	waiters   *httpserve.Shares // of each user, on this replica
	turns     *turns
}

// New returns the handler of the whole public listener.
func New(o Options) http.Handler {
	s := &Server{o: o, mux: http.NewServeMux(), paths: map[string]methods{}, waiters: httpserve.NewShares(maxWaiters), turns: newTurns()}
	s.routes()
	return httpserve.Guard(s.observed(s.withCORS(http.HandlerFunc(s.dispatch))), o.Stopping)
}

func (s *Server) routes() {
	s.handle("GET /healthz", func(w http.ResponseWriter, r *http.Request) error {
		return ok(w, map[string]string{"status": "ok"})
	})

	s.handle("POST /api/v2/auth/provider_a", s.limitedByAddress(limitLogin, s.signIn(account.ProviderA)))
	s.handle("POST /api/v2/auth/provider_b", s.limitedByAddress(limitLogin, s.signIn(account.ProviderB)))
	s.handle("POST /api/v2/auth/refresh", s.signedIn(s.renewSession, limitRenew))
	s.handle("GET /api/v2/auth/account", s.signedIn(s.account))
	s.handle("DELETE /api/v2/auth/account", s.signedIn(s.deleteAccount))
	s.handle("POST /api/v2/auth/sign-out", s.signedIn(s.signOut, limitSignOut))

	s.handle("GET /api/v2/capabilities", s.signedIn(s.capabilities))

	s.handle("PUT /api/v2/devices", s.signedIn(device(s.registerDevice), limitDevices))
	s.handle("DELETE /api/v2/devices", s.signedIn(device(s.unregisterDevice)))

	s.handle("GET /api/v2/credits", s.signedIn(s.balance))
	s.handle("GET /api/v2/credits/cost", s.signedIn(s.cost))
	s.handle("GET /api/v2/credits/products", s.signedIn(s.products))
	s.handle("GET /api/v2/credits/history", s.signedIn(history("entries", s.o.Credits.History, bodyOfEntry)))
	s.handle("POST /api/v2/credits/purchase", s.signedIn(call(s.o.Credits.Purchase)))
	s.handle("POST /api/v2/credits/admin-grant", s.admin(call(s.adminGrant)))
	s.handle("POST /api/v2/stores/platform_a/notifications", s.storeNotification(credit.PlatformA))
	s.handle("POST /api/v2/stores/platform_b/notifications", s.storeNotification(credit.PlatformB))

	s.handle("POST /api/v2/separate", s.signedIn(s.unpaused(job.Separation, keyed(s.separate)), limitSeparate))
	s.handle("POST /api/v2/separate/v3", s.submitter(s.unpaused(job.Separation, s.withBucket(keyed(s.separateV3))), limitSeparate))
	s.handle("GET /api/v2/separate", s.signedIn(history("jobs", s.o.Separations.History, listedSeparation)))
	s.handle("GET /api/v2/separate/{jobId}", s.signedIn(s.separationStatus))
	s.handle("DELETE /api/v2/separate/{jobId}", s.signedIn(deleteJob(s.o.Separations.Delete)))
	s.handle("GET /api/v2/separate/{jobId}/stem/{stemId}", s.stem)
	s.handle("GET /api/v2/separate/{jobId}/stem/{stemId}/peaks", s.peaks)

	s.handle("POST /api/v2/render/inputs", s.submitter(keyed(s.renderInput), limitRender))
	s.handle("POST /api/v2/render", s.submitter(s.unpaused(job.Render, keyed(s.renderMultipart)), limitRender))
	s.handle("POST /api/v2/render/v3", s.submitter(s.unpaused(job.Render, s.withBucket(keyed(s.renderV3))), limitRender))
	s.handle("GET /api/v2/render", s.signedIn(history("jobs", s.o.Renders.History, listedRender)))
	s.handle("DELETE /api/v2/render/{jobId}", s.signedIn(deleteJob(s.o.Renders.Delete)))
	s.handle("GET /api/v2/render/{jobId}/status", s.signedIn(s.renderStatus))
	s.handle("GET /api/v2/render/{jobId}/download", s.signedIn(s.renderDownload))
	s.handle("GET /api/v2/render/{jobId}/poster", s.signedIn(s.renderPoster))

	s.handle("POST /api/v2/assets/upload-url", s.submitter(s.withBucket(call(s.uploadURL)), limitAssets))
	s.handle("POST /api/v2/assets/complete", s.submitter(s.withBucket(call(s.completeUpload)), limitAssets))
	s.handle("GET /api/v2/assets/{name}/storyboard", s.submitter(s.withBucket(s.storyboard), limitAssets))
	s.handle("POST /api/v2/assets/analysis", s.submitter(s.withBucket(s.analyseAsset), limitAssets))
	s.handle("GET /api/v2/assets", s.signedIn(history("assets", s.o.Assets.List, bodyOfAsset)))
	s.handle("GET /api/v2/assets/{name}", s.signedIn(s.downloadAsset))
	s.handle("DELETE /api/v2/assets/{name}", s.signedIn(s.deleteAsset, limitDeleteAsset))

	s.adminRoutes()
	if s.o.APIDocs {
		s.docsRoutes()
	}
	if s.o.TestdataDir != "" {
		s.handle("GET /api/v2/testdata/separation/list", s.testdataList)
		s.handle("GET /api/v2/testdata/separation/{folder}/{stem}", s.testdataStem)
	}
}

// handle mounts an endpoint. GET also serves HEAD.
func (s *Server) handle(pattern string, h handler) {
	method, path, _ := strings.Cut(pattern, " ")
	if s.paths[path] == nil {
		s.paths[path] = methods{}
		s.mux.Handle(path, s.paths[path])
	}
	s.paths[path][method] = s.serve(h)
}

var errNoPath = fault.Sentencef(fault.NotFound, "Not found")

// dispatch routes a request. If no path matches, it answers 404 as JSON; the mux would answer in plain text.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	// Paths must match exactly. The mux would redirect // and .. to the clean path, in HTML for browsers.
	clean := path.Clean(r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") && clean != "/" {
		clean += "/"
	}
	if _, pattern := s.mux.Handler(r); pattern == "" || !storable(r.URL.Path) || clean != r.URL.Path {
		writeError(w, errNoPath)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// methods are the endpoints of one path.
type methods map[string]http.Handler

// ServeHTTP calls the endpoint of the request's method, or answers 405.
func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	h, known := m[method]
	if !known {
		r.Pattern = "" // no route, for the log
		allowed := slices.Collect(maps.Keys(m))
		if m[http.MethodGet] != nil {
			allowed = append(allowed, http.MethodHead)
		}
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		writeJSON(w, http.StatusMethodNotAllowed, errorBody{Error: "Method not allowed"})
		return
	}
	r.Pattern = method + " " + r.Pattern
	// URL.Query silently drops pairs that it cannot parse.
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		writeError(w, errBadRequest.WithDetail("the query cannot be parsed"))
		return
	}
	if prefersStrict(r) {
		w.Header().Set("Preference-Applied", strictHandling)
	}
	h.ServeHTTP(w, r)
}

// storable reports whether a text can be a query parameter: PostgreSQL refuses NUL and invalid UTF-8. No stored
// value contains them.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// withCORS allows browsers of the allowed origins. Access needs a bearer token and never a cookie, so credentials are
// not allowed and any origin is harmless.
func (s *Server) withCORS(next http.Handler) http.Handler {
	return cors.New(cors.Options{
		AllowedOrigins: s.o.AllowedOrigins, // empty allows any
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete},
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{"Content-Disposition", "Content-Range", "Accept-Ranges", "ETag", "Idempotent-Replayed",
			"Preference-Applied", "Retry-After", "X-Request-Id"},
		MaxAge: 600,
	}).Handler(next)
}
