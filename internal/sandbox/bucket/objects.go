package bucket

import (
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
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
	// aws-chunked describes the transfer, not the object.
	encoding := strings.TrimPrefix(strings.TrimPrefix(o.Headers["Content-Encoding"], "aws-chunked"), ",")
	if o.Headers["Content-Encoding"] = encoding; encoding == "" {
		delete(o.Headers, "Content-Encoding")
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

func (b *Bucket) deleteObjects(w http.ResponseWriter, r *http.Request, _ string, s signature) *failure {
	body, fail := b.readXML(r, s)
	if fail != nil {
		return fail
	}
	var request struct {
		Quiet   bool
		Objects []struct{ Key string } `xml:"Object"`
	}
	if err := xml.Unmarshal(body, &request); err != nil || len(request.Objects) > 1000 {
		return &failure{400, "MalformedXML", "The XML you provided was not well-formed."}
	}
	type deleted struct{ Key string }
	result := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ DeleteResult"`
		Deleted []deleted
	}{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range request.Objects {
		if err := b.store.remove(o.Key); err != nil {
			return internal(err)
		}
		if !request.Quiet {
			result.Deleted = append(result.Deleted, deleted{o.Key})
		}
	}
	answer(w, http.StatusOK, result)
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

func (b *Bucket) copyObject(w http.ResponseWriter, r *http.Request, key string, _ signature) *failure {
	source, err := url.PathUnescape(strings.TrimPrefix(r.Header.Get("X-Amz-Copy-Source"), "/"))
	bucket, from, _ := strings.Cut(source, "/")
	if err != nil || bucket != b.opts.Name {
		return &failure{404, "NoSuchBucket", "The source bucket does not exist."}
	}
	old, file, fail := b.open(from)
	if fail != nil {
		return fail
	}
	defer func() { _ = file.Close() }()
	name, path := b.store.newData()
	if err := copyFile(path, file); err != nil {
		return internal(err)
	}
	o := old
	o.Headers = maps.Clone(old.Headers)
	if r.Header.Get("X-Amz-Metadata-Directive") == "REPLACE" {
		o = described(r, key)
		o.SizeBytes, o.ETag, o.Checksums = old.SizeBytes, old.ETag, old.Checksums
	}
	o.Key, o.File, o.ModifiedAt = key, name, time.Now().UTC().Truncate(time.Second)
	if fail := b.commit(r, o); fail != nil {
		return fail
	}
	answer(w, http.StatusOK, struct {
		XMLName      xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CopyObjectResult"`
		ETag         string
		LastModified time.Time
	}{ETag: o.ETag, LastModified: o.ModifiedAt})
	return nil
}

func copyFile(path string, from io.Reader) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

type listedObject struct {
	Key          string
	LastModified time.Time
	ETag         string
	Size         int64
	StorageClass string
}

type commonPrefix struct{ Prefix string }

type listResult struct {
	XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
	Name                  string
	Prefix                string
	Delimiter             string `xml:",omitempty"`
	EncodingType          string `xml:",omitempty"`
	MaxKeys               int
	KeyCount              int
	IsTruncated           bool
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
	StartAfter            string `xml:",omitempty"`
	Contents              []listedObject
	CommonPrefixes        []commonPrefix
}

func (b *Bucket) listObjects(w http.ResponseWriter, r *http.Request, _ string, _ signature) *failure {
	query := r.URL.Query()
	result := listResult{Name: b.opts.Name, Prefix: query.Get("prefix"), Delimiter: query.Get("delimiter"),
		EncodingType: query.Get("encoding-type"), MaxKeys: 1000, StartAfter: query.Get("start-after"), ContinuationToken: query.Get("continuation-token")}
	if query.Get("list-type") != "2" {
		return &failure{501, "NotImplemented", "Only version 2 of the listing is implemented."}
	}
	if v := query.Get("max-keys"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return &failure{400, "InvalidArgument", "max-keys"}
		}
		result.MaxKeys = min(n, 1000)
	}
	after := result.StartAfter
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
		for i := range result.CommonPrefixes {
			result.CommonPrefixes[i].Prefix = escape(result.CommonPrefixes[i].Prefix, true)
		}
	}
	answer(w, http.StatusOK, result)
	return nil
}

// list fills a page with what comes after a key or a common prefix.
func (b *Bucket) list(result *listResult, after string) {
	last := ""
	for _, key := range b.store.keys(result.Prefix) {
		entry, folder := key, false
		if result.Delimiter != "" {
			if head, _, found := strings.Cut(key[len(result.Prefix):], result.Delimiter); found {
				entry, folder = result.Prefix+head+result.Delimiter, true
			}
		}
		if entry <= after || folder && entry == last {
			continue
		}
		if result.KeyCount == result.MaxKeys {
			result.IsTruncated = result.MaxKeys > 0
			result.NextContinuationToken = hex.EncodeToString([]byte(last))
			return
		}
		result.KeyCount++
		last = entry
		if folder {
			result.CommonPrefixes = append(result.CommonPrefixes, commonPrefix{entry})
			continue
		}
		o := b.store.objects[key]
		result.Contents = append(result.Contents, listedObject{key, o.ModifiedAt, o.ETag, o.SizeBytes, "STANDARD"})
	}
}
