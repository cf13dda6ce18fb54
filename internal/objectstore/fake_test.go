package objectstore_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memoryS3 speaks enough of S3 to run the suite where no real server is at
// hand. It checks no signatures: what depends on them runs only against a
// real server.
type memoryS3 struct {
	mu      sync.Mutex
	objects map[string]memoryObject // by "bucket/key"
	uploads map[string]map[int][]byte
	types   map[string]string // content type of an upload
	serial  int
}

type memoryObject struct {
	body        []byte
	contentType string
	etag        string
	modified    time.Time
}

func newMemoryS3() *memoryS3 {
	return &memoryS3{objects: map[string]memoryObject{}, uploads: map[string]map[int][]byte{}, types: map[string]string{}}
}

func (m *memoryS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.ContentLength >= 0 && int64(len(body)) != r.ContentLength {
		s3Error(w, http.StatusBadRequest, "IncompleteBody")
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/")
	query := r.URL.Query()
	id := query.Get("uploadId")
	switch {
	case r.Method == http.MethodGet && query.Has("list-type"):
		m.list(w, key, query.Get("prefix"), query.Get("continuation-token"))
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		m.get(w, r, key)
	case r.Method == http.MethodPost && query.Has("uploads"):
		m.serial++
		id := strconv.Itoa(m.serial)
		m.uploads[id] = map[int][]byte{}
		m.types[id] = r.Header.Get("Content-Type")
		writeXML(w, "InitiateMultipartUploadResult", "<UploadId>"+id+"</UploadId>")
	case id != "" && m.uploads[id] == nil:
		s3Error(w, http.StatusNotFound, "NoSuchUpload")
	case r.Method == http.MethodPut && id != "":
		number, _ := strconv.Atoi(query.Get("partNumber"))
		m.uploads[id][number] = body
		w.Header().Set("ETag", etagOf(body))
	case r.Method == http.MethodPost && id != "":
		m.complete(w, key, id, body)
	case r.Method == http.MethodDelete && id != "":
		delete(m.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut && r.Header.Get("x-amz-copy-source") != "":
		source, ok := m.objects[strings.TrimPrefix(r.Header.Get("x-amz-copy-source"), "/")]
		if !ok {
			s3Error(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		m.put(key, source.body, source.contentType)
		writeXML(w, "CopyObjectResult", "<ETag>"+source.etag+"</ETag>")
	case r.Method == http.MethodPut:
		m.put(key, body, r.Header.Get("Content-Type"))
		w.Header().Set("ETag", etagOf(body))
	case r.Method == http.MethodDelete:
		delete(m.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		s3Error(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (m *memoryS3) put(key string, body []byte, contentType string) {
	m.objects[key] = memoryObject{body: body, contentType: contentType, etag: etagOf(body), modified: time.Now()}
}

func (m *memoryS3) get(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := m.objects[key]
	if !ok {
		s3Error(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", o.etag)
	w.Header().Set("Content-Type", o.contentType)
	if len(o.body) == 0 && r.Header.Get("Range") != "" {
		s3Error(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
		return
	}
	http.ServeContent(w, r, "", o.modified, bytes.NewReader(o.body))
}

// list answers pages of two keys, so that paging is exercised.
func (m *memoryS3) list(w http.ResponseWriter, bucket, prefix, after string) {
	var keys []string
	for name := range m.objects {
		key := strings.TrimPrefix(name, strings.TrimSuffix(bucket, "/")+"/")
		if strings.HasPrefix(key, prefix) && key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var out strings.Builder
	if len(keys) > 2 {
		keys = keys[:2]
		fmt.Fprintf(&out, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", keys[1])
	}
	for _, key := range keys {
		o := m.objects[strings.TrimSuffix(bucket, "/")+"/"+key]
		fmt.Fprintf(&out, "<Contents><Key>%s</Key><Size>%d</Size><LastModified>%s</LastModified></Contents>",
			key, len(o.body), o.modified.UTC().Format(time.RFC3339))
	}
	writeXML(w, "ListBucketResult", out.String())
}

func (m *memoryS3) complete(w http.ResponseWriter, key, id string, body []byte) {
	var request struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(body, &request); err != nil {
		s3Error(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	var whole []byte
	for _, p := range request.Part {
		part, ok := m.uploads[id][p.PartNumber]
		if !ok || etagOf(part) != p.ETag {
			s3Error(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		whole = append(whole, part...)
	}
	m.put(key, whole, m.types[id])
	delete(m.uploads, id)
	writeXML(w, "CompleteMultipartUploadResult", "<Key>"+key+"</Key>")
}

// pendingUploads counts multipart uploads that were neither completed nor aborted.
func (m *memoryS3) pendingUploads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.uploads)
}

func etagOf(body []byte) string {
	sum := md5.Sum(body)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func writeXML(w http.ResponseWriter, root, inner string) {
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><%s>%s</%s>`, root, inner, root)
}

func s3Error(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>refused</Message></Error>`, code)
}
