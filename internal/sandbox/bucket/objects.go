package bucket

import (
	"encoding/hex"
	"encoding/xml"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// keptHeaders are given back with an object as they were put.
var keptHeaders = []string{"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires"}

// described is an object with what the request says about it, without bytes.
func described(r *http.Request, key string) object {
	o := object{Key: key, ContentType: r.Header.Get("Content-Type"), Headers: map[string]string{}, ModifiedAt: time.Now().UTC().Truncate(time.Second)}
	if o.ContentType == "" {
		o.ContentType = "binary/octet-stream"
	}
	for _, name := range keptHeaders {
		if v := r.Header.Get(name); v != "" {
			o.Headers[name] = v
		}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			o.Headers[name] = r.Header.Get(name)
		}
	}
	return o
}

// receive writes a request's body into the data folder. On failure nothing is
// left there.
func (b *Bucket) receive(r *http.Request, s signature) (name string, p *payload, fail *failure) {
	p, fail = b.newPayload(r, s)
	if fail != nil {
		return "", nil, fail
	}
	name, path := b.store.newData()
	file, err := os.Create(path)
	if err != nil {
		return "", nil, internal(err)
	}
	fail = p.copyTo(file)
	if err := file.Close(); err != nil && fail == nil {
		fail = internal(err)
	}
	if fail != nil {
		if err := os.Remove(path); err != nil {
			return "", nil, internal(err)
		}
		return "", nil, fail
	}
	return name, p, nil
}

func (b *Bucket) putObject(w http.ResponseWriter, r *http.Request, key string, s signature) *failure {
	if fail := b.precondition(r, key); fail != nil {
		return fail
	}
	name, p, fail := b.receive(r, s)
	if fail != nil {
		return fail
	}
	o := described(r, key)
	o.File, o.SizeBytes, o.Checksums = name, p.sizeBytes, p.checksumValues()
	o.ETag = `"` + hex.EncodeToString(p.md5.Sum(nil)) + `"`
	if fail := b.commit(r, o); fail != nil {
		return fail
	}
	for checksum, value := range o.Checksums {
		w.Header().Set(checksum, value)
	}
	w.Header().Set("ETag", o.ETag)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	return nil
}

// commit makes o visible, unless the request's precondition fails by now; its
// bytes are removed then.
func (b *Bucket) commit(r *http.Request, o object) *failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	if fail := b.preconditionLocked(r, o.Key); fail != nil {
		if err := removeIfThere(b.store.path(o.File)); err != nil {
			return internal(err)
		}
		return fail
	}
	if err := b.store.put(o); err != nil {
		return internal(err)
	}
	return nil
}

func (b *Bucket) precondition(r *http.Request, key string) *failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.preconditionLocked(r, key)
}

func (b *Bucket) preconditionLocked(r *http.Request, key string) *failure {
	o, exists := b.store.objects[key]
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if none == "*" && exists || match != "" && (!exists || match != "*" && match != o.ETag) {
		return &failure{412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold."}
	}
	return nil
}

// open finds an object and opens its bytes; a replacement afterwards does not
// touch them.
func (b *Bucket) open(key string) (object, *os.File, *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, exists := b.store.objects[key]
	if !exists {
		return object{}, nil, &failure{404, "NoSuchKey", "The specified key does not exist."}
	}
	file, err := os.Open(b.store.path(o.File))
	if err != nil {
		return object{}, nil, internal(err)
	}
	return o, file, nil
}

func (b *Bucket) getObject(w http.ResponseWriter, r *http.Request, key string, _ signature) *failure {
	o, file, fail := b.open(key)
	if fail != nil {
		return fail
	}
	defer func() { _ = file.Close() }()
	header := w.Header()
	header.Set("Content-Type", o.ContentType)
	for name, value := range o.Headers {
		header.Set(name, value)
	}
	if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" && r.Header.Get("Range") == "" {
		for name, value := range o.Checksums {
			header.Set(name, value)
		}
	}
	for parameter, name := range map[string]string{
		"response-content-type": "Content-Type", "response-content-disposition": "Content-Disposition",
		"response-cache-control": "Cache-Control", "response-content-encoding": "Content-Encoding",
		"response-content-language": "Content-Language", "response-expires": "Expires",
	} {
		if v := r.URL.Query().Get(parameter); v != "" {
			header.Set(name, v)
		}
	}
	header.Set("ETag", o.ETag)
	http.ServeContent(w, r, "", o.ModifiedAt, file)
	return nil
}

func (b *Bucket) deleteObject(w http.ResponseWriter, _ *http.Request, key string, _ signature) *failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.store.remove(key); err != nil {
		return internal(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readXML receives a small body, verified like any other.
func (b *Bucket) readXML(r *http.Request, s signature) ([]byte, *failure) {
	name, _, fail := b.receive(r, s)
	if fail != nil {
		return nil, fail
	}
	path := b.store.path(name)
	body, err := os.ReadFile(path)
	if err := errors.Join(err, os.Remove(path)); err != nil {
		return nil, internal(err)
	}
	return body, nil
}

type listedObject struct {
	Key          string
	LastModified time.Time
	ETag         string
	Size         int64
	StorageClass string
}

type listResult struct {
	XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
	Name                  string
	Prefix                string
	EncodingType          string `xml:",omitempty"`
	MaxKeys               int
	KeyCount              int
	IsTruncated           bool
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listedObject
}

func (b *Bucket) listObjects(w http.ResponseWriter, r *http.Request, _ string, _ signature) *failure {
	query := r.URL.Query()
	result := listResult{Name: b.opts.Name, Prefix: query.Get("prefix"),
		EncodingType: query.Get("encoding-type"), MaxKeys: 1000, ContinuationToken: query.Get("continuation-token")}
	if query.Get("list-type") != "2" || query.Has("delimiter") || query.Has("start-after") {
		return &failure{501, "NotImplemented", "Only version 2 of the listing is implemented, by prefix."}
	}
	if v := query.Get("max-keys"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return &failure{400, "InvalidArgument", "max-keys"}
		}
		result.MaxKeys = min(n, 1000)
	}
	after := ""
	if result.ContinuationToken != "" {
		raw, err := hex.DecodeString(result.ContinuationToken)
		if err != nil {
			return &failure{400, "InvalidArgument", "The continuation token provided is incorrect"}
		}
		after = string(raw)
	}
	b.mu.Lock()
	b.list(&result, after)
	b.mu.Unlock()
	if result.EncodingType == "url" {
		for i := range result.Contents {
			result.Contents[i].Key = escape(result.Contents[i].Key, true)
		}
	}
	answer(w, http.StatusOK, result)
	return nil
}

// list fills a page with the keys after one.
func (b *Bucket) list(result *listResult, after string) {
	last := ""
	for _, key := range b.store.keys(result.Prefix) {
		if key <= after {
			continue
		}
		if result.KeyCount == result.MaxKeys {
			result.IsTruncated = result.MaxKeys > 0
			result.NextContinuationToken = hex.EncodeToString([]byte(last))
			return
		}
		result.KeyCount++
		last = key
		o := b.store.objects[key]
		result.Contents = append(result.Contents, listedObject{key, o.ModifiedAt, o.ETag, o.SizeBytes, "STANDARD"})
	}
}
