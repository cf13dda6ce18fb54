package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
)

var update = flag.Bool("update", false, "write docs/capacity.md")

// The assumptions of capacity.md. Prices are per unit of the table of costs.
const (
	clipMB, filmMB   = 12, 15
	filmSeconds      = 30
	editsPerFilm     = 2
	segments         = 6
	requestsPerDay   = 60  // of a user
	separationsADay  = 0.1 // of a user
	separationHours  = 2.0 / 60
	busiestHour      = 0.1 // of a day's work
	utilisation      = 0.7
	apiPlan          = 3000 // requests a second on one core
	machineCores     = 8
	bucketRequests   = 5*segments + 2*segments + 7
	otherConnections = 8 // people, backups, a migration
	corePrice        = 0.04
	storagePrice     = 0.02 // a GB and month
	requestPrice     = 5.0  // a million
	trafficPrice     = 0.05 // a GB
)

// capacity.md is computed from the tables of benchmarks.md, so they cannot disagree.
func TestCapacityIsComputedFromTheBenchmarks(t *testing.T) {
	b := benchmarks(t)
	page := template.Must(template.New("").Parse(read(t, "testdata/capacity.md")))
	var text bytes.Buffer
	if err := page.Execute(&text, b.figures()); err != nil {
		t.Fatal(err)
	}
	const path = "../docs/capacity.md"
	if *update {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, path) != text.String() {
		t.Errorf("%s does not follow from docs/benchmarks.md: go test ./deploy -run Capacity -update", path)
	}
}

// tables are those of benchmarks.md: each row by its columns, under the preceding
// heading or bold words.
type tables struct {
	t      *testing.T
	tables map[string][]map[string]string
}

