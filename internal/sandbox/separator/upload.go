package separator

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/stems"
)

// blob is the place of one upload. Guarded by Provider.mu.
type blob struct {
	id, name  string
	signature string
	expires   time.Time
	path      string // of the uploaded bytes; "" until they are complete
}

const sasLife = time.Hour

func (p *Provider) sasToken(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("fileName")
	if strings.TrimSpace(name) == "" {
		refuse(w, http.StatusBadRequest, "FILE_400", "fileName is required")
		return
	}
	b := &blob{id: fake.RandomHex(16), name: name, signature: fake.RandomHex(32), expires: time.Now().Add(sasLife)}
	p.mu.Lock()
	p.blobs[b.id] = b
	p.mu.Unlock()
	query := url.Values{"sv": {"2024-11-04"}, "se": {b.expires.UTC().Format(time.RFC3339)}, "sr": {"b"}, "sp": {"cw"}, "sig": {b.signature}}
	fake.WriteJSON(w, http.StatusOK, map[string]string{
		"blobSasUrl":         p.blobURL(b) + "?" + query.Encode(),
		"expirationDatetime": b.expires.UTC().Format(time.RFC3339),
	})
}

// blobURL is the blob's address without its signature.
func (p *Provider) blobURL(b *blob) string {
	return p.Upload.URL() + "/upload-container/" + b.id + "/" + url.PathEscape(b.name)
}

// putBlob stores the bytes as block-blob storage does.
func (p *Provider) putBlob(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	b := p.blobs[r.PathValue("blob")]
	p.mu.Unlock()
	query := r.URL.Query()
	switch {
	case b == nil || b.name != r.PathValue("name"):
		refuse(w, http.StatusNotFound, "ContainerNotFound", "The specified container does not exist.")
		return
	case query.Get("sig") != b.signature || time.Now().After(b.expires):
		refuse(w, http.StatusForbidden, "AuthenticationFailed", "Server failed to authenticate the request.")
		return
	case r.Header.Get("x-ms-blob-type") != "BlockBlob":
		refuse(w, http.StatusBadRequest, "MissingRequiredHeader", "x-ms-blob-type is missing.")
		return
	case r.ContentLength < 0:
		refuse(w, http.StatusLengthRequired, "MissingContentLengthHeader", "Content-Length was not specified.")
		return
	}
	path := filepath.Join(p.opts.Dir, "uploads", b.id+"-"+fake.RandomHex(4))
	if err := saveBody(r, path); err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	p.mu.Lock()
	b.path = path
	p.mu.Unlock()
	w.Header().Set("ETag", `"0x`+strings.ToUpper(fake.RandomHex(8))+`"`)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusCreated)
}

// saveBody stores a whole body, or nothing if the body is incomplete.
func saveBody(r *http.Request, path string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, r.Body)
	if err := errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func (p *Provider) register(w http.ResponseWriter, r *http.Request) {
	var body struct {
		SpaceSeq int64
		FileURL  string
		FileName string
	}
	if err := fake.ReadJSON(r, &body); err != nil {
		refuse(w, http.StatusBadRequest, "COMMON_400", "malformed body")
		return
	}
	if body.SpaceSeq != p.opts.Space {
		refuse(w, http.StatusForbidden, "SPACE_403", "No access to this space")
		return
	}
	path := p.uploaded(body.FileURL)
	if path == "" || body.FileName == "" {
		refuse(w, http.StatusBadRequest, "FILE_404", "no uploaded file at fileUrl")
		return
	}
	p.mu.Lock()
	seq := p.newID()
	p.mu.Unlock()
	raw := path + ".pcm"
	frames, err := stems.Decode(r.Context(), path, raw)
	if err != nil {
		refuse(w, http.StatusBadRequest, "FILE_415", "the file holds no audio")
		return
	}
	p.mu.Lock()
	p.media[seq] = raw
	p.mu.Unlock()
	fake.WriteJSON(w, http.StatusOK, map[string]any{
		"seq": seq, "durationMs": frames * 1000 / stems.SampleRate, "originalName": body.FileName, "mediaType": "audio",
	})
}

// uploaded returns the path of the bytes behind a blob's address without its query, or "".
func (p *Provider) uploaded(fileURL string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.blobs {
		if b.path != "" && p.blobURL(b) == fileURL {
			return b.path
		}
	}
	return ""
}
