package main

import (
	"cmp"
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

// parseTarget parses the address of a bucket in the format of CUTROOM_TEST_S3.
func parseTarget(value string) (objectstore.BucketConfig, error) {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.User == nil {
		return objectstore.BucketConfig{},
			errors.New("CUTROOM_TEST_S3 is not http://ACCESS:SECRET@HOST:PORT/BUCKET; run this by scripts/s3.sh run")
	}
	secret, _ := u.User.Password()
	return objectstore.BucketConfig{Endpoint: u.Scheme + "://" + u.Host, Region: cmp.Or(u.Query().Get("region"), "auto"),
		Bucket: strings.Trim(u.Path, "/"), AccessKeyID: u.User.Username(), SecretAccessKey: secret}, nil
}

// transfer copies the object between the key and the file.
type transfer func(ctx context.Context, key, file string) error

// way is one of the compared ways to transfer.
type way struct {
	name   string
	upload bool
	open   func(objectstore.BucketConfig) transfer
}

// ways lists Bucket first for each direction.
var ways = []way{
	{"upload, Bucket", true, func(at objectstore.BucketConfig) transfer {
		b := objectstore.NewBucket(at)
		return func(ctx context.Context, key, file string) error { return b.Put(ctx, key, file, "") }
	}},
	{"upload, SDK, one stream", true, func(at objectstore.BucketConfig) transfer { return newPlain(at).putStream }},
	{"upload, SDK, parts", true, func(at objectstore.BucketConfig) transfer { return newPlain(at).putParts }},
	{"download, Bucket", false, func(at objectstore.BucketConfig) transfer { return objectstore.NewBucket(at).Fetch }},
	{"download, SDK, one stream", false, func(at objectstore.BucketConfig) transfer { return newPlain(at).getStream }},
	{"download, SDK, parts", false, func(at objectstore.BucketConfig) transfer { return newPlain(at).getParts }},
}

// The defaults of the SDK's transfer manager.
const (
	managerPart     = 5 << 20
	managerParallel = 5
)

// plain uses only the SDK, with its defaults.
type plain struct {
	client *s3.Client
	bucket string
}

func newPlain(at objectstore.BucketConfig) plain {
	return plain{s3.New(s3.Options{BaseEndpoint: &at.Endpoint, Region: at.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(at.AccessKeyID, at.SecretAccessKey, "")}), at.Bucket}
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

// peakMiB is the largest resident set of a finished process.
func peakMiB(state *os.ProcessState) float64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return float64(usage.Maxrss) / 1024 // Linux counts in KiB
}