func benchmarks(t *testing.T) tables {
	t.Helper()
	out := tables{t, map[string][]map[string]string{}}
	title, columns := "", []string(nil)
	for line := range strings.Lines(read(t, "../docs/benchmarks.md")) {
		line = strings.TrimSpace(line)
		if m := regexp.MustCompile(`^(?:#+ (.*)|\*\*(.*?)\.\*\*.*)$`).FindStringSubmatch(line); m != nil {
			title = m[1] + m[2]
		}
		if !strings.HasPrefix(line, "|") {
			columns = nil
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		switch {
		case columns == nil:
			columns = cells
			for i, c := range columns {
				if at := slices.Index(columns, c); at < i { // a column of the one before
					columns[i] = columns[i-1] + " " + c
				}
			}
		case !strings.HasPrefix(cells[0], "---"):
			row := map[string]string{}
			for i, c := range columns[:min(len(columns), len(cells))] {
				row[c] = cells[i]
			}
			out.tables[title] = append(out.tables[title], row)
		}
	}
	return out
}

// values are the numbers of a column, in the rows that have the given cells.
func (b tables) values(title, column string, where ...string) (found []float64) {
	b.t.Helper()
	for _, row := range b.tables[title] {
		fits := true
		for i := 0; i < len(where); i += 2 {
			fits = fits && row[where[i]] == where[i+1]
		}
		if number := regexp.MustCompile(`^[0-9.]+`).FindString(row[column]); fits && number != "" {
			v, err := strconv.ParseFloat(number, 64)
			if err != nil {
				b.t.Fatal(err)
			}
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		b.t.Fatalf("docs/benchmarks.md has no %s of %v under %s", column, where, title)
	}
	return found
}

func (b tables) value(title, column string, where ...string) float64 {
	b.t.Helper()
	return b.values(title, column, where...)[0]
}

type size struct {
	Name                                   string
	Films, Edits                           string
	Busy, Planned, Requests, APIs, Claims  string
	Transactions, BucketRequests, BucketTB string
	Separations, Machines, Connections     string
	claims                                 float64
}

type cost struct{ What, Quantity, Price, Cost string }

func (b tables) figures() map[string]any {
	b.t.Helper()
	const render, cpu = "A render beside one ffmpeg command", "CPU s"
	of := func(column, measurement string) float64 { return b.value(render, column, "measurement", measurement) }
	film720, film1080 := of(cpu, "cold render"), of(cpu, "cold render of the same")
	edit720 := of(cpu, "again, one of six segments changed")
	edit1080 := edit720 / film720 * film1080
	api := func(endpoint string) float64 {
		return b.value("The API", "CPU of the server", "endpoint", endpoint, "database", "PostgreSQL")
	}
	balance, stems := api("GET /credits"), api("GET /separate/{id}")
	const queue, jobs, parts = "A queue that grows", "Many jobs, many workers", "One long film, many workers"
	claims := slices.Min(b.values(queue, "Cycles per second", "Workers", "16"))
	filmTransactions := b.value(jobs, "Transactions per job")
	partTransactions := b.values(parts, "Transactions per part")
	pool, inFlight := b.defaultOf("DB_MAX_POOL"), b.defaultOf("SEPARATION_MAX_PROVIDER_IN_FLIGHT")

	var sizes []size
	for _, s := range []struct {
		name  string
		users float64
	}{{"a thousand films", 1e4}, {"100,000 users a day", 1e5}, {"1,000,000 users a day", 1e6}} {
		films := s.users * busiestHour
		renders := films * (1 + editsPerFilm)
		requests := s.users * requestsPerDay * busiestHour / 3600
		busy := films * (film1080 + editsPerFilm*edit1080) / 3600
		machines := math.Ceil(busy / utilisation / machineCores)
		sizes = append(sizes, size{Name: s.name, Films: whole(films), Edits: whole(renders - films),
			Busy: round(busy), Planned: round(busy / utilisation), Requests: round(requests),
			APIs: whole(max(2, math.Ceil(requests/apiPlan))), Claims: round(renders / 3600),
			Transactions: round(renders*filmTransactions/3600 + requests), BucketRequests: round(renders * bucketRequests / 3600),
			BucketTB: round(s.users * userMB / 1e6), Separations: round(s.users * separationsADay * busiestHour * separationHours),
			Machines: whole(machines), Connections: whole(2 * machines * (pool + 1)), claims: renders / 3600})
	}
	coreHours := 1000 * (film1080 + editsPerFilm*edit1080) / 3600 / utilisation
	storedGB, downloadedGB := 1000*userMB/1e3, 1000.0*(1+editsPerFilm)*filmMB/1e3
	requests := 1000 * (1 + editsPerFilm) * bucketRequests / 1e6
	amounts := []float64{coreHours * corePrice, storedGB / 30 * storagePrice, requests * requestPrice, downloadedGB * trafficPrice}
	total := 0.0
	for _, a := range amounts {
		total += a
	}
	costs := []cost{
		{"workers, planned at 70 %", round(coreHours) + " core hours", price(corePrice), price(amounts[0])},
		{"bucket, kept for a day", round(storedGB) + " GB", price(storagePrice) + " a month", price(amounts[1])},
		{"requests to the bucket, all at the price of writes", round(requests*1e3) + " thousand", price(requestPrice) + " a million", price(amounts[2])},
		{"downloads of films", round(downloadedGB) + " GB", price(trafficPrice), price(amounts[3])},
	}
	return map[string]any{
		"BalanceMicros": whole(balance), "StemsMicros": whole(stems), "BalancePerSecond": round(1e6 / balance), "StemsPerSecond": round(1e6 / stems),
		"APIPlan": whole(apiPlan), "Waiting": whole(b.value("Waiting", "clients", "database", "PostgreSQL")),
		"Speed720": round(filmSeconds / film720), "Speed1080": round(filmSeconds / film1080), "Film720": round(film720), "Film1080": round(film1080),
		"Sound": round(of(cpu, "again, music changed")), "Edit720": round(edit720), "Edit1080": round(edit1080),
		"Memory720": whole(of("memory MB", "cold render")), "Memory1080": whole(of("memory MB", "cold render of the same")),
		"Claims": round(claims), "LongestQueue": whole(slices.Max(b.values(queue, "Waiting"))),
		"FilmTransactions": round(filmTransactions), "FilmDatabaseMillis": round(b.value(jobs, "PostgreSQL CPU per job")),
		"LeastPartTransactions": round(slices.Min(partTransactions)), "MostPartTransactions": round(slices.Max(partTransactions)),
		"BucketRequests": bucketRequests, "ClipMB": clipMB, "FilmMB": filmMB, "Sizes": sizes, "MachineCores": machineCores, "Pool": whole(pool),
		"ReplicasOf100": whole(math.Floor((100 - otherConnections) / (2 * (pool + 1)))), "Costs": costs, "Total": price(total),
		"InFlight": whole(inFlight), "InFlightPerHour": whole(inFlight / separationHours),
		"QueueIsTheLimit": claims < 4*sizes[2].claims,
	}
}

// userMB is what a user's day puts into the bucket: clips, the films, and the parts that are new.
const userMB = segments*clipMB + (1+editsPerFilm)*filmMB + filmMB + editsPerFilm*filmMB/segments

// defaultOf returns the default of a setting that is a number.
func (b tables) defaultOf(name string) float64 {
	b.t.Helper()
	k, ok := key(name)
	if !ok {
		b.t.Fatalf("there is no key %s", name)
	}
	n, err := strconv.ParseFloat(k.Default, 64)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// whole writes a number with a comma at each thousand.
func whole(v float64) string {
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// round writes two significant digits: more are noise.
func round(v float64) string {
	if v >= 10 {
		step := math.Pow(10, math.Floor(math.Log10(v))-1)
		return whole(math.Round(v/step) * step)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func price(v float64) string { return fmt.Sprintf("%.2f", v) }
