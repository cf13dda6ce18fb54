package config

import (
	"fmt"
	"strings"
)

// markdown renders the table of every key, a section for each group.
func markdown() string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Generated from internal/config/keys.go: go test ./internal/config -update -->

Environment variables configure cutroom. A ` + "`.env`" + ` file in the working directory
supplies those that are not set, not even to blank. In that file put values that
contain ` + "`$`, `#`, quotes or spaces" + ` between single quotes.

- A blank value counts as an absent one.
- If anything is wrong, the process prints one line per problem and exits with
  status 1 before it listens. No line shows a value.
- Every secret (marked as such) may be given as ` + "`<KEY>_FILE`" + ` instead, the
  path of a file with the value; giving both is refused.
- 1 MB here is 1 MiB, 1048576 bytes. Lists are separated by commas.
- ` + "[`.env.example`](../.env.example)" + ` has every key, ready to be copied.
`)
	group := ""
	for _, k := range Keys {
		if k.Group != group {
			group = k.Group
			fmt.Fprintf(&b, "\n## %s\n\n| Key | Required | Default | Meaning |\n|---|---|---|---|\n", group)
		}
		meaning := k.Meaning
		if allowed := k.Range(); allowed != "" {
			meaning += " Allowed: " + allowed + "."
		}
		if k.Secret {
			meaning += " Secret."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, k.Required, markdownDefault(k), strings.ReplaceAll(meaning, "|", `\|`))
	}
	return b.String()
}

func markdownDefault(k Key) string {
	switch {
	case k.Default == "":
		return ""
	case k.Computed && !strings.Contains(k.Default, "://"):
		return k.Default
	default:
		return "`" + k.Default + "`"
	}
}

// envWidth is where the comments of .env.example wrap.
const envWidth = 88

// envExample renders .env.example: every key with its comment. The required
// ones stand ready to be filled in, the others are commented out and show
// their default.
func envExample() string {
	var b strings.Builder
	b.WriteString(`# Configuration of cutroom: copy this file to .env and fill in the keys that are not
# commented out. The real environment wins over .env. Put values that hold $, #, quotes
# or spaces between single quotes. A secret key may be given as <KEY>_FILE instead, the
# path of a file with the value.
#
# Generated from internal/config/keys.go: go test ./internal/config -update
`)
	group := ""
	for _, k := range Keys {
		if k.Group != group {
			group = k.Group
			fmt.Fprintf(&b, "\n# ---- %s ----\n", group)
		}
		b.WriteString("\n")
		b.WriteString(comment(envComment(k)))
		switch {
		case k.Required == Always:
			fmt.Fprintf(&b, "%s=\n", k.Name)
		case k.Computed:
			fmt.Fprintf(&b, "#%s=\n", k.Name)
		default:
			fmt.Fprintf(&b, "#%s=%s\n", k.Name, k.Default)
		}
	}
	return b.String()
}

func envComment(k Key) string {
	text := strings.ReplaceAll(k.Meaning, "`", "")
	if allowed := k.Range(); allowed != "" {
		text += " Allowed: " + allowed + "."
	}
	switch k.Required {
	case Always:
		text += " Required."
	case WithBucket, ForPlatformA, ForPlatformB:
		text += " Required " + string(k.Required) + "."
	}
	if k.Computed {
		text += " Default: " + k.Default + "."
	}
	return text
}

func comment(text string) string {
	var b strings.Builder
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > envWidth && line != "#" {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}
