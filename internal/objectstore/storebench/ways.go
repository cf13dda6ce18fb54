package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"cutroom/internal/objectstore"
)

// target is the bucket of CUTROOM_TEST_S3.
type target struct{ endpoint, region, bucket, access, secret string }

func parseTarget(value string) (target, error) {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.User == nil {
		return target{}, errors.New("CUTROOM_TEST_S3 is not http://ACCESS:SECRET@HOST:PORT/BUCKET; run this by scripts/s3.sh run")
	}
	secret, _ := u.User.Password()
	t := target{endpoint: u.Scheme + "://" + u.Host, region: u.Query().Get("region"), bucket: strings.Trim(u.Path, "/"),
		access: u.User.Username(), secret: secret}
	if t.region == "" {
		t.region = "auto"
	}
	return t, nil
}

// client is the SDK's, with its defaults.
func (t target) client() *s3.Client {
	return s3.New(s3.Options{BaseEndpoint: &t.endpoint, Region: t.region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(t.access, t.secret, "")})
}

func (t target) remove(ctx context.Context, key string) error {
	_, err := t.client().DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &t.bucket, Key: &key})
	return err
}

// transfer moves the object between the key and the file.
type transfer func(ctx context.Context, key, file string) error

// The ways, Bucket first.
var (
	uploads   = []string{"put-bucket", "put-stream", "put-parts"}
	downloads = []string{"get-bucket", "get-stream", "get-parts"}
	titles    = map[string]string{
		"put-bucket": "upload, Bucket", "put-stream": "upload, SDK, one stream", "put-parts": "upload, SDK, parts",
		"get-bucket": "download, Bucket", "get-stream": "download, SDK, one stream", "get-parts": "download, SDK, parts",
	}
	ways = map[string]func(target) transfer{
		"put-bucket": func(t target) transfer {
			b := t.own()
			return func(ctx context.Context, key, file string) error { return b.Put(ctx, key, file, "") }
		},
		"get-bucket": func(t target) transfer { return t.own().Fetch },
		"put-stream": func(t target) transfer { return plain{t.client(), t.bucket}.putStream },
		"get-stream": func(t target) transfer { return plain{t.client(), t.bucket}.getStream },
		"put-parts":  func(t target) transfer { return plain{t.client(), t.bucket}.putParts },
		"get-parts":  func(t target) transfer { return plain{t.client(), t.bucket}.getParts },
	}
)

func (t target) own() *objectstore.Bucket {
	return objectstore.NewBucket(objectstore.BucketConfig{Endpoint: t.endpoint, Region: t.region, Bucket: t.bucket,
		AccessKeyID: t.access, SecretAccessKey: t.secret})
}

// The defaults of the SDK's transfer manager.
const (
	managerPart     = 5 << 20
	managerParallel = 5
)

// plain is what a program does with the SDK alone.
type plain struct {
	client *s3.Client
	bucket string
}

func (p plain) putStream(ctx context.Context, key, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = p.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &p.bucket, Key: &key, Body: f})
	return err
}

func (p plain) getStream(ctx context.Context, key, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	out, err := p.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &p.bucket, Key: &key})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	_, err = io.Copy(f, out.Body)
	return errors.Join(err, out.Body.Close(), f.Close())
}

func (p plain) putParts(ctx context.Context, key, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	upload, err := p.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &p.bucket, Key: &key})
	if err != nil {
		return err
	}
	parts := make([]types.CompletedPart, (st.Size()+managerPart-1)/managerPart)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(managerParallel)
	for i := range parts {
		g.Go(func() error {
			number, offset := int32(i+1), int64(i)*managerPart
			out, err := p.client.UploadPart(ctx, &s3.UploadPartInput{Bucket: &p.bucket, Key: &key, UploadId: upload.UploadId, PartNumber: &number,
				Body: io.NewSectionReader(f, offset, min(managerPart, st.Size()-offset))})
			if err != nil {
				return err
			}
			parts[i] = types.CompletedPart{PartNumber: &number, ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	_, err = p.client.CompleteMultipartUpload(context.WithoutCancel(ctx), &s3.CompleteMultipartUploadInput{Bucket: &p.bucket, Key: &key,
		UploadId: upload.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}})
	return err
}

func (p plain) getParts(ctx context.Context, key, file string) error {
	head, err := p.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &p.bucket, Key: &key})
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	size := aws.ToInt64(head.ContentLength)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(managerParallel)
	for offset := int64(0); offset < size; offset += managerPart {
		g.Go(func() error {
			span := fmt.Sprintf("bytes=%d-%d", offset, min(offset+managerPart, size)-1)
			out, err := p.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &p.bucket, Key: &key, Range: &span})
			if err != nil {
				return err
			}
			_, err = io.Copy(io.NewOffsetWriter(f, offset), out.Body)
			return errors.Join(err, out.Body.Close())
		})
	}
	return errors.Join(g.Wait(), f.Close())
}

// peakMiB is the largest resident set of an ended process.
func peakMiB(state *os.ProcessState) float64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return float64(usage.Maxrss) / 1024 // Linux counts in KiB
}
