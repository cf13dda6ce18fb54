package main

import "strings"

// typeScript returns the shared table. The models are generated from the API description by openapi-typescript.
func (c *contract) typeScript() string {
	var p page
	p.line("/**\n * What an app does after an error:")
	var names []string
	for _, n := range c.Next {
		p.doc(" *", "- `"+n.Name+"`: "+n.Value)
		names = append(names, "'"+n.Name+"'")
	}
	p.line(" */")
	p.line("export type Next = %s;\n", strings.Join(names, " | "))
	p.line("export const next: Record<string, Next> = {")
	for _, pair := range sortedPairs(c.Codes, "  %s: '%s',") {
		p.line("%s", pair)
	}
	p.line("};\n")
	p.line("/** Codes of 429 and 503 for which a person should not wait. */")
	p.line("export const lasting = [%s];\n", strings.ReplaceAll(quoted(c.Lasting), `"`, `'`))
	p.line("/** POSTs that are safe to repeat without an Idempotency-Key, below /api/v2. */")
	p.line("export const repeatable = [")
	for _, path := range c.Repeatable {
		p.line("  '%s',", path)
	}
	p.line("];\n")
	p.line("/** Refusals after which a purchase is never credited. */")
	p.line("export const finalRefusals = [%s];\n", strings.ReplaceAll(quoted(c.FinalRefusals), `"`, `'`))
	p.line("/** The types of files that can be uploaded, by the extension of their names. */")
	p.line("export const types: Record<string, string> = {")
	for _, pair := range sortedPairs(c.Types, "  %s: '%s',") {
		p.line("%s", pair)
	}
	p.line("};")
	for _, n := range c.Numbers {
		p.line("\n/** %s. */", upper(n.Comment))
		p.line("export const %s = %s;", n.Name, n.Value)
	}
	return p.String()
}
