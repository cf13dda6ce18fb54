// Package benchtest contains what benchmarks share: sections of the results page, workers that claim jobs, and the CPU
// time and memory of processes.
package benchtest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Section is one section of docs/benchmarks.md. It also prints everything written to it, because a benchmark takes
// minutes.
type Section struct {
	name string
	text strings.Builder
}

// New begins the section that `make name` writes. Call it before measuring: it records the machine and its load.
func New(name, title string) *Section {
	s := &Section{name: name}
	s.print("## " + title)
	s.Say("By `make %s` on %s: %s.", name, time.Now().UTC().Format(time.DateOnly), machine())
	return s
}

// Say writes one or more paragraphs.
func (s *Section) Say(format string, args ...any) {
	s.print("\n" + strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Table begins a table. All columns but the first are right-aligned.
func (s *Section) Table(columns ...string) {
	s.print("\n| " + strings.Join(columns, " | ") + " |\n|---|" + strings.Repeat("---:|", len(columns)-1))
}

// Row writes a row. The format separates the cells with " | ".
func (s *Section) Row(format string, args ...any) {
	s.print("| " + fmt.Sprintf(format, args...) + " |")
}

func (s *Section) print(text string) {
	fmt.Println(text)
	s.text.WriteString(text + "\n")
}

// Save replaces the section in a page. It returns an error if the page has no place for the section.
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

// Quantile returns the given percentile of sorted values.
func Quantile[T any](sorted []T, percent int) (v T) {
	if len(sorted) == 0 {
		return v
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// Median formats the median of sorted times.
func Median(sorted []time.Duration) string { return Millis(Quantile(sorted, 50)) }

// Slow formats the 95th percentile of sorted times.
func Slow(sorted []time.Duration) string { return Millis(Quantile(sorted, 95)) }

// Millis formats a time in milliseconds.
func Millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

// machine describes the hardware without the machine's name.
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
