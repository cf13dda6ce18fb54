package objectstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"cutroom/internal/httpcall"
)

// Check tests every operation that the service needs: put, get, presigned uploads that bind type
// and length, multipart uploads if the store has them, presigned downloads and delete. It works on
// an object of its own under "doctor/". The error names the failed step.
func (b *Bucket) Check(ctx context.Context) (err error) {
	token := rand.Text()
	c := &check{bucket: b, key: "doctor/" + token + ".txt", content: bytes.Repeat([]byte(token), checkBytes/len(token)+1)[:checkBytes]}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if derr := b.Delete(clean, c.key); err == nil && derr != nil {
			err = fmt.Errorf("check bucket: %w", derr)
		}
	}()
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"put and get", c.putAndGet},
		{"presigned upload", c.presignedPut},
		{"upload in parts", c.upload},
		{"presigned download", c.presignedGet},
		{"delete", c.delete},
	} {
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("check bucket: %s: %w", step.name, err)
		}
	}
	return nil
}

// checkBytes is the size of the test object. A bucket that is almost full or near its quota may still accept a
// few bytes.
const checkBytes = 1 << 20

// refusedBytes is the size of a body that the store may refuse unread. With a longer one, the store could close
// the connection during the upload, and its answer would be lost.
const refusedBytes = 16

// check is one run of Bucket.Check.
type check struct {
	bucket  *Bucket
	key     string
	content []byte
}

func (c *check) putAndGet(ctx context.Context) error {
	for _, content := range [][]byte{c.content[:refusedBytes], c.content} {
		if err := c.bucket.Save(ctx, c.key, content); err != nil {
			return err
		}
	}
	got, err := c.bucket.Load(ctx, c.key)
	if err == nil && !bytes.Equal(got, c.content) {
		err = errors.New("the bytes came back different")
	}
	return err
}

func (c *check) presignedPut(ctx context.Context) error {
	sign := func(content []byte) (string, error) {
		return c.bucket.PresignPut(ctx, c.key, "text/plain", int64(len(content)), sha256.Sum256(content), time.Minute, false)
	}
	signed, err := sign(c.content[:refusedBytes])
	if err != nil {
		return err
	}
	if c.send(ctx, http.MethodPut, signed, "text/html", c.content[:refusedBytes]) == nil {
		return errors.New("the store accepted a content type other than the signed one")
	}
	if signed, err = sign(c.content); err != nil {
		return err
	}
	return c.send(ctx, http.MethodPut, signed, "text/plain", c.content)
}

// send makes a presigned request. Any status but 200 is an error.
func (c *check) send(ctx context.Context, method, signed, contentType string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, signed, bytes.NewReader(body))
	if err != nil {
		return errors.New("signed URL is malformed")
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := c.bucket.http.Do(req)
	if err != nil {
		return errors.New(c.bucket.scrub(httpcall.WithoutURL(err).Error()))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the store answered %d", res.StatusCode)
	}
	return nil
}

// upload starts a multipart upload, sends one part, lists it, and aborts.
func (c *check) upload(ctx context.Context) (err error) {
	id, err := c.bucket.CreateUpload(ctx, c.key, "text/plain")
	if errors.Is(err, ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.bucket.AbortUpload(ctx, c.key, id)) }()
	signed, err := c.bucket.PresignPart(ctx, c.key, id, 1, int64(len(c.content)), time.Minute)
	if err != nil {
		return err
	}
	if err := c.send(ctx, http.MethodPut, signed, "", c.content); err != nil {
		return err
	}
	switch parts, err := c.bucket.UploadParts(ctx, c.key, id); {
	case err != nil:
		return err
	case parts[1].SizeBytes != int64(len(c.content)):
		return errors.New("the part is not listed")
	}
	return nil
}

func (c *check) presignedGet(ctx context.Context) error {
	signed, err := c.bucket.PresignGet(ctx, c.key, time.Minute, "doctor.txt", "text/plain", false)
	if err != nil {
		return err
	}
	return c.send(ctx, http.MethodGet, signed, "", nil)
}

func (c *check) delete(ctx context.Context) error {
	if err := c.bucket.Delete(ctx, c.key); err != nil {
		return err
	}
	_, err := c.bucket.Stat(ctx, c.key)
	switch {
	case err == nil:
		return errors.New("the object is still there")
	case errors.Is(err, ErrNotFound):
		return nil
	}
	return err
}
