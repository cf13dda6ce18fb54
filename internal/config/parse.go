// The parsers of single values, such as addresses, networks, roles and secrets. Each returns the value or the rule that
// the text breaks.

package config

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The functions in this file parse the text of a key, or return the rule that the text breaks.

var regionName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

func region(text string) (string, string) {
	if !regionName.MatchString(text) {
		return "", "must be a region such as eu-central-1: up to 63 letters, digits and dashes"
	}
	return text, ""
}

func anySecret(text string) (Secret, string) { return NewSecret(text), "" }

func signingSecret(text string) (Secret, string) {
	if utf8.RuneCountInString(text) < 32 {
		return Secret{}, "must have at least 32 characters"
	}
	return NewSecret(text), ""
}

func apiKey(text string) (Secret, string) {
	if strings.ContainsFunc(text, func(c rune) bool { return c < 0x21 || c > 0x7e }) {
		return Secret{}, "must be printable ASCII without white space"
	}
	return NewSecret(text), ""
}

// pemText restores a PEM block whose line breaks may be written as \n.
func pemText(text string) (Secret, string) {
	return NewSecret(strings.ReplaceAll(text, `\n`, "\n")), ""
}

// dsn checks the form https://<public key>@<host>/<project>.
func dsn(text string) (Secret, string) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User == nil || u.User.Username() == "" || strings.Trim(u.Path, "/") == "" {
		return Secret{}, "must have the form https://<public key>@<host>/<project>"
	}
	return NewSecret(text), ""
}

var slug = regexp.MustCompile(`^[A-Za-z0-9_-]{6,64}$`)

func adminSlug(text string) (string, string) {
	switch {
	case !slug.MatchString(text):
		return "", "must be 6 to 64 letters, digits, dashes and underscores"
	case text == "swagger" || text == "healthz":
		return "", "must not be the name of another path of the service"
	}
	return text, ""
}

func fraction(text string) (float64, string) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f <= 1) { // written so that NaN fails too
		return 0, "must be a number from 0.0 to 1.0"
	}
	return f, ""
}

// splitList splits at commas and drops blank entries.
func splitList(text string) []string {
	var entries []string
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			entries = append(entries, entry)
		}
	}
	return entries
}

func list(text string) ([]string, string) { return splitList(text), "" }

func clientIDs(text string) ([]string, string) {
	ids := splitList(text)
	if len(ids) == 0 {
		return nil, "must list at least one client id"
	}
	return ids, ""
}

// httpURL returns an absolute http or https address without trailing slashes.
func httpURL(text string) (string, string) {
	if !isHTTPURL(text) {
		return "", "must be an http or https address, without user, query or fragment"
	}
	return strings.TrimRight(text, "/"), ""
}

// webhookURL checks the operator's address, which may have a query.
func webhookURL(text string) (string, string) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Fragment != "" || !isHTTPURL(u.Scheme+"://"+u.Host) || isPlain(u) {
		return "", "must be an https address, or http on loopback, without user or fragment"
	}
	return text, ""
}

func webhookSecret(text string) (Secret, string) {
	encoded, found := strings.CutPrefix(text, "whsec_")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !found || err != nil || len(raw) < 24 || len(raw) > 64 {
		return Secret{}, "must be whsec_ and 24 to 64 bytes in base64"
	}
	return NewSecret(text), ""
}

func isHTTPURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	if u.Hostname() == "" || strings.HasSuffix(u.Host, ":") || u.User != nil {
		return false
	}
	if p := u.Port(); p != "" && !isPort(p, 1) {
		return false
	}
	return !strings.ContainsAny(text, "?#")
}

func isPort(text string, lowest int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= lowest && n <= 65535
}

// origin is the scheme://host[:port] of a page. Native shells use schemes of their own, such as capacitor://localhost.
var origin = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#@\s]+$`)

