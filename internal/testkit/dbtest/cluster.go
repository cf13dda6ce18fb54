// Starts PostgreSQL servers for tests from the binaries on this machine, with TLS and passwords. A supervisor removes a
// server's folder when the test process ends.

package dbtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"cutroom/internal/sandbox/process"
)

// Cluster is a running PostgreSQL server with a folder of its own.
type Cluster struct {
	// URL is postgres://user:password@127.0.0.1:port/postgres?sslmode=require.
	URL string

	bin, dir string
	port     string
	password string              // of the role cutroom
	cred     *syscall.Credential // the user that the server runs as; nil means the current user
	lifeline io.Closer           // the supervisor stops the server when this closes
	cmd      *exec.Cmd
}

// settings trade durability for speed, because the data is temporary.
const settings = `
listen_addresses = '127.0.0.1'
port = %s
unix_socket_directories = '%s'
ssl = on
ssl_cert_file = 'server.crt'
ssl_key_file = 'server.key'
fsync = off
autovacuum = off
synchronous_commit = off
full_page_writes = off
max_connections = 400
shared_buffers = 64MB
wal_level = minimal
max_wal_senders = 0
log_min_messages = fatal
`

// hba requires TLS and a password over TCP.
const hba = `
local   all,replication all trust
hostssl all all 127.0.0.1/32 scram-sha-256
`

// supervise runs the server until its standard input ends, then stops the server and removes its folder ($2). The input
// also ends if the process that started the script is killed.
const supervise = `
"$1/postgres" -D "$2" >"$2/server.log" 2>&1 &
pid=$!
cat >/dev/null
kill -QUIT $pid
wait $pid
rm -rf "$2"
`

// Start creates and starts a cluster. config holds additional lines for its configuration. The cluster stops with Stop
// or with the process.
func Start(ctx context.Context, config ...string) (*Cluster, error) {
	return start(ctx, strings.Join(config, "\n"), initdb(ctx))
}

func initdb(ctx context.Context) func(c *Cluster) error {
	return func(c *Cluster) error {
		return c.command(ctx, "initdb", "-D", c.dir, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	}
}

// start starts a cluster in the data folder that fill creates, with additional settings.
func start(ctx context.Context, settings string, fill func(c *Cluster) error) (*Cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	// Not t.TempDir: the cluster outlives the test that started it, and the server's user must be able to enter the
	// folder.
	dir, err := os.MkdirTemp("", "cutroom-pg-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for PostgreSQL: %w", err)
	}
	c := &Cluster{bin: bin, dir: dir, password: random(12)}
	if c.cred, err = serverUser(dir); err != nil {
		return nil, err
	}
	if c.port, err = process.FreePort(); err == nil {
		err = fill(c)
	}
	if err == nil {
		err = c.configure(settings)
	}
	if err == nil {
		err = c.run()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.ready(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	c.URL = fmt.Sprintf("postgres://cutroom:%s@127.0.0.1:%s/postgres?sslmode=require", c.password, c.port)
	return c, nil
}

// Stop ends the server as a crash would, removes its folder and waits for both.
func (c *Cluster) Stop() error {
	if err := c.lifeline.Close(); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	return c.cmd.Wait()
}

// command runs one of PostgreSQL's programs.
func (c *Cluster) command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// configure writes the configuration files into a data folder.
func (c *Cluster) configure(more string) error {
	cert, key, err := selfSigned()
	if err != nil {
		return err
	}
	return writeFiles(c.dir, c.cred, map[string][]byte{
		"server.crt":           cert,
		"server.key":           key,
		"pg_hba.conf":          []byte(hba),
		"postgresql.auto.conf": fmt.Appendf(nil, settings+more, c.port, c.dir),
	})
}

// writeFiles writes files that the user owns, by name.
func writeFiles(dir string, owner *syscall.Credential, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if owner != nil {
			if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
				return fmt.Errorf("own %s: %w", name, err)
			}
		}
	}
	return nil
}

func (c *Cluster) run() error {
	c.cmd = exec.Command("sh", "-c", supervise, "postgres-for-tests", c.bin, c.dir)
	c.cmd.Dir = "/"
	// The cluster has its own process group, because an interrupt from the terminal must not stop it before the tests
	// end.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred, Setpgid: true}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	c.lifeline = stdin
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	return nil
}

// superuser returns the address of the socket, where the server's own user needs no password.
func (c *Cluster) superuser() string {
	return fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres", c.dir, c.port)
}

// ready waits until the server accepts connections. On a primary, it creates the role that tests use.
func (c *Cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.superuser())
		if err == nil {
			defer conn.Close(ctx)
			var standby bool
			if err = conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err == nil && !standby {
				_, err = conn.Exec(ctx, fmt.Sprintf("CREATE ROLE cutroom LOGIN CREATEDB CREATEROLE PASSWORD '%s'", c.password))
			}
			return err
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(c.dir, "server.log"))
			return fmt.Errorf("PostgreSQL does not answer: %w: %s", err, log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// binaries finds the newest PostgreSQL on the machine.
func binaries() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		// Some systems link only a few of the programs.
		path, err = filepath.EvalSymlinks(path)
		return filepath.Dir(path), err
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", errors.New("no PostgreSQL server found (on Debian: apt-get install postgresql)")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// serverUser makes the user that the server will run as the owner of dir, because PostgreSQL does not run as root. Nil
// means the current user.
func serverUser(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("find a user for PostgreSQL: %w", err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func selfSigned() (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "localhost"},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(30 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
