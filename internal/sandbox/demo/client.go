package demo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"time"

	"cutroom/internal/sandbox/api"
)

// client sends the same requests as the mobile app.
type client struct{ *api.Client }

func newClient(base string) *client { return &client{api.New(base)} }

func (c *client) balance(ctx context.Context) (int64, error) {
	var answer struct{ Balance *int64 }
	if err := c.Get(ctx, "/api/v2/credits", &answer); err != nil {
		return 0, err
	}
	if answer.Balance == nil {
		return 0, errors.New("GET /api/v2/credits: no balance in the answer")
	}
	return *answer.Balance, nil
}

// quote is the price of a separation.
type quote struct {
	DurationMs, Credits, Balance int64
	Sufficient                   bool
}

func (c *client) quote(ctx context.Context, d time.Duration) (quote, error) {
	var q quote
	err := c.Get(ctx, "/api/v2/credits/cost?durationMs="+fmt.Sprint(d.Milliseconds()), &q)
	return q, err
}

// formPart is a part of a multipart request: a file, or text if path is empty.
type formPart struct {
	name, text, path, filename, contentType string
}

// sendForm streams a multipart request and reports the fraction sent to sent.
func (c *client) sendForm(ctx context.Context, path string, parts []formPart, sent func(float64), answer any) error {
	var total int64
	for _, p := range parts {
		if p.path != "" {
			info, err := os.Stat(p.path)
			if err != nil {
				return fmt.Errorf("POST %s: %w", path, err)
			}
			total += info.Size()
		}
	}
	reader, writer := io.Pipe()
	form := multipart.NewWriter(writer)
	done := make(chan struct{})
	go func() {
		defer close(done)
		counted := &counter{total: total, report: sent}
		err := errors.Join(writeForm(form, parts, counted), form.Close())
		_ = writer.CloseWithError(err) // documented to return nil
	}()
	err := c.Call(ctx, http.MethodPost, path, reader, form.FormDataContentType(), answer)
	_ = reader.Close() // documented to return nil; ends the writer if the service answered early
	<-done
	return err
}

func writeForm(form *multipart.Writer, parts []formPart, counted *counter) error {
	for _, p := range parts {
		header := textproto.MIMEHeader{}
		disposition := fmt.Sprintf("form-data; name=%q", p.name)
		if p.filename != "" {
			disposition += fmt.Sprintf("; filename=%q", p.filename)
		}
		header.Set("Content-Disposition", disposition)
		if p.contentType != "" {
			header.Set("Content-Type", p.contentType)
		}
		w, err := form.CreatePart(header)
		if err != nil {
			return err
		}
		if p.path == "" {
			if _, err := io.WriteString(w, p.text); err != nil {
				return err
			}
			continue
		}
		if err := copyFile(w, p.path, counted); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(w io.Writer, path string, counted *counter) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(w, io.TeeReader(file, counted))
	return err
}

// counter reports the fraction of bytes that have passed.
type counter struct {
	total, done int64
	report      func(float64)
}

func (c *counter) Write(p []byte) (int, error) {
	c.done += int64(len(p))
	if c.total > 0 && c.report != nil {
		c.report(float64(c.done) / float64(c.total))
	}
	return len(p), nil
}

// fetch downloads an address into a file and returns the file's path: stem plus the extension that the answer
// names. The file gets its final name only when it is complete.
func (c *client) fetch(ctx context.Context, address, stem string, report func(float64)) (path string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	name := "download " + req.URL.Path // without the query, which may contain a signature
	req.Header.Set("Authorization", "Bearer "+c.Token)
	res, err := c.HTTP.Do(req)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return "", fmt.Errorf("%s: status %d: %s", name, res.StatusCode, bytes.TrimSpace(text))
	}
	part := stem + ".part"
	file, err := os.Create(part)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	// If the body ends early, the copy fails.
	_, err = io.Copy(io.MultiWriter(file, &counter{total: res.ContentLength, report: report}), res.Body)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	path = stem + extensionOf(res)
	return path, os.Rename(part, path)
}

// extensionOf returns the extension of the file name in an answer, or else of the address.
func extensionOf(res *http.Response) string {
	_, params, _ := mime.ParseMediaType(res.Header.Get("Content-Disposition")) // an invalid header has no parameters
	return cmp.Or(filepath.Ext(params["filename"]), filepath.Ext(res.Request.URL.Path))
}

// mint requests an identity token from the sandbox's stand-in of provider_a.
func mint(ctx context.Context, identity, email, name string) (string, error) {
	var answer struct{ IDToken string }
	err := newClient(identity).Post(ctx, "/__control/mint", map[string]string{"email": email, "name": name}, &answer)
	if err != nil {
		return "", fmt.Errorf("ask the stand-in of provider_a for an identity token: %w", err)
	}
	return answer.IDToken, nil
}
