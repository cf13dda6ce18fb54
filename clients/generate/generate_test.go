package main

import (
	"os"
	"testing"
)

// The clients have every model of the API description and all of contract.yaml.
func TestClientsAreGenerated(t *testing.T) {
	root := "../.."
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("nothing is generated")
	}
	for name, want := range files {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s is old: run go run ./clients/generate", name)
		}
	}
}
