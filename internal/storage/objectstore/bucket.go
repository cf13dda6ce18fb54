// A bucket behind the S3 protocol: its configuration and the short calls. Transfers are in transfer.go and
// bucketobject.go, and what the SDK sends in tries.go.

package objectstore

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"cutroom/internal/base/httpcall"
	"cutroom/internal/base/tracing"
)

const (
	defaultRegion       = "auto"
	defaultPartSize     = 16 << 20
	maxParts            = 10000
	multipartAfterParts = 4 // larger files are uploaded in parts
	parallel            = 4 // parts of one transfer, or deletions, at once
	attempts            = 4 // of a request, the first included
	defaultMaxBackoff   = 5 * time.Second
	defaultStallTimeout = 10 * time.Second
	defaultCallTimeout  = 8 * time.Second
)

// BucketConfig is the address of a bucket, its credentials and the limits on requests.
type BucketConfig struct {
	Endpoint        string // http or https URL of the service, without the bucket
	Region          string // in the scope of every signature; "" means auto, the region of Cloudflare R2
	VirtualHost     bool   // the bucket is the first label of the host name instead of the first part of the path
	Bucket          string
	AccessKeyID     string
	SecretAccessKey string

	// HTTP is the client to use; nil gives the bucket its own. NewBucket copies it, and the copy never follows a
	// redirect.
	HTTP *http.Client

	// PartSizeBytes is the size of one ranged GET or uploaded part. 0 means 16 MiB; S3 requires at least 5 MiB.
	// Files of more than 4 parts use a multipart upload.
	PartSizeBytes int64
	// MaxBackoff bounds the random, growing pause between tries; 0 means 5 s.
	MaxBackoff time.Duration
	// StallTimeout ends a try when no byte has moved for this long; 0 means 10 s. A stalled try is repeated once.
	StallTimeout time.Duration
	// CallTimeout bounds all tries of a call that transfers no file, because a user is waiting; 0 means 8 s.
	CallTimeout time.Duration
}

// Bucket is a Store in an S3-compatible service.
type Bucket struct {
	client   *s3.Client
	presign  *s3.PresignClient
	http     *httpClient // for the presigned requests of Check
	bucket   string
	timeout  time.Duration // of calls that transfer no file
	partSize int64
	backoff  retry.BackoffDelayer
	// secrets are removed from every error, because a service may echo them in its answer.
	secrets []string
}

var _ Store = (*Bucket)(nil)

// NewBucket returns a Store in the configured bucket. It makes no request; call Check to test the bucket.
func NewBucket(cfg BucketConfig) *Bucket {
	cfg.Region = cmp.Or(cfg.Region, defaultRegion)
	cfg.PartSizeBytes = cmp.Or(cfg.PartSizeBytes, defaultPartSize)
	cfg.MaxBackoff = cmp.Or(cfg.MaxBackoff, defaultMaxBackoff)
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, defaultStallTimeout)
	cfg.CallTimeout = cmp.Or(cfg.CallTimeout, defaultCallTimeout)
	base := cfg.HTTP
	if base == nil {
		base = &http.Client{Transport: NewTransport()}
	}
	client := &httpClient{client: httpcall.Private(base), limit: cfg.StallTimeout}
	backoff := retry.NewExponentialJitterBackoff(cfg.MaxBackoff)
	opts := s3.Options{
		BaseEndpoint: &cfg.Endpoint,
		Region:       cfg.Region,
		UsePathStyle: !cfg.VirtualHost,
		Credentials:  credentials.NewStaticCredentialsProvider(cfg.AccessKeyID, cfg.SecretAccessKey, ""),
		HTTPClient:   client,
		// Several compatible services refuse the checksum trailers that the SDK adds by default.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		// A proxy may answer Expect with 417.
		ContinueHeaderThresholdBytes: -1,
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = attempts
			o.MaxBackoff = cfg.MaxBackoff
			o.Backoff = backoff
			// After a burst of failures the default limiter stops retrying altogether. MaxAttempts already bounds the
			// retries.
			o.RateLimiter = ratelimit.None
		}),
	}
	presign := s3.NewPresignClient(s3.New(opts))
	opts.APIOptions = append(opts.APIOptions, nameLastTry, signLess)
	if strings.HasPrefix(cfg.Endpoint, "https:") {
		// TLS protects the body; hashing it first would read every file twice.
		opts.APIOptions = append(opts.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
	}
	return &Bucket{
		client:   s3.New(opts),
		presign:  presign,
		http:     client,
		bucket:   cfg.Bucket,
		timeout:  cfg.CallTimeout,
		partSize: cfg.PartSizeBytes,
		backoff:  backoff,
		secrets:  []string{cfg.SecretAccessKey, cfg.AccessKeyID},
	}
}

// pause waits before a transfer is continued or repeated for the try-th time.
func (b *Bucket) pause(ctx context.Context, try int) error {
	d, err := b.backoff.BackoffDelay(try, nil)
	if err != nil {
		return err
	}
	return httpcall.Sleep(ctx, d)
}

// NewTransport returns the transport for a bucket that is configured without a client.
func NewTransport() *http.Transport {
	// Use one connection per part: over HTTP/2 all parts would share one TCP connection and its congestion window.
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		Protocols:           &http1,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}
}

// call bounds a call that transfers no file. The first try may use half of the time, so that a dead idle connection
// leaves time for another.
func (b *Bucket) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, tryLimitKey{}, b.timeout/2), b.timeout)
}

// Stat returns the object's description.
func (b *Bucket) Stat(ctx context.Context, key string) (info Info, err error) {
	ctx, end := tracing.Start(ctx, "bucket stat")
	defer func() { end(err) }()
	if err := CheckKey(key); err != nil {
		return Info{}, err
	}
	call, cancel := b.call(ctx)
	defer cancel()
	out, err := b.client.HeadObject(call, &s3.HeadObjectInput{Bucket: &b.bucket, Key: &key})
	if err != nil {
		return Info{}, b.fail(ctx, "stat", key, err)
	}
	return Info{Key: key, SizeBytes: aws.ToInt64(out.ContentLength), ModTime: aws.ToTime(out.LastModified),
		ETag: aws.ToString(out.ETag), ContentType: aws.ToString(out.ContentType)}, nil
}

// Delete sends one request per object: the bulk request needs a checksum header that some compatible services refuse.
func (b *Bucket) Delete(ctx context.Context, keys ...string) (err error) {
	ctx, end := tracing.Start(ctx, "bucket delete")
	defer func() { end(err) }()
	return Each(parallel, keys, func(_ int, key string) error {
		if err := CheckKey(key); err != nil {
			return err
		}
		call, cancel := b.call(ctx)
		defer cancel()
		_, err := b.client.DeleteObject(call, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: &key})
		if err == nil {
			return nil
		}
		if err = b.fail(ctx, "delete", key, err); errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

// List pages through the keys with the prefix.
func (b *Bucket) List(ctx context.Context, prefix string, each func(Info) error) (err error) {
	ctx, end := tracing.Start(ctx, "bucket list")
	defer func() { end(err) }()
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		call, cancel := b.call(ctx)
		page, err := pages.NextPage(call)
		cancel()
		if err != nil {
			return b.fail(ctx, "list", prefix+"*", err)
		}
		for _, o := range page.Contents {
			key := aws.ToString(o.Key)
			if CheckKey(key) != nil {
				continue // not one of ours, such as a "folder" object
			}
			info := Info{Key: key, SizeBytes: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified), ETag: aws.ToString(o.ETag)}
			if err := each(info); err != nil {
				return err
			}
		}
	}
	return nil
}
