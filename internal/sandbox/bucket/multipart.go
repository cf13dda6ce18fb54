// Multipart uploads of the stand-in bucket: create, upload a part, list, complete with or without a condition, abort.

package bucket

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/sandbox/fake"
)

// minPartBytes is the minimum size of every part but the last.
const minPartBytes = 5 << 20

// upload is a multipart upload in progress. It is guarded by Bucket.mu. It does not survive a restart, just as a
// lifecycle rule would remove an abandoned upload.
type upload struct {
	id      string
	object  Object
	started time.Time
	parts   map[int]Object
}

func (b *Bucket) findUpload(r *http.Request, key string) (*upload, error) {
	u := b.uploads[r.URL.Query().Get("uploadId")]
	if u == nil || u.object.Key != key {
		return nil, &failure{404, "NoSuchUpload", "The specified multipart upload does not exist."}
	}
	return u, nil
}

func (b *Bucket) createUpload(w http.ResponseWriter, r *http.Request, key string, _ signature) error {
	u := &upload{id: fake.RandomHex(24), object: described(r, key), started: time.Now().UTC(), parts: map[int]Object{}}
	b.mu.Lock()
	b.uploads[u.id] = u
	b.mu.Unlock()
	answer(w, http.StatusOK, struct {
		XMLName  xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ InitiateMultipartUploadResult"`
		Bucket   string
		Key      string
		UploadID string `xml:"UploadId"`
	}{Bucket: b.opts.Name, Key: key, UploadID: u.id})
	return nil
}

func (b *Bucket) uploadPart(w http.ResponseWriter, r *http.Request, key string, s signature) error {
	number, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
	if err != nil || number < 1 || number > 10000 {
		return &failure{400, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive"}
	}
	b.mu.Lock()
	_, err = b.findUpload(r, key)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	var part Object
	if err := b.receive(r, s, &part); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u, err := b.findUpload(r, key) // it may have been aborted in the meantime
	stale := part
	if err == nil {
		stale = u.parts[number]
		u.parts[number] = part
	}
	if stale.File != "" {
		err = errors.Join(err, removeIfThere(b.store.path(stale.File)))
	}
	if err != nil {
		return err
	}
	return received(w, part.ETag)
}

type wantedPart struct {
	PartNumber int
	ETag       string
}

func (b *Bucket) completeUpload(w http.ResponseWriter, r *http.Request, key string, _ signature) error {
	var request struct {
		Parts []wantedPart `xml:"Part"`
	}
	if err := xml.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Parts) == 0 {
		return &failure{400, "MalformedXML", "The XML you provided was not well-formed."}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u, err := b.findUpload(r, key)
	if err != nil {
		return err
	}
	if err := b.precondition(r, key); err != nil {
		return err
	}
	if !slices.IsSortedFunc(request.Parts, func(a, c wantedPart) int { return a.PartNumber - c.PartNumber }) {
		return &failure{400, "InvalidPartOrder", "The list of parts was not in ascending order."}
	}
	chosen := make([]Object, 0, len(request.Parts))
	for i, wanted := range request.Parts {
		part, exists := u.parts[wanted.PartNumber]
		switch {
		case !exists || strings.Trim(wanted.ETag, `"`) != strings.Trim(part.ETag, `"`):
			return &failure{400, "InvalidPart", "One or more of the specified parts could not be found."}
		case i < len(request.Parts)-1 && part.SizeBytes < minPartBytes:
			return &failure{400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed object size."}
		}
		chosen = append(chosen, part)
	}
	o, err := b.assemble(u, chosen)
	if err == nil {
		err = errors.Join(b.store.put(o), b.discard(u))
	}
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, struct {
		XMLName  xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUploadResult"`
		Location string
		Bucket   string
		Key      string
		ETag     string
	}{Location: r.URL.Path, Bucket: b.opts.Name, Key: key, ETag: o.ETag})
	return nil
}

// assemble joins the parts. The caller holds the lock.
func (b *Bucket) assemble(u *upload, parts []Object) (_ Object, err error) {
	o := u.object
	name, path := b.store.newData()
	out, err := os.Create(path)
	if err != nil {
		return Object{}, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sums := md5.New()
	for _, part := range parts {
		in, err := os.Open(b.store.path(part.File))
		if err != nil {
			return Object{}, err
		}
		_, err = io.Copy(out, in)
		sum, hexErr := hex.DecodeString(strings.Trim(part.ETag, `"`))
		if err := errors.Join(err, in.Close(), hexErr); err != nil {
			return Object{}, err
		}
		sums.Write(sum)
		o.SizeBytes += part.SizeBytes
	}
	o.File, o.ModifiedAt = name, time.Now().UTC().Truncate(time.Second)
	o.ETag = fmt.Sprintf(`"%x-%d"`, sums.Sum(nil), len(parts))
	return o, nil
}

// discard removes an upload and its parts. The caller holds the lock.
func (b *Bucket) discard(u *upload) error {
	delete(b.uploads, u.id)
	var err error
	for _, part := range u.parts {
		err = errors.Join(err, removeIfThere(b.store.path(part.File)))
	}
	return err
}

func (b *Bucket) abortUpload(w http.ResponseWriter, r *http.Request, key string, _ signature) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, err := b.findUpload(r, key)
	if err != nil {
		return err
	}
	if err := b.discard(u); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listUploads lists the bucket's unfinished uploads.
func (b *Bucket) listUploads(w http.ResponseWriter, _ *http.Request, _ string, _ signature) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	type entry struct {
		Key       string
		UploadID  string `xml:"UploadId"`
		Initiated time.Time
	}
	result := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListMultipartUploadsResult"`
		Upload  []entry
	}{}
	for _, u := range b.uploads {
		result.Upload = append(result.Upload, entry{u.object.Key, u.id, u.started})
	}
	answer(w, http.StatusOK, result)
	return nil
}

// listParts lists all parts of an unfinished upload in one answer.
func (b *Bucket) listParts(w http.ResponseWriter, r *http.Request, key string, _ signature) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, err := b.findUpload(r, key)
	if err != nil {
		return err
	}
	type entry struct {
		PartNumber int
		ETag       string
		Size       int64
	}
	result := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListPartsResult"`
		Part    []entry
	}{}
	for _, n := range slices.Sorted(maps.Keys(u.parts)) {
		result.Part = append(result.Part, entry{n, u.parts[n].ETag, u.parts[n].SizeBytes})
	}
	answer(w, http.StatusOK, result)
	return nil
}
