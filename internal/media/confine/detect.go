package confine

import "fmt"

// Layer is one part of the confinement and whether this kernel grants it.
type Layer struct {
	Name    string // "namespaces", "landlock" or "seccomp"
	InForce bool
	Detail  string // how far it reaches, or why it is missing
}

// Detect finds out which layers this kernel grants. try starts the program,
// which should do nothing, within the given ones. It is called with all of them
// and, if that fails, with each alone, so that a refused one is known by name
// and the others stand. The error is that of a program that does not start.
func Detect(try func(Layers) error) (Layers, []Layer, error) {
	abi := landlockABI()
	got := Layers{Namespaces: true, Landlock: abi > 0, Seccomp: seccompSupported}
	why := map[string]string{"landlock": "the kernel does not offer it", "seccomp": "no filter for this processor"}
	if all := try(got); all != nil {
		if err := try(Layers{}); err != nil {
			return Layers{}, nil, err
		}
		alone := func(name string, layer *bool, l Layers) {
			if !*layer {
				return
			}
			if err := try(l); err != nil {
				*layer, why[name] = false, err.Error()
			}
		}
		alone("namespaces", &got.Namespaces, Layers{Namespaces: true})
		alone("landlock", &got.Landlock, Layers{Landlock: true})
		alone("seccomp", &got.Seccomp, Layers{Seccomp: true})
		if err := try(got); err != nil {
			return Layers{}, nil, fmt.Errorf("confined: %w", err)
		}
	}
	report := []Layer{
		{"namespaces", got.Namespaces, "no network, no other processes, no capabilities"},
		{"landlock", got.Landlock, fmt.Sprintf("ABI %d: files%s", abi, reach(abi))},
		{"seccomp", got.Seccomp, "no sockets, processes or tracing"},
	}
	for i, l := range report {
		if !l.InForce {
			report[i].Detail = why[l.Name]
		}
	}
	return got, report, nil
}
