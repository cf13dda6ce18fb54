// Package benchtest is what the benchmarks share: sections of the page of results, workers
// that claim jobs, and what the kernel knows of processes.
package benchtest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Section is one section of docs/benchmarks.md. Everything written to it is
// printed as well, because a benchmark takes minutes.
type Section struct {
	name string
	text strings.Builder
}

// New begins the section that `make name` writes. It tells the machine and its
// load, so it is called before anything is measured.
func New(name, title string) *Section {
	s := &Section{name: name}
	s.print("## " + title)
	s.Say("By `make %s` on %s: %s.", name, time.Now().UTC().Format(time.DateOnly), machine())
	return s
}

// Say writes a paragraph, or several.
func (s *Section) Say(format string, args ...any) {
	s.print("\n" + strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Table begins a table; every column but the first is aligned to the right.
func (s *Section) Table(columns ...string) {
	s.print("\n| " + strings.Join(columns, " | ") + " |\n|---|" + strings.Repeat("---:|", len(columns)-1))
}

// Row writes a row, whose cells are separated by " | " in the format.
func (s *Section) Row(format string, args ...any) {
	s.print("| " + fmt.Sprintf(format, args...) + " |")
}

func (s *Section) print(text string) {
	fmt.Println(text)
	s.text.WriteString(text + "\n")
}

// Save puts the section into a page in place of its former self. A page without
// a place for it is left alone.
func (s *Section) Save(page string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+s.name+" -->\n", "<!-- end of "+s.name+" -->\n"
	before, rest, ok1 := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", page, begin, end)
	}
	return os.WriteFile(page, []byte(before+begin+s.text.String()+end+after), 0o644)
}

// Quantile is the value that so many percent of the sorted values do not exceed.
func Quantile[T any](sorted []T, percent int) (v T) {
	if len(sorted) == 0 {
		return v
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// Median writes the median of sorted times.
func Median(sorted []time.Duration) string { return Millis(Quantile(sorted, 50)) }

// Slow writes the time that 95 percent of sorted times do not exceed.
func Slow(sorted []time.Duration) string { return Millis(Quantile(sorted, 95)) }

// Millis writes a time in milliseconds.
func Millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

// machine describes the hardware, without a name of it.
func machine() string {
	cpu, memory, load := "an unknown processor", "unknown memory", "unknown"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(info), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			cpu = strings.TrimLeft(line, " \t:")
		}
	}
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb int64
		if _, err := fmt.Sscanf(string(info), "MemTotal: %d kB", &kb); err == nil {
			memory = fmt.Sprintf("%d GB of memory", (kb+1<<19)>>20)
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	return fmt.Sprintf("%d cores of %s, %s, %s/%s, %s, load average before the start %s",
		runtime.NumCPU(), cpu, memory, runtime.GOOS, runtime.GOARCH, runtime.Version(), load)
}
