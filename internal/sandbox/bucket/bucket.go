// Package bucket stands in for the object store: one bucket behind the S3 protocol. It verifies every signature and
// refuses what the real store refuses; SetManner makes it refuse what other stores refuse. Objects are kept in a folder
// and survive a restart.
//
// It omits everything that the service does not use: anonymous access, versions, access lists, several buckets, copies,
// bulk deletion, chunked bodies, metadata. Of the checksums it supports only the signature's, because tests put bytes
// that do not match their key.
package bucket

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"cutroom/internal/sandbox/fake"
)

// The steps by which calls are counted and faults are selected; operations lists them all.
const (
	StepPut  = "put-object"
	StepGet  = "get-object"
	StepHead = "head-object"
)

// Options configures a Bucket. All are required.
type Options struct {
	Name            string
	AccessKeyID     string
	SecretAccessKey string
	Dir             string // where objects are kept
}

// Bucket is the stand-in. It is safe for concurrent use.
type Bucket struct {
	*fake.Host
	opts Options

	mu          sync.Mutex
	store       *store
	uploads     map[string]*upload // by upload id
	clockOffset time.Duration
	manner      Manner
}

// New opens the bucket in its folder.
func New(opts Options) (*Bucket, error) {
	store, err := openStore(opts.Dir)
	if err != nil {
		return nil, err
	}
	b := &Bucket{Host: fake.NewHost(nil), opts: opts, store: store, uploads: map[string]*upload{}, manner: usual}
	var steps []string
	for _, o := range operations {
		steps = append(steps, o.step)
	}
	b.HandleSteps(steps, func(r *http.Request) string {
		_, key := b.split(r)
		return operationOf(r, key).step
	}, "/", b.serve)
	fake.Control(b.Host, "PUT", "clock", "move the clock by which signed addresses expire; ahead is such as 90s or 2h, 0s is now",
		clock{Ahead: "0s"}, func(_ context.Context, c clock) (any, error) {
			by, err := time.ParseDuration(c.Ahead)
			b.SetClock(by)
			return nil, err
		})
	fake.Control(b.Host, "PUT", "manner", "answer like another store; what is left out is as at first", usual,
		func(_ context.Context, m Manner) (any, error) { return nil, b.SetManner(m) })
	return b, nil
}

type clock struct {
	Ahead string `json:"ahead"`
}

// SetClock shifts the clock that presigned URLs expire by; a positive offset is the future.
func (b *Bucket) SetClock(offset time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clockOffset = offset
}

// Objects lists all stored objects by key.
func (b *Bucket) Objects() []Object {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []Object{}
	for _, key := range b.store.keys("") {
		list = append(list, b.store.objects[key])
	}
	return list
}

// ReadObject returns an object's bytes, bypassing the protocol.
func (b *Bucket) ReadObject(key string) ([]byte, error) {
	b.mu.Lock()
	o, exists := b.store.objects[key]
	path := b.store.path(o.File)
	b.mu.Unlock()
	if !exists {
		return nil, fmt.Errorf("object %q: %w", key, os.ErrNotExist)
	}
	return os.ReadFile(path)
}

// CorruptObject overwrites only an object's bytes, as a failing disk would. If data has a different length, the
// recorded size changes too.
func (b *Bucket) CorruptObject(key string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, exists := b.store.objects[key]
	if !exists {
		return fmt.Errorf("object %q: %w", key, os.ErrNotExist)
	}
	name, path := b.store.newData()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("corrupt object: %w", err)
	}
	o.File, o.SizeBytes = name, int64(len(data))
	return b.store.put(o)
}

// Age makes every object older.
func (b *Bucket) Age(by time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.store.objects {
		o.ModifiedAt = o.ModifiedAt.Add(-by)
		if err := b.store.put(o); err != nil {
			return err
		}
	}
	return nil
}

// failure is an error answer of the protocol. Any other error becomes a 500.
type failure struct {
	status  int
	code    string
	message string
}

func (f *failure) Error() string { return f.message }

type errorBody struct {
	XMLName   xml.Name `xml:"Error"`
	Code      string
	Message   string
	Resource  string
	RequestID string `xml:"RequestId"`
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	f := &failure{500, "InternalError", err.Error()}
	errors.As(err, &f)
	if r.Method == http.MethodHead {
		w.WriteHeader(f.status)
		return
	}
	answer(w, f.status, errorBody{Code: f.code, Message: f.message, Resource: r.URL.Path, RequestID: w.Header().Get("X-Amz-Request-Id")})
}

