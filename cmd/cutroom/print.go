package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// shortList is the number of entries that a list shows without --since.
const shortList = 100

// screen is the number of rows of each kind that fit on a screen. --json prints all.
const screen = 20

// print writes value as JSON if --json is set, or else the same fields as lines and tables.
func (v *invocation) print(value any) error {
	if v.json {
		return v.printJSON(value)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(v.stdout, 0, 0, 2, ' ', 0)
	if text[0] == '[' {
		writeRows(w, text, len(text))
	} else {
		writeFields(w, text)
	}
	return w.Flush()
}

// say writes a sentence, or value as JSON if --json is set.
func (v *invocation) say(value any, format string, args ...any) error {
	if v.json {
		return v.printJSON(value)
	}
	_, err := fmt.Fprintf(v.stdout, format+"\n", args...)
	return err
}

func (v *invocation) printJSON(value any) error {
	enc := json.NewEncoder(v.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// writeFields writes a line for each field of a JSON object that is not empty, and its lists and objects below.
func writeFields(w io.Writer, object json.RawMessage) {
	var nested []member
	for _, f := range members(object) {
		if text := f.text(); text == "" {
			continue
		} else if f.value[0] == '{' || f.value[0] == '[' {
			nested = append(nested, f)
		} else {
			fmt.Fprintf(w, "%s\t%s\n", f.name, text)
		}
	}
	for _, f := range nested {
		fmt.Fprintf(w, "\n%s\n", f.name)
		if f.value[0] == '{' {
			writeFields(w, f.value)
		} else {
			writeRows(w, f.value, screen)
		}
	}
}

// writeRows writes at most limit rows of a JSON list as a table.
func writeRows(w io.Writer, list json.RawMessage, limit int) {
	for i, row := range elements(list) {
		if i == limit {
			fmt.Fprintln(w, "older ones with --json")
			return
		}
		var names, cells []string
		for _, f := range members(row) {
			names, cells = append(names, f.name), append(cells, f.text())
		}
		if i == 0 && names[0] != "" {
			fmt.Fprintln(w, strings.Join(names, "\t"))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
}

// member is a field of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the fields of a JSON object in their order. Any other value is a member without a name.
func members(value json.RawMessage) (fields []member) {
	if value[0] != '{' {
		return []member{{value: value}}
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	_, err := dec.Token()
	for err == nil && dec.More() {
		var f member
		name, _ := dec.Token()
		f.name, err = fmt.Sprint(name), dec.Decode(&f.value)
		fields = append(fields, f)
	}
	return fields
}

func elements(list json.RawMessage) (values []json.RawMessage) {
	_ = json.Unmarshal(list, &values) // the text comes from json.Marshal
	return values
}

// text returns the value on one line, "" if there is nothing in it.
func (m member) text() string {
	switch text := string(m.value); {
	case text == "null" || text == "[]" || text == "{}":
		return ""
	case text[0] == '"':
		_ = json.Unmarshal(m.value, &text) // as above
		return oneLine(text)
	case strings.HasSuffix(m.name, "Bytes"):
		var size float64
		_ = json.Unmarshal(m.value, &size)
		return fmt.Sprintf("%.1f MB", size/(1<<20)) // as in the configuration, 1 MB is 1048576 bytes
	default:
		return text
	}
}

// oneLine joins the lines of a text: "a:\n\tb\nc" becomes "a: b; c".
func oneLine(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && b.Len() > 0 && strings.HasSuffix(b.String(), ":") {
			b.WriteString(" ")
		} else if line != "" && b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}
