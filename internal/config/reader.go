package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Problem is one broken rule of the configuration. The error of Load joins one
// for each. It never holds a value: a secret may have landed in any key.
type Problem struct {
	Key  string // the variable, or the file that could not be read
	Rule string // what would be right, as the rest of a sentence
}

// Error returns one line, "KEY: rule".
func (p *Problem) Error() string { return p.Key + ": " + p.Rule }

// reader takes values out of the environment, and collects problems and
// warnings instead of stopping at the first.
type reader struct {
	lookup   func(string) (string, bool)
	keys     map[string]Key
	problems []*Problem
	warnings []string
}

func newReader(lookup func(string) (string, bool)) *reader {
	r := &reader{lookup: lookup, keys: make(map[string]Key, len(Keys))}
	for _, k := range Keys {
		r.keys[k.Name] = k
	}
	return r
}

func (r *reader) problem(key, rule string, args ...any) {
	r.problems = append(r.problems, &Problem{Key: key, Rule: fmt.Sprintf(rule, args...)})
}

func (r *reader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// failed reports whether the key already has a problem, so that a rule across
// keys does not complain about a value that was never understood.
func (r *reader) failed(key string) bool {
	return slices.ContainsFunc(r.problems, func(p *Problem) bool { return p.Key == key })
}

func (r *reader) err() error {
	errs := make([]error, len(r.problems))
	for i, p := range r.problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// text returns the value without surrounding white space, or the default where
// it is blank. A blank required key is a problem.
func (r *reader) text(key string) string {
	k, documented := r.keys[key]
	if !documented {
		r.problem(key, "is read but not documented")
		return ""
	}
	value, _ := r.lookup(key)
	if value = strings.TrimSpace(value); value != "" {
		return value
	}
	if k.Required == Always && !r.failed(key) {
		r.problem(key, "is required")
	}
	if k.Computed {
		return ""
	}
	return k.Default
}

func (r *reader) secret(key string) Secret {
	if value := r.text(key); value != "" {
		return NewSecret(value)
	}
	return Secret{}
}

// minSecretLength is the fewest characters of a key that signs something.
const minSecretLength = 32

func (r *reader) signingSecret(key string) Secret {
	s := r.secret(key)
	if !s.IsBlank() && utf8.RuneCountInString(s.Reveal()) < minSecretLength {
		r.problem(key, "must have at least %d characters", minSecretLength)
	}
	return s
}

// password returns a required value exactly as it is given: white space at its
// ends may be part of it.
func (r *reader) password(key string) Secret {
	if r.text(key) == "" {
		return Secret{}
	}
	value, _ := r.lookup(key)
	return NewSecret(value)
}

// number returns a whole number within the key's documented range. A blank
// value without a fixed default is 0.
func (r *reader) number(key string) int64 {
	value := r.text(key)
	if value == "" {
		return 0
	}
	k := r.keys[key]
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < k.Min || n > k.Max {
		r.problem(key, "must be a whole number, %s", k.Range())
		return 0
	}
	return n
}

func (r *reader) duration(key string, unit time.Duration) time.Duration {
	n := r.number(key)
	if n > math.MaxInt64/int64(unit) {
		r.problem(key, "is too large")
		return 0
	}
	return time.Duration(n) * unit
}

// megabytes reads a number of MiB and returns bytes.
func (r *reader) megabytes(key string) int64 {
	n := r.number(key)
	if n > math.MaxInt64>>20 {
		r.problem(key, "is too large")
		return 0
	}
	return n << 20
}

// fraction returns a number from 0 to 1.
func (r *reader) fraction(key string) float64 {
	f, err := strconv.ParseFloat(r.text(key), 64)
	if err != nil || !(f >= 0 && f <= 1) { // written so that NaN fails too
		r.problem(key, "must be a number from 0.0 to 1.0")
		return 0
	}
	return f
}

// flag is on for the text true alone, in any case.
func (r *reader) flag(key string) bool {
	value := strings.ToLower(r.text(key))
	if value != "true" && value != "false" {
		r.warn("%s is neither true nor false and stays off", key)
	}
	return value == "true"
}

// oneOf returns the value in lower case when it is one of the choices.
func (r *reader) oneOf(key string, choices ...string) string {
	value := strings.ToLower(r.text(key))
	if !slices.Contains(choices, value) {
		r.problem(key, "must be one of %s", strings.Join(choices, ", "))
		return ""
	}
	return value
}

func (r *reader) logLevel(key string) slog.Level {
	switch r.oneOf(key, "debug", "info", "warn", "error") {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

// list splits at commas and drops blank entries.
func (r *reader) list(key string) []string { return splitList(r.text(key)) }

func splitList(value string) []string {
	var entries []string
	for entry := range strings.SplitSeq(value, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			entries = append(entries, entry)
		}
	}
	return entries
}

// httpURL returns an absolute http or https address without trailing slashes,
// or "" when the key is blank and has no fixed default.
func (r *reader) httpURL(key string) string {
	value := r.text(key)
	if value == "" {
		return ""
	}
	if !isHTTPURL(value) {
		r.problem(key, "must be an http or https address, without user, query or fragment")
		return ""
	}
	return strings.TrimRight(value, "/")
}

func isHTTPURL(value string) bool {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	if u.Hostname() == "" || strings.HasSuffix(u.Host, ":") || u.User != nil {
		return false
	}
	if p := u.Port(); p != "" && !isPort(p, 1) {
		return false
	}
	return !strings.ContainsAny(value, "?#")
}

func isPort(text string, lowest int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= lowest && n <= 65535
}

// origin is the scheme://host[:port] of a page. Native shells use schemes of
// their own, such as capacitor://localhost.
var origin = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#@\s]+$`)

// origins returns nil when any origin is allowed.
func (r *reader) origins(key string) []string {
	entries := r.list(key)
	for i, entry := range entries {
		if entry == "*" {
			return nil
		}
		// A browser never sends the slash; with it the entry would match nothing.
		entries[i] = strings.TrimSuffix(entry, "/")
		if !origin.MatchString(entries[i]) {
			r.problem(key, "must list origins such as https://app.example.com")
			return nil
		}
	}
	return entries
}

func (r *reader) networks(key string) []netip.Prefix {
	value := r.text(key)
	if strings.EqualFold(value, "none") {
		return nil
	}
	var networks []netip.Prefix
	for _, entry := range splitList(value) {
		network, err := netip.ParsePrefix(entry)
		if addr, addrErr := netip.ParseAddr(entry); addrErr == nil && addr.Zone() == "" {
			network, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			r.problem(key, "must list CIDR ranges such as 10.0.0.0/8, or be none")
			return nil
		}
		networks = append(networks, network.Masked())
	}
	if len(networks) == 0 {
		r.problem(key, "must list CIDR ranges such as 10.0.0.0/8, or be none")
	}
	return networks
}

var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// hosts returns host names and addresses in lower case, each alone or with a
// port. IPv6 has brackets only before a port.
func (r *reader) hosts(key string) []string {
	entries := r.list(key)
	for i, entry := range entries {
		host, port, ok := splitHost(strings.ToLower(entry))
		if !ok {
			r.problem(key, "must list host names, alone or as host:port, without scheme or path")
			return nil
		}
		entries[i] = host
		if port != "" {
			entries[i] = net.JoinHostPort(host, port)
		}
	}
	return entries
}

// splitHost takes "host", "host:port", "::1", "[::1]" or "[::1]:port" apart.
func splitHost(entry string) (host, port string, ok bool) {
	host = entry
	if inside, found := strings.CutPrefix(entry, "["); found && strings.HasSuffix(inside, "]") {
		host = strings.TrimSuffix(inside, "]")
	} else if h, p, err := net.SplitHostPort(entry); err == nil {
		if host, port = h, p; !isPort(port, 1) {
			return "", "", false
		}
	}
	_, err := netip.ParseAddr(host)
	return host, port, err == nil || hostName.MatchString(host)
}

// isLoopback reports whether a host is this machine, as it is written.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// address returns an IP address, the zero value when blank.
func (r *reader) address(key string) netip.Addr {
	value := r.text(key)
	if value == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(value)
	if err != nil {
		r.problem(key, "must be an IP address")
	}
	return a
}

// listenAddress returns host:port, or "" when blank. Port 0 lets the system choose.
func (r *reader) listenAddress(key string) string {
	value := r.text(key)
	if value == "" {
		return ""
	}
	if _, port, err := net.SplitHostPort(value); err != nil || !isPort(port, 0) {
		r.problem(key, "must be host:port or :port")
		return ""
	}
	return value
}

// dsn checks the shape https://<public key>@<host>/<project>.
func (r *reader) dsn(key string) Secret {
	s := r.secret(key)
	if s.IsBlank() {
		return s
	}
	u, err := url.Parse(s.Reveal())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User == nil || u.User.Username() == "" || strings.Trim(u.Path, "/") == "" {
		r.problem(key, "must have the form https://<public key>@<host>/<project>")
	}
	return s
}

const maxProductCredits = 1000000

func (r *reader) products(key string) map[string]int64 {
	products := map[string]int64{}
	for _, entry := range r.list(key) {
		id, amount, _ := strings.Cut(entry, "=")
		id = strings.TrimSpace(id)
		credits, err := strconv.ParseInt(strings.TrimSpace(amount), 10, 64)
		if id == "" || err != nil || credits < 1 || credits > maxProductCredits {
			r.problem(key, "must list productId=credits, with 1 to %d credits each", maxProductCredits)
			return nil
		}
		if _, twice := products[id]; twice {
			r.problem(key, "must name each product once")
			return nil
		}
		products[id] = credits
	}
	if len(products) == 0 {
		r.problem(key, "must list at least one productId=credits")
	}
	return products
}

// blank returns those of the keys that have no value.
func (r *reader) blank(keys ...string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return r.text(key) != "" })
}

// warnPartial warns of a feature some but not all of whose keys are set.
func (r *reader) warnPartial(feature string, keys ...string) {
	if blank := r.blank(keys...); len(blank) > 0 && len(blank) < len(keys) {
		r.warn("%s is not configured: it lacks %s", feature, strings.Join(blank, ", "))
	}
}
