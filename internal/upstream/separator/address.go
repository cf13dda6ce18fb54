package separator

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

// hostSet holds "host" and "host:port", lower case. A bare host allows every port.
type hostSet map[string]bool

func (s hostSet) has(host, port string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return s[host] || s[net.JoinHostPort(host, port)]
}

// hostName returns u's host in the form of a hostSet key.
func hostName(u *url.URL) string {
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

func port(u *url.URL) string {
	if u.Scheme == "http" {
		return cmp.Or(u.Port(), "80")
	}
	return cmp.Or(u.Port(), "443")
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && hostName(a) == hostName(b) && port(a) == port(b)
}

// checkURL checks a URL from the provider: it needs a host, no credentials, and https. Plain http would expose the
// audio to the network, so it is limited to loopback and to hosts that the operator configured with http.
func (c *Client) checkURL(u *url.URL) error {
	switch {
	case u.Opaque != "" || u.Hostname() == "":
		return fmt.Errorf("%w: no host", errForbidden)
	case u.User != nil:
		return fmt.Errorf("%w: credentials in the URL", errForbidden)
	case u.Scheme == "https", u.Scheme == "http" && (loopbackName(u.Hostname()) || c.plain[hostName(u)]):
		return nil
	}
	return fmt.Errorf("%w: not https", errForbidden)
}

func loopbackName(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// resolveLink turns a download link of the provider into a URL, and reports whether to send the API key: only paths
// under the API base get it.
func (c *Client) resolveLink(link string) (u *url.URL, withKey bool, err error) {
	u, err = url.Parse(link)
	if err != nil {
		return nil, false, fmt.Errorf("%w: link is not a URL", errForbidden)
	}
	if u.Scheme != "" || u.Host != "" || u.Opaque != "" {
		return u, false, c.checkLink(u)
	}
	if !strings.HasPrefix(link, "/") {
		link = "/" + link
	}
	base := c.base
	if strings.HasPrefix(link, "/perso-storage/") {
		base = c.storage
	}
	// Text after a base without query or trailing slash can only be path and query, so it cannot name another host.
	if u, err = url.Parse(base.String() + link); err != nil || u.Host != base.Host {
		return nil, false, fmt.Errorf("%w: link is not a path", errForbidden)
	}
	return u, base == c.base, nil
}

// checkLink is checkURL for links and redirects, whose host must be allowed.
func (c *Client) checkLink(u *url.URL) error {
	if err := c.checkURL(u); err != nil {
		return err
	}
	if !c.hosts.has(u.Hostname(), port(u)) {
		return fmt.Errorf("%w: host %.100q", errForbidden, u.Hostname())
	}
	return nil
}

// refusePrivate is a net.Dialer's Control. It runs after the name is resolved, so it catches a name that becomes
// private between check and use.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !public(ap.Addr()) {
		return fmt.Errorf("%w: not a public address", errForbidden)
	}
	return nil
}

// notPublic lists what IANA excludes from the public internet, beyond netip's own predicates. IPv6 outside 2000::/3 is
// refused entirely (loopback, mapped, NAT64, unique-local, link-local, multicast), so the list has only the exceptions
// within it.
var notPublic = func() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
		"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

var globalIPv6 = netip.MustParsePrefix("2000::/3")

// public reports whether a is an address on the public internet.
func public(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() && (a.Is4() || globalIPv6.Contains(a)) &&
		!slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}
