package confine

import "fmt"

// Layer is one part of the confinement and whether this kernel grants it.
type Layer struct {
	Name    string // "namespaces", "landlock" or "seccomp"
	InForce bool
	Detail  string   // what it restricts, or why it is missing
	Gaps    []string // what no other layer prevents while it is missing
}

// gaps returns, for each missing layer, what an attacker who has taken over the program can still do. abi is
// the version of Landlock.
func (l Layers) gaps(abi int) map[string][]string {
	if !l.Landlock {
		abi = 0
	}
	gaps := map[string][]string{}
	open := func(missing, what string, possible bool) {
		if possible {
			gaps[missing] = append(gaps[missing], what)
		}
	}
	open("landlock", "read and write every file of the server's user", !l.Landlock)
	open("seccomp", "change modes, owners, times and attributes of the server's files", !l.Seccomp)
	open("seccomp", "truncate the server's files", !l.Seccomp && abi < 3)
	open("seccomp", "use more of the kernel than a decoder needs", !l.Seccomp)
	open("namespaces", "see which processes run", !l.Namespaces)
	open("namespaces", "reach the network", !l.Namespaces && !l.Seccomp)
	open("namespaces", "signal and trace the server", !l.Namespaces && !l.Seccomp && abi < 6)
	return gaps
}

// Detect determines which layers this kernel grants. try must start a program that does nothing within the
// given layers. Detect tries all layers first. If that fails, it tries each alone, to name the refused one and
// keep the others. An error means that the program does not start at all.
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
		{Name: "namespaces", InForce: got.Namespaces, Detail: "no network, no other processes, no capabilities"},
		{Name: "landlock", InForce: got.Landlock, Detail: fmt.Sprintf("ABI %d: files%s", abi, reach(abi))},
		{Name: "seccomp", InForce: got.Seccomp, Detail: "no sockets, processes, tracing or changes to metadata of files"},
	}
	gaps := got.gaps(abi)
	for i, l := range report {
		if !l.InForce {
			report[i].Detail, report[i].Gaps = why[l.Name], gaps[l.Name]
		}
	}
	return got, report, nil
}