// origins returns nil when any origin is allowed.
func origins(text string) ([]string, string) {
	const wrong = "must list origins such as https://app.example.com"
	entries := splitList(text)
	if len(entries) == 0 {
		return nil, wrong // a list of only commas must not allow every page
	}
	for i, entry := range entries {
		if entry == "*" {
			return nil, ""
		}
		// A browser never sends the slash, so the entry would never match.
		entries[i] = strings.TrimSuffix(entry, "/")
		if !origin.MatchString(entries[i]) {
			return nil, wrong
		}
	}
	return entries, ""
}

func networks(text string) (networks []netip.Prefix, rule string) {
	if strings.EqualFold(text, "none") {
		return nil, ""
	}
	const wrong = "must list CIDR ranges such as 10.0.0.0/8, or be none"
	for _, entry := range splitList(text) {
		network, err := netip.ParsePrefix(entry)
		if addr, addrErr := netip.ParseAddr(entry); addrErr == nil && addr.Zone() == "" {
			network, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return nil, wrong
		}
		networks = append(networks, network.Masked())
	}
	if len(networks) == 0 {
		return nil, wrong
	}
	return networks, ""
}

var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// hosts returns host names and addresses in lower case, each alone or with a port. IPv6 has brackets only before a
// port.
func hosts(text string) ([]string, string) {
	entries := splitList(text)
	for i, entry := range entries {
		host, port, ok := splitHost(strings.ToLower(entry))
		if !ok {
			return nil, "must list host names, alone or as host:port, without scheme or path"
		}
		entries[i] = host
		if port != "" {
			entries[i] = net.JoinHostPort(host, port)
		}
	}
	return entries, ""
}

// splitHost splits "host", "host:port", "::1", "[::1]" or "[::1]:port".
func splitHost(entry string) (host, port string, ok bool) {
	host = entry
	if inside, found := strings.CutPrefix(entry, "["); found && strings.HasSuffix(inside, "]") {
		host = strings.TrimSuffix(inside, "]")
	} else if h, p, err := net.SplitHostPort(entry); err == nil {
		if host, port = h, p; !isPort(port, 1) {
			return "", "", false
		}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String(), port, true
	}
	return host, port, hostName.MatchString(host)
}

var roleNames = []string{"api", "render", "separation", "sweep"}

// switches returns a switch for each of roleNames.
func (r *Roles) switches() []*bool { return []*bool{&r.API, &r.Render, &r.Separation, &r.Sweep} }

// String lists the roles in the format of ROLES.
func (r Roles) String() string {
	var on []string
	for i, role := range r.switches() {
		if *role {
			on = append(on, roleNames[i])
		}
	}
	return strings.Join(on, ",")
}

func roles(text string) (r Roles, rule string) {
	for _, entry := range splitList(text) {
		i := slices.Index(roleNames, strings.ToLower(entry))
		if i < 0 {
			r = Roles{}
			break
		}
		*r.switches()[i] = true
	}
	if r == (Roles{}) {
		return r, "must list some of api, render, separation and sweep"
	}
	return r, ""
}

func ipAddress(text string) (string, string) {
	if _, err := netip.ParseAddr(text); err != nil {
		return "", "must be an IP address"
	}
	return text, ""
}

// listenAddress checks host:port. Port 0 lets the system choose.
func listenAddress(text string) (string, string) {
	if _, port, err := net.SplitHostPort(text); err != nil || !isPort(port, 0) {
		return "", "must be host:port or :port"
	}
	return text, ""
}

const maxProductCredits = 1000000

func products(text string) (map[string]int64, string) {
	products := map[string]int64{}
	for _, entry := range splitList(text) {
		id, amount, _ := strings.Cut(entry, "=")
		id = strings.TrimSpace(id)
		credits, err := strconv.ParseInt(strings.TrimSpace(amount), 10, 64)
		if id == "" || err != nil || credits < 1 || credits > maxProductCredits {
			return nil, fmt.Sprintf("must list productId=credits, with 1 to %d credits each", maxProductCredits)
		}
		if _, twice := products[id]; twice {
			return nil, "must name each product once"
		}
		products[id] = credits
	}
	if len(products) == 0 {
		return nil, "must list at least one productId=credits"
	}
	return products, ""
}
