// Validates exchanges against openapi.yaml, and checks what the document cannot say: that an error names its field, and
// that 204, 404 and 405 have the right bodies.

package apitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// contract is the OpenAPI document that every exchange must conform to.
type contract struct {
	*openapi3.T
	routers.Router
}

var loadContract = sync.OnceValues(func() (c contract, err error) {
	root, err := moduleRoot()
	if err != nil {
		return c, err
	}
	if c.T, err = openapi3.NewLoader().LoadFromFile(filepath.Join(root, "internal", "api", "httpapi", "openapi.yaml")); err != nil {
		return c, fmt.Errorf("load openapi.yaml: %w", err)
	}
	// The library has no decoder for the page that shows the API description.
	openapi3filter.RegisterBodyDecoder("text/html", openapi3filter.PlainBodyDecoder)
	c.Router, err = gorillamux.NewRouter(c.T)
	return c, err
})

// exchange is one request and its response, with both bodies.
type exchange struct {
	req     *http.Request // as sent, or an equivalent with a short body
	valid   bool          // the request must conform
	status  int
	header  http.Header
	resBody []byte
}

// CheckAnswer validates an answer of the API, for tests without a [Server].
func CheckAnswer(r *http.Request, status int, header http.Header, body []byte) error {
	return exchange{req: r, status: status, header: header, resBody: body}.check()
}

// check validates the response, and the request if it is marked valid.
func (x exchange) check() error {
	document, err := loadContract()
	if err != nil {
		return err
	}
	if x.req.Method == http.MethodOptions {
		return nil // a CORS preflight, which the document does not describe
	}
	route, params, err := document.FindRoute(x.req)
	switch {
	case errors.Is(err, routers.ErrMethodNotAllowed):
		return x.checkMethodNotAllowed(document)
	case err != nil:
		return x.checkUnknownPath(document)
	}
	input := &openapi3filter.RequestValidationInput{
		Request:    x.req,
		PathParams: params,
		Route:      route,
		Options: &openapi3filter.Options{
			AuthenticationFunc:    authenticated,
			IncludeResponseStatus: true,
			SkipSettingDefaults:   true,
		},
	}
	if x.valid {
		if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil {
			return fmt.Errorf("the request breaks openapi.yaml: %w", err)
		}
	}
	if x.req.Method == http.MethodHead {
		if route.Operation.Responses.Status(x.status) == nil {
			return fmt.Errorf("openapi.yaml has no status %d for %s %s", x.status, x.req.Method, route.Path)
		}
		if len(x.resBody) > 0 {
			return fmt.Errorf("the answer to HEAD has a body of %d bytes", len(x.resBody))
		}
		return nil
	}
	if err := errors.Join(x.checkNoContent(), x.checkField()); err != nil {
		return err
	}
	same := x.answer(route)
	if _, checked := conforming.Load(same); checked {
		return nil
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 x.status,
		Header:                 x.header,
		Body:                   io.NopCloser(bytes.NewReader(x.resBody)),
		Options:                input.Options,
	})
	if err != nil {
		return fmt.Errorf("the answer breaks openapi.yaml: %w", err)
	}
	conforming.Store(same, true)
	return nil
}

// conforming holds the answers that conform. The library compiles the schema for each answer, which took two fifths of
// the processor time of a test's own process, and a test that waits gets the same answer again and again.
var conforming sync.Map // of answer

// answer returns a hash of everything that the validation of a response depends on.
func (x exchange) answer(route *routers.Route) [sha256.Size]byte {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %d %q\n", route.Method, route.Path, x.status, x.header["Content-Type"])
	described := route.Operation.Responses.Status(x.status)
	if described == nil {
		described = route.Operation.Responses.Default()
	}
	if described != nil && described.Value != nil {
		for _, name := range slices.Sorted(maps.Keys(described.Value.Headers)) {
			fmt.Fprintf(sum, "%s %q\n", name, x.header.Values(name))
		}
	}
	sum.Write(x.resBody)
	return [sha256.Size]byte(sum.Sum(nil))
}

