// The Kotlin client's generated source: models as data classes with readers and writers of JSON, and the table that the
// clients share.

package main

import (
	"fmt"
	"slices"
	"strings"
)

var kotlinReserved = []string{"as", "class", "fun", "in", "interface", "is", "object", "package", "return",
	"super", "this", "throw", "typealias", "val", "var", "when", "while"}

func kotlinName(name string) string { return member(name, kotlinReserved) }

func kotlinType(v value) string {
	switch v.kind {
	case whole:
		return "Long"
	case decimal:
		return "Double"
	case flag:
		return "Boolean"
	case list:
		return "List<" + kotlinType(*v.of) + ">"
	case object:
		return modelName(v.model)
	}
	return "String"
}

// kotlinRead reads a value that o holds under a key, and kotlinItem one that the array a holds at i.
func kotlinRead(v value, key string) string {
	switch v.kind {
	case whole:
		return fmt.Sprintf("o.getLong(%q)", key)
	case decimal:
		return fmt.Sprintf("o.getDouble(%q)", key)
	case flag:
		return fmt.Sprintf("o.getBoolean(%q)", key)
	case list:
		return fmt.Sprintf("o.getJSONArray(%q).items { a, i -> %s }", key, kotlinItem(*v.of))
	case object:
		return fmt.Sprintf("%s.of(o.getJSONObject(%q))", modelName(v.model), key)
	}
	return fmt.Sprintf("o.getString(%q)", key)
}

func kotlinItem(v value) string {
	switch v.kind {
	case whole:
		return "a.getLong(i)"
	case decimal:
		return "a.getDouble(i)"
	case flag:
		return "a.getBoolean(i)"
	case object:
		return modelName(v.model) + ".of(a.getJSONObject(i))"
	}
	return "a.getString(i)"
}

// kotlinWrite is the expression that becomes JSON.
func kotlinWrite(v value, name string) string {
	switch {
	case v.kind == object:
		return name + ".json()"
	case v.kind == list && v.of.kind == object:
		return name + ".array { it.json() }"
	case v.kind == list:
		return name + ".array { it }"
	}
	return name
}

// kotlin returns the models as data classes.
func (a *api) kotlin() string {
	var p page
	p.line("package cutroom\n\nimport org.json.JSONArray\nimport org.json.JSONObject\n")
	p.line("internal fun JSONObject.has(key: String, always: Boolean) = always || (has(key) && !isNull(key))\n")
	p.line("internal fun <T> JSONArray.items(read: (JSONArray, Int) -> T): List<T> = List(length()) { read(this, it) }\n")
	p.line("internal fun <T> List<T>.array(write: (T) -> Any): JSONArray = JSONArray().also { out -> forEach { out.put(write(it)) } }\n")
	for _, w := range a.words {
		p.line("/**")
		p.doc(" *", w.doc)
		p.line(" * A newer server may send other values.\n */")
		p.line("object %s {", modelName(w.name))
		for _, v := range w.values {
			p.line("    const val %s = %q", strings.ToUpper(snake(constant(v))), v)
		}
		p.line("}\n")
	}
	for _, m := range a.models {
		if m.doc != "" {
			p.line("/**")
			p.doc(" *", m.doc)
			p.line(" */")
		}
		p.line("data class %s(", modelName(m.name))
		for _, f := range slices.Concat(fieldsThat(m, false), fieldsThat(m, true)) {
			kind := kotlinType(f.value)
			if f.optional {
				kind += "? = null"
			}
			if f.doc != "" {
				p.line("    /**")
				p.doc("     *", f.doc)
				p.line("     */")
			}
			p.line("    val %s: %s,", kotlinName(f.name), kind)
		}
		p.line(") {")
		p.line("    fun json(): JSONObject = JSONObject().also { o ->")
		for _, f := range m.fields {
			if f.optional {
				p.line("        %s?.let { o.put(%q, %s) }", kotlinName(f.name), f.name, kotlinWrite(f.value, "it"))
			} else {
				p.line("        o.put(%q, %s)", f.name, kotlinWrite(f.value, kotlinName(f.name)))
			}
		}
		p.line("    }\n\n    companion object {")
		p.line("        fun of(o: JSONObject) = %s(", modelName(m.name))
		for _, f := range m.fields {
			read := kotlinRead(f.value, f.name)
			if f.optional {
				read = fmt.Sprintf("if (o.has(%q, false)) %s else null", f.name, read)
			}
			p.line("            %s = %s,", kotlinName(f.name), read)
		}
		p.line("        )\n    }\n}\n")
	}
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// fieldsThat returns the fields of a model that are optional, or the others.
func fieldsThat(m model, optional bool) []field {
	return slices.DeleteFunc(slices.Clone(m.fields), func(f field) bool { return f.optional != optional })
}

// snake turns fadeBlack into fade_Black.
func snake(name string) string {
	var out strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	return out.String()
}

// kotlin returns the shared table.
func (c *contract) kotlin() string {
	var p page
	p.line("package cutroom\n")
	p.line("/** What an app does after an error. */")
	p.line("enum class Next {")
	for _, n := range c.Next {
		p.line("    /** %s */\n    %s,", n.Value, strings.ToUpper(snake(n.Name)))
	}
	p.line("}\n")
	p.line("internal object Contract {")
	p.line("    val next = mapOf(")
	for _, pair := range sortedPairs(c.Codes, "%s %s") {
		code, next, _ := strings.Cut(pair, " ")
		p.line("        %q to Next.%s,", code, strings.ToUpper(snake(next)))
	}
	p.line("    )")
	p.line("    val lasting = setOf(%s)", quoted(c.Lasting))
	p.line("    val repeatable = setOf(")
	for _, path := range c.Repeatable {
		p.line("        %q,", path)
	}
	p.line("    )")
	p.line("    val finalRefusals = setOf(%s)", quoted(c.FinalRefusals))
	p.line("    val types = mapOf(")
	for _, pair := range sortedPairs(c.Types, "        %q to %q,") {
		p.line("%s", pair)
	}
	p.line("    )")
	for _, n := range c.Numbers {
		p.line("    /** %s */", upper(n.Comment))
		p.line("    const val %s = %s", strings.ToUpper(snake(n.Name)), n.Value)
	}
	p.line("}")
	return p.String()
}
