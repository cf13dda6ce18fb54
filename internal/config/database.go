package config

import (
	"net/url"
	"slices"
	"strings"
)

// databaseURL converts an address to the form documented at Database.URL, or returns the rule that it breaks. The rule
// never quotes the address, which may contain a password.
func databaseURL(value string) (address, rule string) {
	if rest, ok := strings.CutPrefix(value, "sqlite:"); ok {
		return sqliteURL(rest)
	}
	rest := strings.TrimPrefix(value, "jdbc:")
	if after, ok := strings.CutPrefix(rest, "postgresql://"); ok {
		return postgresURL(after)
	}
	if after, ok := strings.CutPrefix(value, "postgres://"); ok {
		return postgresURL(after)
	}
	return "", "must start with postgres://, postgresql://, jdbc:postgresql:// or sqlite:"
}

func sqliteURL(rest string) (address, rule string) {
	if rest == ":memory:" {
		return "sqlite::memory:", ""
	}
	path, ok := strings.CutPrefix(rest, "//")
	if !ok || path == "" || path == ":memory:" || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) {
		return "", "must be sqlite:///absolute/path.db, sqlite://relative/path.db or sqlite::memory:"
	}
	return "sqlite://" + path, ""
}

var safeSSLModes = []string{"require", "verify-ca", "verify-full"}

// postgresURL takes the text after the scheme. It does not use net/url, which rejects lists of hosts and would
// change the driver's parameters.
func postgresURL(rest string) (address, rule string) {
	if strings.ContainsAny(rest, "# \t\r\n\x00") {
		return "", "must be a PostgreSQL URL with special characters percent-encoded"
	}
	place, query, _ := strings.Cut(rest, "?")
	authority, name, hasName := strings.Cut(place, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:] // DB_USER and DB_PASSWORD replace it
	}
	if _, err := url.PathUnescape(authority); err != nil || strings.ContainsRune(name, '@') {
		return "", "must be a PostgreSQL URL with special characters percent-encoded"
	}

	var kept, sslModes []string
	hostGiven := authority != ""
	for pair := range strings.SplitSeq(query, "&") {
		rawKey, rawValue, _ := strings.Cut(pair, "=")
		key, keyErr := url.PathUnescape(rawKey)
		value, valueErr := url.PathUnescape(rawValue)
		if keyErr != nil || valueErr != nil {
			return "", "must be a PostgreSQL URL with special characters percent-encoded"
		}
		switch key {
		case "", "user", "password":
			continue // likewise; JDBC addresses put them here
		case "sslmode":
			sslModes = append(sslModes, value)
		case "host":
			hostGiven = hostGiven || value != ""
		}
		kept = append(kept, pair)
	}
	switch {
	case !hostGiven:
		return "", "must name a host"
	case len(sslModes) > 1:
		return "", "must set sslmode once"
	case len(sslModes) == 0 || !slices.Contains(safeSSLModes, sslModes[0]):
		return "", "must set sslmode to require, verify-ca or verify-full"
	}
	if hasName {
		name = "/" + name
	}
	return "postgres://" + authority + name + "?" + strings.Join(kept, "&"), ""
}
