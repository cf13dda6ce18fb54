package admin

import (
	"embed"
	"io/fs"
)

// The web app built from web/admin. It is committed, so building the service needs no Node.
//
//go:embed all:page/dist
var page embed.FS

// App returns the files of the web app: index.html at the root, and under assets/ the files whose names contain a hash
// of their content.
func App() (fs.FS, error) { return fs.Sub(page, "page/dist") }
