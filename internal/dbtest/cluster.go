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
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Cluster is a running PostgreSQL server with a folder of its own.
type Cluster struct {
	// URL is postgres://user:password@127.0.0.1:port/postgres?sslmode=require.
	URL string

	lifeline io.Closer // the supervisor stops the server when this closes
	cmd      *exec.Cmd
}

// settings trade every kind of durability for speed: the data is thrown away.
const settings = `
listen_addresses = '127.0.0.1'
port = %d
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
autovacuum_naptime = 10s
log_min_messages = fatal
`

// hba lets nobody in without TLS and a password.
const hba = `
local   all all trust
hostssl all all 127.0.0.1/32 scram-sha-256
`

// supervise runs the server and, when its standard input ends, which it also
// does when the process that started it is killed, stops the server and
// removes its folder ($2).
const supervise = `
"$1/postgres" -D "$2" >"$2/server.log" 2>&1 &
pid=$!
cat >/dev/null
kill -QUIT $pid
wait $pid
rm -rf "$2"
`

// Start makes and starts a cluster. It ends with Stop or with the process.
func Start(ctx context.Context) (*Cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	// Not t.TempDir: the cluster outlives the test that happened to start it,
	// and the server's user must be able to enter the folder.
	dir, err := os.MkdirTemp("", "cutroom-pg-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for PostgreSQL: %w", err)
	}
	cred, err := serverUser(dir)
	if err != nil {
		return nil, err
	}
	password := random(12)
	port, err := prepare(ctx, bin, dir, cred, password)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{URL: fmt.Sprintf("postgres://cutroom:%s@127.0.0.1:%d/postgres?sslmode=require", password, port)}
	if err := c.run(bin, dir, cred); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.ready(ctx, dir, port, password); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Stop ends the server, removes its folder and returns when both are done.
func (c *Cluster) Stop() error {
	if err := c.lifeline.Close(); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	return c.cmd.Wait()
}

// prepare makes the data folder and returns the port the server will use.
func prepare(ctx context.Context, bin, dir string, cred *syscall.Credential, password string) (int, error) {
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", dir, "-U", "postgres",
		"--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	initdb.Dir = dir
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := initdb.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("initdb: %w: %s", err, out)
	}
	cert, key, err := selfSigned()
	if err != nil {
		return 0, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return 0, err
	}
	for name, content := range map[string][]byte{
		"server.crt":           cert,
		"server.key":           key,
		"pg_hba.conf":          []byte(hba),
		"postgresql.auto.conf": fmt.Appendf(nil, settings, port, dir),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return 0, fmt.Errorf("write %s: %w", name, err)
		}
		if cred != nil {
			if err := os.Chown(path, int(cred.Uid), int(cred.Gid)); err != nil {
				return 0, fmt.Errorf("own %s: %w", name, err)
			}
		}
	}
	return port, nil
}

func (c *Cluster) run(bin, dir string, cred *syscall.Credential) error {
	c.cmd = exec.Command("sh", "-c", supervise, "postgres-for-tests", bin, dir)
	c.cmd.Dir = "/"
	// Its own group: an interrupt from the terminal must not reach it before
	// the tests have ended.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Setpgid: true}
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

// ready waits until the server answers and makes the role that tests use.
func (c *Cluster) ready(ctx context.Context, dir string, port int, password string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	local := fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres", dir, port)
	for {
		conn, err := pgx.Connect(ctx, local)
		if err == nil {
			defer conn.Close(ctx)
			_, err = conn.Exec(ctx, fmt.Sprintf("CREATE ROLE cutroom LOGIN CREATEDB CREATEROLE PASSWORD '%s'", password))
			return err
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(dir, "server.log"))
			return fmt.Errorf("PostgreSQL does not answer: %w: %s", err, log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// binaries finds the newest PostgreSQL on the machine.
func binaries() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", errors.New("no PostgreSQL server found (on Debian: apt-get install postgresql)")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	sort.Slice(found, func(i, j int) bool { return version(found[i]) > version(found[j]) })
	return filepath.Dir(found[0]), nil
}

// serverUser gives dir to the user that the server will run as, because
// PostgreSQL refuses to run as root. Nil means the current user.
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

func freePort(ctx context.Context) (int, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
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
