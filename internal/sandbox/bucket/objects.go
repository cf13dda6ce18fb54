// Objects of the stand-in bucket: put, get, delete, list.

package bucket

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// described returns an object with the request's metadata, without bytes.
func described(r *http.Request, key string) Object {
	o := Object{Key: key, ContentType: r.Header.Get("Content-Type"), ModifiedAt: time.Now().UTC().Truncate(time.Second)}
	if o.ContentType == "" {
		o.ContentType = "binary/octet-stream"
	}
	return o
}

// receive writes a request's body into the data folder and records it in o. On failure it leaves nothing there.
func (b *Bucket) receive(r *http.Request, s signature, o *Object) error {
	switch {
	case strings.HasPrefix(s.payload, "STREAMING-"):
		return &failure{501, "NotImplemented", "Chunked bodies are not implemented."}
	case r.ContentLength < 0:
		return &failure{411, "MissingContentLength", "You must provide the Content-Length HTTP header."}
	}
	name, path := b.store.newData()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	etag, signed := md5.New(), sha256.New()
	if o.SizeBytes, err = io.Copy(io.MultiWriter(file, etag, signed), r.Body); err != nil {
		err = &failure{400, "IncompleteBody", err.Error()}
	} else if s.payload != unsignedPayload && s.payload != hex.EncodeToString(signed.Sum(nil)) {
		err = &failure{400, "XAmzContentSHA256Mismatch", "The provided x-amz-content-sha256 does not match what was computed."}
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	o.File, o.ETag = name, fmt.Sprintf(`"%x"`, etag.Sum(nil))
	return nil
}

// received answers a request whose bytes were stored.
func received(w http.ResponseWriter, etag string) error {
	w.Header().Set("ETag", etag)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	return nil
}

func (b *Bucket) putObject(w http.ResponseWriter, r *http.Request, key string, s signature) error {
	o := described(r, key)
	if err := b.receive(r, s, &o); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.precondition(r, key); err != nil {
		return errors.Join(err, removeIfThere(b.store.path(o.File)))
	}
	if err := b.store.put(o); err != nil {
		return err
	}
	return received(w, o.ETag)
}

// precondition checks If-None-Match. The caller holds the lock.
func (b *Bucket) precondition(r *http.Request, key string) error {
	if _, exists := b.store.objects[key]; exists && r.Header.Get("If-None-Match") == "*" && b.manner.Conditions == "known" {
		return &failure{412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold."}
	}
	return nil
}

// open finds an object and opens its bytes, which a later replacement does not change.
func (b *Bucket) open(key string) (Object, *os.File, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, exists := b.store.objects[key]
	if !exists {
		return Object{}, nil, &failure{404, "NoSuchKey", "The specified key does not exist."}
	}
	file, err := os.Open(b.store.path(o.File))
	return o, file, err
}

func (b *Bucket) getObject(w http.ResponseWriter, r *http.Request, key string, _ signature) error {
	o, file, err := b.open(key)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	header := w.Header()
	header.Set("Content-Type", o.ContentType)
	for parameter, name := range map[string]string{"response-content-type": "Content-Type",
		"response-content-disposition": "Content-Disposition"} {
		if v := r.URL.Query().Get(parameter); v != "" {
			header.Set(name, v)
		}
	}
	header.Set("ETag", o.ETag)
	http.ServeContent(w, r, "", o.ModifiedAt, file)
	return nil
}

func (b *Bucket) deleteObject(w http.ResponseWriter, _ *http.Request, key string, _ signature) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.store.remove(key); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxKeys is how many keys a page of a listing has.
const maxKeys = 1000

// listObjects answers with a page of the keys with a prefix. The token of the next page is this page's last key.
func (b *Bucket) listObjects(w http.ResponseWriter, r *http.Request, _ string, _ signature) error {
	query := r.URL.Query()
	type entry struct {
		Key          string
		LastModified time.Time
		ETag         string
		Size         int64
	}
	result := struct {
		XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
		Name, Prefix          string
		KeyCount              int
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []entry
	}{Name: b.opts.Name, Prefix: query.Get("prefix")}
	if query.Get("list-type") != "2" || query.Has("delimiter") || query.Has("start-after") || query.Has("encoding-type") {
		return &failure{501, "NotImplemented", "Only version 2 of the listing is implemented, by prefix."}
	}
	after, err := hex.DecodeString(query.Get("continuation-token"))
	if err != nil {
		return &failure{400, "InvalidArgument", "The continuation token provided is incorrect"}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	last := ""
	for _, key := range b.store.keys(result.Prefix) {
		if key <= string(after) {
			continue
		}
		if result.KeyCount == maxKeys {
			result.IsTruncated, result.NextContinuationToken = true, hex.EncodeToString([]byte(last))
			break
		}
		result.KeyCount++
		last = key
		o := b.store.objects[key]
		result.Contents = append(result.Contents, entry{key, o.ModifiedAt, o.ETag, o.SizeBytes})
	}
	answer(w, http.StatusOK, result)
	return nil
}
