package bucket

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
)

// Manner is how a store behaves where stores differ.
type Manner struct {
	// Region is the region that signatures must name; R2's is auto, for which it also accepts us-east-1 and "".
	Region string `json:"region,omitempty"`
	// Conditions is how the store treats If-None-Match: known, ignored, or a status and a code to refuse it with, such
	// as "501 NotImplemented".
	Conditions string `json:"conditions,omitempty"`
	// Versioned buckets keep deleted objects. The stand-in only claims to.
	Versioned bool `json:"versioned,omitempty"`
	// Addressing is any, or virtual for a store that refuses the bucket's name in the path.
	Addressing string `json:"addressing,omitempty"`
}

// usual is how R2 behaves.
var usual = Manner{Region: "auto", Conditions: "known", Addressing: "any"}

// SetManner makes the bucket behave like another store. Blank fields get their initial values.
func (b *Bucket) SetManner(m Manner) error {
	if m.Region == "" {
		m.Region = usual.Region
	}
	if m.Conditions == "" {
		m.Conditions = usual.Conditions
	}
	if m.Addressing == "" {
		m.Addressing = usual.Addressing
	}
	if m.Conditions != "known" && m.Conditions != "ignored" && unknownCondition(m.Conditions) == nil {
		return fmt.Errorf("conditions are known, ignored, or a status and a code such as 501 NotImplemented")
	}
	if m.Addressing != "any" && m.Addressing != "virtual" {
		return fmt.Errorf("addressing is any or virtual")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.manner = m
	return nil
}

// unknownCondition parses the answer of a store that does not know conditions. It returns nil for any other text.
func unknownCondition(answer string) *failure {
	f := &failure{message: "A header you provided implies functionality that is not implemented."}
	if n, _ := fmt.Sscan(answer, &f.status, &f.code); n == 0 || f.status < 300 || f.status > 599 {
		return nil
	}
	return f
}

// refuse refuses a signed request that another store would refuse. named is whether the bucket is in the host name.
func (m Manner) refuse(r *http.Request, s signature, named bool) error {
	if s.region != m.Region && !(m.Region == "auto" && (s.region == "us-east-1" || s.region == "")) {
		return &failure{400, "AuthorizationHeaderMalformed", fmt.Sprintf(
			"The authorization header is malformed; the region '%s' is wrong; expecting '%s'", s.region, m.Region)}
	}
	if m.Addressing == "virtual" && !named {
		return &failure{403, "SecondLevelDomainForbidden",
			"The bucket you are attempting to access must be addressed using the virtual host style."}
	}
	if f := unknownCondition(m.Conditions); f != nil && r.Header.Get("If-None-Match") != "" && !strings.HasPrefix(r.Method, "G") {
		return f
	}
	return nil
}

// getVersioning answers whether the bucket keeps versions.
func (b *Bucket) getVersioning(w http.ResponseWriter, _ *http.Request, _ string, _ signature) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	status := ""
	if b.manner.Versioned {
		status = "Enabled"
	}
	answer(w, http.StatusOK, struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ VersioningConfiguration"`
		Status  string   `xml:",omitempty"`
	}{Status: status})
	return nil
}
