// Checks a bucket for the doctor: every operation that the service needs, on an object of its own.

package objectstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"cutroom/internal/base/httpcall"
)

// Check tests every operation that the service needs: put, get, presigned uploads that bind type and length, multipart
// uploads if the store has them, presigned downloads and delete. It works on an object of its own under "doctor/". The
// error names the failed step. The notes are sentences about what an operator should know even though the bucket works.
func (b *Bucket) Check(ctx context.Context) (notes []string, err error) {
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
		{"conditional put", c.conditionalPut},
		{"presigned upload", c.presignedPut},
		{"upload in parts", c.upload},
		{"presigned download", c.presignedGet},
		{"delete", c.delete},
	} {
		if err := step.run(ctx); err != nil {
			return nil, fmt.Errorf("check bucket: %s: %w", step.name, err)
		}
	}
	b.checkVersioning(ctx, c)
	return c.notes, nil
}

// checkVersioning adds a note if the bucket keeps deleted objects. Some stores cannot tell, and some keys lack the
// permission to ask.
func (b *Bucket) checkVersioning(ctx context.Context, c *check) {
	call, cancel := b.call(ctx)
	defer cancel()
	out, err := b.client.GetBucketVersioning(call, &s3.GetBucketVersioningInput{Bucket: &b.bucket})
	if err == nil && out.Status == types.BucketVersioningStatusEnabled {
		c.notes = append(c.notes, "the bucket keeps versions: nothing that is deleted is ever erased, deleted accounts' files included; "+
			"switch versioning off or add a lifecycle rule that removes noncurrent versions")
	}
	if err == nil {
		return
	}
	if status, _, _ := describe(err); status == http.StatusForbidden {
		c.notes = append(c.notes, "whether the bucket keeps versions is unknown: the key lacks s3:GetBucketVersioning")
	}
}

// checkBytes is the size of the test object. A bucket that is almost full or near its quota may still accept a few
// bytes.
const checkBytes = 1 << 20

// refusedBytes is the size of a body that the store may refuse unread. With a longer one, the store could close the
// connection during the upload, and its answer would be lost.
const refusedBytes = 16

// check is one run of Bucket.Check.
type check struct {
	bucket  *Bucket
	key     string
	content []byte
	notes   []string
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

// conditionalPut tries a put with a condition that does not hold.
func (c *check) conditionalPut(ctx context.Context) error {
	return c.condition("put", c.bucket.Create(ctx, c.key, c.content))
}

// condition judges the result of a request with the condition that the test object does not exist. A store without
// conditions works, but cannot keep two writers of one key apart.
func (c *check) condition(request string, err error) error {
	switch {
	case errors.Is(err, ErrExists):
		return nil
	case err == nil:
		c.notes = append(c.notes, "the store ignores the condition of a "+request+" (If-None-Match)")
	case errors.Is(err, ErrUnsupported):
		c.notes = append(c.notes, "the store knows no condition of a "+request+" (If-None-Match): "+err.Error())
	default:
		return err
	}
	return nil
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
		var refusal struct{ Code, Message string }
		_ = xml.NewDecoder(io.LimitReader(res.Body, maxSmallBytes)).Decode(&refusal) // a proxy answers something else
		text := fmt.Sprintf("the store answered %d %s: %s", res.StatusCode, refusal.Code, refusal.Message)
		return errors.New(c.bucket.scrub(strings.TrimRight(text, ": ")))
	}
	return nil
}

// upload starts a multipart upload, sends one part, lists it, and completes the upload, first with a condition that
// does not hold.
func (c *check) upload(ctx context.Context) (err error) {
	id, err := c.bucket.CreateUpload(ctx, c.key, "text/plain")
	if errors.Is(err, ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.bucket.AbortUpload(context.WithoutCancel(ctx), c.key, id)) }()
	signed, err := c.bucket.PresignPart(ctx, c.key, id, 1, int64(len(c.content)), time.Minute)
	if err != nil {
		return err
	}
	if err := c.send(ctx, http.MethodPut, signed, "", c.content); err != nil {
		return err
	}
	listed, err := c.bucket.UploadParts(ctx, c.key, id)
	switch {
	case err != nil:
		return err
	case listed[1].SizeBytes != int64(len(c.content)):
		return errors.New("the part is not listed")
	}
	parts := []Part{listed[1]}
	err = c.bucket.complete(ctx, c.key, id, parts, aws.String("*"))
	if ignored := err == nil; c.condition("completion", err) != nil || ignored {
		return err
	}
	return c.bucket.complete(ctx, c.key, id, parts, nil)
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