// authenticated accepts a request that has the credentials its security scheme requires. The service checks whether
// they are genuine.
func authenticated(_ context.Context, in *openapi3filter.AuthenticationInput) error {
	r := in.RequestValidationInput.Request
	if in.SecurityScheme.Type == "http" {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
			return errors.New("no bearer token")
		}
		return nil
	}
	if r.URL.Query().Get(in.SecurityScheme.Name) == "" {
		return fmt.Errorf("no %s in the query", in.SecurityScheme.Name)
	}
	return nil
}

// aboutNoField are the beginnings of sentences about a rule that concerns no single field.
var aboutNoField = []string{"Idempotency-Key ", "The ", "the ", "an ", "asset not found",
	"User not found", "Job not found", "stem not found", "render job not found", "separation job not found", "mock stem not found",
	"Not found", "Method not allowed", "Internal server error"}

// FieldOf returns the path of the field that an error's sentence is about, or "".
func FieldOf(sentence string) string {
	end := strings.IndexAny(sentence, " :")
	if end < 0 || slices.ContainsFunc(aboutNoField, func(start string) bool { return strings.HasPrefix(sentence, start) }) {
		return "" // a code, or about no field
	}
	return sentence[:end]
}

// checkField checks that an error about a field names it.
func (x exchange) checkField() error {
	var body struct{ Error, Field string }
	if x.status != http.StatusBadRequest && x.status != http.StatusNotFound || json.Unmarshal(x.resBody, &body) != nil {
		return nil
	}
	if want := FieldOf(body.Error); body.Field != want {
		return fmt.Errorf("the error's field is %q, want %q", body.Field, want)
	}
	return nil
}

// checkNoContent checks statuses without a body, which the library does not check.
func (x exchange) checkNoContent() error {
	if (x.status == http.StatusNoContent || x.status == http.StatusNotModified) && len(x.resBody) > 0 {
		return fmt.Errorf("status %d with a body of %d bytes", x.status, len(x.resBody))
	}
	return nil
}

func (x exchange) checkMethodNotAllowed(c contract) error {
	// net/http also answers HEAD on a path that has GET.
	if x.req.Method == http.MethodHead {
		return nil
	}
	if x.status == http.StatusNotFound && optional(x.req.URL.Path) {
		return x.checkErrorBody(c)
	}
	if x.status != http.StatusMethodNotAllowed {
		return fmt.Errorf("status %d for a method that openapi.yaml does not have, want 405", x.status)
	}
	if x.header.Get("Allow") == "" {
		return errors.New("405 without an Allow header")
	}
	return x.checkErrorBody(c)
}

func (x exchange) checkUnknownPath(c contract) error {
	if optional(x.req.URL.Path) {
		return nil
	}
	if x.status != http.StatusNotFound {
		return fmt.Errorf("status %d for a path that openapi.yaml does not have, want 404", x.status)
	}
	return x.checkErrorBody(c)
}

// optional reports whether a path is outside the API: pages that a setting can turn off, and files.
func optional(path string) bool {
	return strings.HasPrefix(path, "/swagger") || strings.HasPrefix(path, "/api/v2/testdata/")
}

// checkErrorBody validates the error body of a response outside the document's paths.
func (x exchange) checkErrorBody(c contract) error {
	if x.req.Method == http.MethodHead {
		return nil
	}
	if media, _, err := mime.ParseMediaType(x.header.Get("Content-Type")); err != nil || media != "application/json" {
		return fmt.Errorf("status %d with Content-Type %q, want application/json", x.status, x.header.Get("Content-Type"))
	}
	var body any
	if err := json.Unmarshal(x.resBody, &body); err != nil {
		return fmt.Errorf("status %d with a body that is not JSON: %w", x.status, err)
	}
	schema := c.Components.Schemas["Error"].Value
	if err := schema.VisitJSON(body, openapi3.EnableJSONSchema2020()); err != nil {
		return fmt.Errorf("status %d without the error body: %w", x.status, err)
	}
	return nil
}
