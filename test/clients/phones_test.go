// The Swift, Kotlin and TypeScript packages as programs: their scenarios, and the samples that the pages show.

package clients

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/identity"
	"cutroom/internal/sandbox/store"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// phones are the packages for apps, with the variable that names the program of their scenarios.
var phones = map[string]string{
	"Swift":  "CUTROOM_SWIFT_SCENARIOS",
	"Kotlin": "CUTROOM_KOTLIN_SCENARIOS", "Kotlin with OkHttp": "CUTROOM_KOTLIN_SCENARIOS",
	"TypeScript": "CUTROOM_TYPESCRIPT_SCENARIOS",
}

// step is one process of a device, which runs a scenario of that name.
type step struct {
	scenario string
	killed   bool
}

// scenarios are the situations that a client has to survive. Each line is a new user, whose device runs one process
// after another.
var scenarios = [][]step{
	{{scenario: "a film although the answer of its submit is lost"}, {scenario: "a busy server is asked again when it says"}},
	{{scenario: "the first film of the README"}},
	{{scenario: "a session that the server ends"}},
	{{scenario: "a wrong clock"}},
	{{"killed between submit and answer", true}, {scenario: "started again after that"}},
	{{scenario: "a dropped connection in one part of an upload"}, {scenario: "hashes of files of any length"}},
	{{"killed in an upload", true}, {scenario: "continued after that"}},
	{{scenario: "a purchase is credited once"}, {scenario: "errors have a next step"}},
	{{scenario: "a submit and a purchase that the app cancels"}},
	{{scenario: "another user signs in while a submit is open"}},
	{{scenario: "a server that does not answer"}},
	{{scenario: "the samples of docs/app"}},
}

// The packages for apps pass the scenarios.
func TestPhonePackages(t *testing.T) {
	for language, variable := range phones {
		t.Run(language, func(t *testing.T) {
			program := os.Getenv(variable)
			if program == "" || os.Getenv(builtEnv) == "" {
				t.Skipf("runs where %s is built", language)
			}
			phonePackage(t, language, program)
		})
	}
}

// phonePackage runs the scenarios of one package.
func phonePackage(t *testing.T, language, program string) {
	clip := mediatest.Clip(t, mediatest.Spec{Width: 320, Height: 180, Tone: 440, Duration: 2 * time.Second})
	files := t.TempDir()
	for _, size := range []int{1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 100_000} { // SHA-256 has blocks of 64 bytes
		hashed(t, files, make([]byte, size))
	}
	for _, steps := range scenarios {
		t.Run(steps[0].scenario, func(t *testing.T) {
			s := apitest.Start(t, apitest.StandInBucket()) // one for each, because a service limits sign-ins from one address
			dir := t.TempDir()
			boughtB, receiptB := s.World.TransactionB(store.TransactionB{ProductID: "credits.10"})
			bought := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10"})
			env := append(os.Environ(), "PACKAGE="+language, "BASE="+s.URL, "STORE="+dir, "HOME="+dir, "CLIP="+clip, "FILES="+files,
				"SILENT="+silent(t), "ID_TOKEN="+s.World.MintA(t, identity.Claims{Email: "u@client.example", Name: "U"}),
				"OTHER_ID_TOKEN="+s.World.MintA(t, identity.Claims{Email: "v@client.example", Name: "V"}),
				"ORDER="+bought.OrderID, "RECEIPT="+bought.Token, "ORDER_B="+boughtB.TransactionID, "RECEIPT_B="+receiptB,
				"LARGE="+hashed(t, dir, recording(40<<20+1000)))
			if steps[0].scenario == "a dropped connection in one part of an upload" {
				s.World.FailBucket(t, fake.Rule{Step: "upload-part", Kind: fake.KindCutUpload, SizeBytes: 100_000, Nth: 3, Times: 1})
			}
			for _, step := range steps {
				cmd := exec.CommandContext(t.Context(), program, step.scenario)
				cmd.Env = env
				out, err := cmd.CombinedOutput()
				status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if killed := status.Signaled() && status.Signal() == syscall.SIGKILL; killed != step.killed || (err != nil && !killed) {
					t.Fatalf("%s: %v\n%s", step.scenario, err, out)
				}
			}
		})
	}
}

// shown finds the samples of a page: a comment names the file, and the part of it, that the fence below shows. A part
// stands between the lines "// sample: NAME" and "// end".
var shown = regexp.MustCompile("(?s)<!-- ([^ ]+?)(?:#([a-z-]+))? -->\n+```\\w+\n(.*?)```\n")

// The pages show samples that are compiled and run.
func TestSamplesAreCompiled(t *testing.T) {
	root := "../.."
	for page, least := range map[string]int{
		"clients/swift/README.md": 1, "clients/kotlin/README.md": 2, "web/client/README.md": 1, "docs/app/film.md": 14, "docs/app/money.md": 3,
	} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		samples := shown.FindAllStringSubmatch(string(text), -1)
		if len(samples) < least {
			t.Errorf("%s shows %d samples", page, len(samples))
		}
		for _, m := range samples {
			file, part, sample := m[1], m[2], m[3]
			source, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			if want := sampleOf(string(source), part); want != sample {
				t.Errorf("%s shows\n%s\nand %s has\n%s", page, sample, file, want)
			}
		}
	}
}

// sampleOf returns a part of a source without the indentation of its first line, or the whole source.
func sampleOf(source, part string) string {
	if part == "" {
		return source
	}
	_, after, _ := strings.Cut(source, "// sample: "+part+"\n")
	lines := strings.SplitAfter(after, "\n")
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " \t"))]
	var b strings.Builder
	for _, line := range lines {
		if strings.TrimSpace(line) == "// end" {
			return b.String()
		}
		b.WriteString(strings.TrimPrefix(line, indent))
	}
	return ""
}

// hashed writes a file whose name is its hash, and returns its path.
func hashed(t *testing.T, dir string, content []byte) string {
	t.Helper()
	sum := sha256.Sum256(content)
	path := filepath.Join(dir, hex.EncodeToString(sum[:])+".wav")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// recording returns noise as a WAV file of size bytes, which no other test uploads.
func recording(size int) []byte {
	var b bytes.Buffer
	b.WriteString("RIFF")
	_ = binary.Write(&b, binary.LittleEndian, uint32(size-8))
	b.WriteString("WAVEfmt ")
	_ = binary.Write(&b, binary.LittleEndian, []uint32{16, 1 | 2<<16, 48_000, 192_000, 4 | 16<<16})
	b.WriteString("data")
	_ = binary.Write(&b, binary.LittleEndian, uint32(size-44))
	for b.Len() < size-8 {
		_ = binary.Write(&b, binary.LittleEndian, rand.Uint64())
	}
	b.Write(make([]byte, size-b.Len()))
	return b.Bytes()
}

// silent returns the address of a server that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}
