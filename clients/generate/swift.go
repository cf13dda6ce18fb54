package main

import "strings"

var swiftReserved = []string{"as", "case", "class", "default", "enum", "extension", "func", "import", "in",
	"internal", "is", "let", "operator", "protocol", "public", "repeat", "return",
	"self", "static", "struct", "switch", "where", "while", "var"}

func swiftName(name string) string { return member(name, swiftReserved) }

func swiftType(v value) string {
	switch v.kind {
	case whole:
		return "Int"
	case decimal:
		return "Double"
	case flag:
		return "Bool"
	case list:
		return "[" + swiftType(*v.of) + "]"
	case object:
		return modelName(v.model)
	}
	return "String"
}

// swift returns the models as Codable structs.
func (a *api) swift() string {
	var p page
	p.line("import Foundation\n")
	for _, w := range a.words {
		p.doc("///", w.doc)
		p.line("/// A newer server may send other values.")
		p.line("public enum %s {", modelName(w.name))
		for _, v := range w.values {
			p.line("    public static let %s = %q", swiftName(constant(v)), v)
		}
		p.line("}\n")
	}
	for _, m := range a.models {
		p.doc("///", m.doc)
		p.line("public struct %s: Codable, Equatable, Sendable {", modelName(m.name))
		var parameters, assignments, keys []string
		renamed := false
		for _, f := range m.fields {
			name, kind, absent := swiftName(f.name), swiftType(f.value), ""
			if f.optional {
				kind, absent = kind+"?", " = nil"
			}
			p.doc("    ///", f.doc)
			p.line("    public var %s: %s", name, kind)
			parameters = append(parameters, name+": "+kind+absent)
			assignments = append(assignments, "        self."+strings.Trim(name, "`")+" = "+name)
			keys = append(keys, name)
			if name != f.name && strings.Trim(name, "`") != f.name {
				renamed = true
				keys[len(keys)-1] = name + " = \"" + f.name + "\""
			}
		}
		if renamed {
			p.line("\n    enum CodingKeys: String, CodingKey {")
			for _, k := range keys {
				p.line("        case %s", k)
			}
			p.line("    }")
		}
		p.line("\n    public init(")
		p.line("        %s", strings.Join(parameters, ",\n        "))
		p.line("    ) {\n%s\n    }\n}\n", strings.Join(assignments, "\n"))
	}
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// swift returns the shared table.
func (c *contract) swift() string {
	var p page
	p.line("/// What an app does after an error.")
	p.line("public enum Next: String, Sendable {")
	for _, n := range c.Next {
		p.doc("    ///", n.Value)
		p.line("    case %s", n.Name)
	}
	p.line("}\n")
	p.line("enum Contract {")
	p.line("    static let next: [String: Next] = [")
	for _, pair := range sortedPairs(c.Codes, "        %q: .%s,") {
		p.line("%s", pair)
	}
	p.line("    ]")
	p.line("    static let lasting: Set<String> = [%s]", quoted(c.Lasting))
	p.line("    static let repeatable: Set<String> = [")
	for _, path := range c.Repeatable {
		p.line("        %q,", path)
	}
	p.line("    ]")
	p.line("    static let finalRefusals: Set<String> = [%s]", quoted(c.FinalRefusals))
	p.line("    static let types: [String: String] = [")
	for _, pair := range sortedPairs(c.Types, "        %q: %q,") {
		p.line("%s", pair)
	}
	p.line("    ]")
	for _, n := range c.Numbers {
		p.line("    /// %s", upper(n.Comment))
		p.line("    static let %s = %s", n.Name, n.Value)
	}
	p.line("}")
	return p.String()
}
