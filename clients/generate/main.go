// Command generate writes what the clients for TypeScript, Swift and Kotlin have in common: the models in the API
// description, and clients/contract.yaml. Run it in the root of the repository:
//
//	go run ./clients/generate
package main

import (
	"fmt"
	"os"
)

func main() {
	files, err := generate(".")
	for path, text := range files {
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
