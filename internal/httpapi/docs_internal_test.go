package httpapi

import (
	"bytes"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// The JSON document has the same content as the YAML document.
func TestOpenAPIAsJSON(t *testing.T) {
	b, err := openAPIJSON()
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := openapi3.NewLoader().LoadFromData(b)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	var texts [2][]byte
	for i, doc := range []*openapi3.T{asJSON, asYAML} {
		if texts[i], err = doc.MarshalJSON(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("the two documents differ")
	}
}
