package confine

import "fmt"

// Layer is one part of the confinement and whether this kernel grants it.
type Layer struct {
	Name    string // "namespaces", "landlock" or "seccomp"
	InForce bool
	Detail  string // why it is missing
}

// Detect determines which layers this kernel grants. try must start a program that does nothing within the given
// layers. Detect tries all layers first. If that fails, it tries each alone, to name the refused one and keep the
// others. An error means that the program does not start at all.
func Detect(try func(Layers) error) (Layers, []Layer, error) {
	got := Layers{Namespaces: true, Landlock: landlockABI() > 0, Seccomp: true}
	report := []Layer{
		{Name: "namespaces", InForce: true}, {Name: "landlock", InForce: got.Landlock}, {Name: "seccomp", InForce: true},
	}
	if !got.Landlock {
		report[1].Detail = "the kernel does not offer it"
	}
	if try(got) == nil {
		return got, report, nil
	}
	if err := try(Layers{}); err != nil {
		return Layers{}, nil, err
	}
	for i, alone := range []Layers{{Namespaces: true}, {Landlock: true}, {Seccomp: true}} {
		if !report[i].InForce {
			continue
		}
		if err := try(alone); err != nil {
			report[i].InForce, report[i].Detail = false, err.Error()
		}
	}
	got = Layers{Namespaces: report[0].InForce, Landlock: report[1].InForce, Seccomp: report[2].InForce}
	if err := try(got); err != nil {
		return Layers{}, nil, fmt.Errorf("confined: %w", err)
	}
	return got, report, nil
}
