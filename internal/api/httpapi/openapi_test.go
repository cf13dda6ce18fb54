// Compares openapi.yaml with the service: endpoints, security, error bodies, examples and the reasons of failed jobs.

package httpapi_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// loadOpenAPI reads the document from disk, as its editors see it, and fails the test unless it is a valid document of
// OpenAPI 3.1.
func loadOpenAPI(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatalf("load openapi.yaml: %v", err)
	}
	if err := doc.Validate(context.Background(), openapi3.EnableSchemaPatternValidation()); err != nil {
		t.Fatalf("validate openapi.yaml: %v", err)
	}
	if !doc.IsOpenAPI31OrLater() {
		t.Fatalf("openapi = %q, want 3.1", doc.OpenAPI)
	}
	return doc
}

// The document describes exactly the mounted endpoints. HEAD comes with every GET, and /swagger/ serves the description
// itself.
func TestOpenAPIDescribesEveryEndpointAndNoOther(t *testing.T) {
	var described, mounted []string
	for path, item := range loadOpenAPI(t).Paths.Map() {
		for method := range item.Operations() {
			if method != http.MethodHead {
				described = append(described, method+" "+path)
			}
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range regexp.MustCompile(`\bs\.handle\("([A-Z]+ /[^"]+)",`).FindAllStringSubmatch(string(source), -1) {
			if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(route[1], "GET /swagger/") {
				mounted = append(mounted, route[1])
			}
		}
	}
	slices.Sort(described)
	if slices.Sort(mounted); !slices.Equal(described, mounted) || len(mounted) < 40 {
		t.Errorf("described\n%s\nmounted\n%s", strings.Join(described, "\n"), strings.Join(mounted, "\n"))
	}
}

// unauthenticated lists the endpoints that the specification opens to everybody (part 5, rule 10), and the one whose
// body is signed. The stem download and platform_a's pushes have schemes of their own.
var unauthenticated = []string{"/healthz", "/swagger", "/api/v2/auth/provider_", "/api/v2/testdata/", "/api/v2/stores/platform_b/"}

func TestOpenAPISecurityAndErrorsOfEachOperation(t *testing.T) {
	doc := loadOpenAPI(t)
	seen := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		open := slices.ContainsFunc(unauthenticated, func(p string) bool { return strings.HasPrefix(path, p) })
		for method, op := range item.Operations() {
			name := method + " " + path
			if op.OperationID == "" || seen[op.OperationID] {
				t.Errorf("%s: operationId %q is empty or taken", name, op.OperationID)
			}
			seen[op.OperationID] = true
			security := op.Security
			if security == nil {
				security = &doc.Security
			}
			if open != (len(*security) == 0) {
				t.Errorf("%s: security = %v", name, *security)
			}
			if strings.HasPrefix(path, "/api/v2/admin/") && method != http.MethodGet && method != http.MethodHead {
				t.Errorf("%s: the reports change nothing", name)
			}
			checkErrorBodies(t, name, op)
		}
	}
}

// checkErrorBodies fails unless each 4xx and 5xx of op is JSON with the error body of part 7, as for every error of the
// service.
func checkErrorBodies(t *testing.T, name string, op *openapi3.Operation) {
	t.Helper()
	for status, ref := range op.Responses.Map() {
		if status[0] != '4' && status[0] != '5' {
			continue
		}
		media := ref.Value.Content.Get("application/json")
		if media == nil || media.Schema == nil {
			t.Errorf("%s: %s has no JSON body", name, status)
			continue
		}
		bodies := append(openapi3.SchemaRefs{media.Schema}, media.Schema.Value.AllOf...)
		if !slices.ContainsFunc(bodies, func(s *openapi3.SchemaRef) bool { return s.Ref == "#/components/schemas/Error" }) {
			t.Errorf("%s: the body of %s is not an Error", name, status)
		}
	}
}

// The examples of each schema match it, and no schema name is used twice, which breaks generators.
func TestOpenAPISchemasHaveExamples(t *testing.T) {
	doc := loadOpenAPI(t)
	for name, schema := range doc.Components.Schemas {
		if name != "Binary" && len(schema.Value.Examples) == 0 {
			t.Errorf("%s has no example", name)
		}
		for _, example := range schema.Value.Examples {
			if err := schema.Value.VisitJSON(example, openapi3.EnableJSONSchema2020()); err != nil {
				t.Errorf("the example of %s: %v", name, err)
			}
		}
		if doc.Components.Parameters[name] != nil || doc.Components.Responses[name] != nil {
			t.Errorf("%s is a schema and something else", name)
		}
	}
}

// The document lists exactly the reasons that fault declares.
func TestJobErrorCodesAreTheReasons(t *testing.T) {
	source, err := os.ReadFile("../../base/fault/reason.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared, documented []string
	for _, reason := range regexp.MustCompile(`Reason += "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		declared = append(declared, reason[1])
	}
	for _, word := range loadOpenAPI(t).Components.Schemas["JobErrorCode"].Value.Enum {
		documented = append(documented, word.(string))
	}
	if slices.Sort(declared); len(declared) < 13 {
		t.Errorf("only %q are declared", declared)
	}
	if slices.Sort(documented); !slices.Equal(declared, documented) {
		t.Errorf("declared %q\ndocumented %q", declared, documented)
	}
}
