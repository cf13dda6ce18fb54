// The input of the generator: openapi.yaml and contract.yaml are read here, and their schemas become the models, fields
// and sets of known words that every language writes.

package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// apiPath is the API description, relative to the root of the repository.
const apiPath = "internal/api/httpapi/openapi.yaml"

// contract is clients/contract.yaml.
type contract struct {
	Next          ordered           `yaml:"next"`
	Codes         map[string]string `yaml:"codes"`
	Lasting       []string          `yaml:"lasting"`
	Repeatable    []string          `yaml:"repeatable"`
	FinalRefusals []string          `yaml:"finalRefusals"`
	Types         map[string]string `yaml:"types"`
	Numbers       ordered           `yaml:"numbers"`
}

// ordered is a mapping in the order of the file.
type ordered []struct{ Name, Value, Comment string }

func (o *ordered) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		*o = append(*o, struct{ Name, Value, Comment string }{key.Value, value.Value, strings.TrimPrefix(value.LineComment, "# ")})
	}
	return nil
}

// schema is the part of a JSON schema that a model needs.
type schema struct {
	Ref         string            `yaml:"$ref"`
	Type        stringOrList      `yaml:"type"`
	Format      string            `yaml:"format"`
	Description string            `yaml:"description"`
	Enum        []any             `yaml:"enum"`
	Const       any               `yaml:"const"`
	Properties  orderedProperties `yaml:"properties"`
	Required    []string          `yaml:"required"`
	Items       *schema           `yaml:"items"`
	AllOf       []*schema         `yaml:"allOf"`
	AnyOf       []*schema         `yaml:"anyOf"`
	OneOf       []*schema         `yaml:"oneOf"`
}

type stringOrList []string

func (s *stringOrList) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*s = []string{n.Value}
		return nil
	}
	return n.Decode((*[]string)(s))
}

type orderedProperties []property

type property struct {
	name   string
	schema *schema
}

func (p *orderedProperties) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i < len(n.Content); i += 2 {
		var s schema
		if err := n.Content[i+1].Decode(&s); err != nil {
			return err
		}
		*p = append(*p, property{n.Content[i].Value, &s})
	}
	return nil
}

// kind is what a value is in a client's language.
type kind string

const (
	text    kind = "text"
	whole   kind = "whole"
	decimal kind = "decimal"
	flag    kind = "flag"
	list    kind = "list"
	object  kind = "object"
)

// value is the type of a field.
type value struct {
	kind  kind
	model string // of an object
	of    *value // of a list
}

// field is a field of a model. An optional one may be missing or null.
type field struct {
	name, doc string
	value     value
	optional  bool
}

// model is an object of the API.
type model struct {
	name, doc string
	fields    []field
}

// words is a string with a known set of values, to which a later server may add.
type words struct {
	name, doc string
	values    []string
}

// api is what the clients need of the API description.
type api struct {
	schemas map[string]*schema
	models  []model
	words   []words
}

func readAPI(root string) (*api, error) {
	var document struct {
		Components struct {
			Schemas map[string]*schema `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := readYAML(filepath.Join(root, apiPath), &document); err != nil {
		return nil, err
	}
	a := &api{schemas: document.Components.Schemas}
	for _, name := range slices.Sorted(maps.Keys(a.schemas)) {
		s := a.schemas[name]
		if len(s.Enum) > 0 && slices.Contains(s.Type, "string") {
			a.words = append(a.words, words{name, s.Description, texts(s.Enum)})
			continue
		}
		fields, err := a.fields(name, s)
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		if len(fields) > 0 {
			a.models = append(a.models, model{name: name, doc: s.Description, fields: fields})
		}
	}
	slices.SortFunc(a.models, func(x, y model) int { return cmp.Compare(x.name, y.name) })
	return a, nil
}

func readYAML(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// fields merges the properties of a schema with those of its parts. A field is required if every alternative requires
// it, and says more than null in each.
func (a *api) fields(name string, s *schema) ([]field, error) {
	if s.Ref != "" {
		return a.fields(name, a.resolve(s))
	}
	var out []field
	add := func(f field) {
		if i := slices.IndexFunc(out, func(o field) bool { return o.name == f.name }); i >= 0 {
			f.doc, f.optional = cmp.Or(f.doc, out[i].doc), f.optional && out[i].optional
			if f.value.kind == "" {
				f.value = out[i].value
			}
			out[i] = f
			return
		}
		out = append(out, f)
	}
	for _, part := range s.AllOf {
		inner, err := a.fields(name, part)
		if err != nil {
			return nil, err
		}
		for _, f := range inner {
			add(f)
		}
	}
	for _, p := range s.Properties {
		v, nullable, err := a.value(name+upper(p.name), p.schema)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		add(field{name: p.name, doc: p.schema.Description, value: v, optional: nullable || !slices.Contains(s.Required, p.name)})
	}
	if len(s.OneOf) == 0 || slices.ContainsFunc(s.OneOf, func(o *schema) bool { return slices.Equal(o.Type, []string{"null"}) }) {
		return slices.DeleteFunc(out, func(f field) bool { return f.value.kind == "" }), nil
	}
	seen := map[string]int{}
	for _, alternative := range s.OneOf {
		inner, err := a.fields(name, alternative)
		if err != nil {
			return nil, err
		}
		for _, f := range inner {
			if i := slices.IndexFunc(out, func(o field) bool { return o.name == f.name }); i >= 0 {
				out[i].optional = out[i].optional || f.optional
			} else {
				out = append(out, f)
			}
			seen[f.name]++
		}
	}
	for i := range out {
		out[i].optional = out[i].optional || seen[out[i].name] < len(s.OneOf)
	}
	return out, nil
}

// value returns the type of a schema, and whether it may be null. Its kind is "" for null alone.
func (a *api) value(name string, s *schema) (v value, nullable bool, err error) {
	if s.Ref != "" {
		target := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		return a.value(target, a.schemas[target])
	}
	if fields, err := a.fields(name, s); err != nil {
		return v, false, err
	} else if len(fields) > 0 {
		v = value{kind: object, model: name}
		if a.schemas[name] != s {
			a.models = append(a.models, model{name: name, doc: s.Description, fields: fields})
		}
		return v, slices.Contains(s.Type, "null"), nil
	}
	for _, alternatives := range [][]*schema{s.AnyOf, s.OneOf, s.AllOf} {
		if len(alternatives) == 0 {
			continue
		}
		for _, alternative := range alternatives {
			one, null, err := a.value(name, alternative)
			if err != nil {
				return v, false, err
			}
			nullable = nullable || null
			if v.kind == "" {
				v = one
			}
		}
		return v, nullable, nil
	}
	for _, t := range s.Type {
		switch t {
		case "null":
			nullable = true
		case "string":
			v.kind = text
		case "integer":
			v.kind = whole
		case "number":
			v.kind = decimal
		case "boolean":
			v.kind = flag
		case "array":
			of := value{kind: text}
			if s.Items != nil {
				of, _, err = a.value(name+"Item", s.Items)
			}
			v = value{kind: list, of: &of}
		default:
			err = fmt.Errorf("unknown type %q", t)
		}
	}
	switch {
	case err == nil && len(s.Type) == 0 && s.Const != nil:
		v.kind = text
	case err == nil && len(s.Type) == 0:
		nullable = true
	}
	return v, nullable, err
}

func (a *api) resolve(s *schema) *schema {
	for s.Ref != "" {
		s = a.schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	return s
}

func texts(values []any) (out []string) {
	for _, v := range values {
		if s, is := v.(string); is {
			out = append(out, s)
		}
	}
	return out
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