// compressing is the writer of an answer to a request that accepts gzip. Like MinIO, the stand-in then compresses
// documents, but never objects.
type compressing struct{ http.ResponseWriter }

func (c compressing) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// answer sends an XML document.
func answer(w http.ResponseWriter, status int, v any) {
	body := append([]byte(xml.Header), fake.Must(xml.Marshal(v))...)
	w.Header().Set("Content-Type", "application/xml")
	if _, ok := w.(compressing); ok {
		var small bytes.Buffer
		z := gzip.NewWriter(&small)
		_, _ = z.Write(body) // writing to a buffer never fails
		_ = z.Close()
		body = small.Bytes()
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // after a failed write nobody can receive the error
}

// shared applies the bucket's CORS rule: pages of any origin may use signed requests. It reports whether the
// request was a preflight.
func shared(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Origin") == "" {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Expose-Headers", "ETag, Accept-Ranges, Content-Length, Content-Range")
	if r.Method != http.MethodOptions {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, PUT")
	w.Header().Set("Access-Control-Allow-Headers", "Content-Type, Range")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// split returns the bucket and the key of an address. The bucket is the first label of the host name or the first part
// of the path.
func (b *Bucket) split(r *http.Request) (bucket, key string) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if b.named(r) {
		return b.opts.Name, path
	}
	bucket, key, _ = strings.Cut(path, "/")
	return bucket, key
}

// named reports whether the host name begins with the bucket's name.
func (b *Bucket) named(r *http.Request) bool { return strings.HasPrefix(r.Host, b.opts.Name+".") }

// operation is one operation of the store. The first one that matches a request handles it.
type operation struct {
	step      string
	method    string // "" matches any
	ofObject  bool   // false: of the bucket
	parameter string // query parameter, or "" for any query
	do        func(b *Bucket, w http.ResponseWriter, r *http.Request, key string, s signature) error
}

var operations = []operation{
	{"get-versioning", "GET", false, "versioning", (*Bucket).getVersioning},
	{"list-uploads", "GET", false, "uploads", (*Bucket).listUploads},
	{"list-objects", "GET", false, "list-type", (*Bucket).listObjects},
	{"upload-part", "PUT", true, "uploadId", (*Bucket).uploadPart},
	{StepPut, "PUT", true, "", (*Bucket).putObject},
	{"create-upload", "POST", true, "uploads", (*Bucket).createUpload},
	{"complete-upload", "POST", true, "", (*Bucket).completeUpload},
	{"abort-upload", "DELETE", true, "uploadId", (*Bucket).abortUpload},
	{"delete-object", "DELETE", true, "", (*Bucket).deleteObject},
	{StepHead, "HEAD", true, "", (*Bucket).getObject},
	{"list-parts", "", true, "uploadId", (*Bucket).listParts},
	{StepGet, "", true, "", (*Bucket).getObject},
}

func operationOf(r *http.Request, key string) operation {
	for _, o := range operations {
		if (o.method == "" || o.method == r.Method) && o.ofObject == (key != "") && (o.parameter == "" || r.URL.Query().Has(o.parameter)) {
			return o
		}
	}
	return operation{step: fake.StepUnknown}
}

func (b *Bucket) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Amz-Request-Id", strings.ToUpper(fake.RandomHex(8)))
	if shared(w, r) {
		return
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w = compressing{w}
	}
	if err := b.obey(w, r); err != nil {
		refuse(w, r, err)
	}
}

func (b *Bucket) obey(w http.ResponseWriter, r *http.Request) error {
	s, err := b.authorize(r)
	if err != nil {
		return err
	}
	b.mu.Lock()
	manner := b.manner
	b.mu.Unlock()
	if err := manner.refuse(r, s, b.named(r)); err != nil {
		return err
	}
	name, key := b.split(r)
	if name != b.opts.Name {
		return &failure{404, "NoSuchBucket", "The specified bucket does not exist."}
	}
	o := operationOf(r, key)
	if o.do == nil {
		return &failure{501, "NotImplemented", "A header or query you provided implies functionality that is not implemented."}
	}
	return o.do(b, w, r, key, s)
}
