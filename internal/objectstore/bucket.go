package objectstore

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyauth "github.com/aws/smithy-go/auth"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"

	"cutroom/internal/httpcall"
	"cutroom/internal/tracing"
)

const (
	defaultPartSize     = 16 << 20
	maxParts            = 10000
	multipartAfterParts = 4 // files of more than this many parts go up in parts
	parallel            = 4 // parts of one transfer, or deletions, at once
	defaultAttempts     = 4
	defaultMaxBackoff   = 5 * time.Second
	defaultStallTimeout = 10 * time.Second
	defaultCallTimeout  = 8 * time.Second
)

// BucketConfig says where a bucket is and how to talk to it.
type BucketConfig struct {
	Endpoint        string // http or https URL of the service, without the bucket
	Region          string // "auto" when empty
	Bucket          string
	AccessKeyID     string
	SecretAccessKey string

	// HTTP is the client to use; nil gives one of the bucket's own. It is not
	// changed, and it never follows a redirect here.
	HTTP *http.Client

	// PartSizeBytes is the size of one ranged GET or uploaded part, 16 MiB
	// when 0; S3 refuses less than 5 MiB. Files of more than 4 parts are uploaded in parts.
	PartSizeBytes int64
	// Attempts is how often one request is tried in all, 4 when 0.
	Attempts int
	// MaxBackoff bounds the random, growing pause between tries, 5 s when 0.
	MaxBackoff time.Duration
	// StallTimeout ends a try in which no byte moved for so long, 10 s when 0.
	// Another try follows once.
	StallTimeout time.Duration
	// CallTimeout bounds calls that move no file, all tries together, 8 s when
	// 0: people wait for them.
	CallTimeout time.Duration
}

// Bucket is a Store in an S3-compatible service, addressed path-style.
type Bucket struct {
	client   *s3.Client
	presign  *s3.PresignClient
	http     *httpClient // for the presigned requests of Check
	bucket   string
	timeout  time.Duration // of calls that move no file
	partSize int64
	attempts int
	backoff  func(try int) time.Duration
	// secrets never appear in an error, whatever the service puts in its answer.
	secrets []string
}

var _ Store = (*Bucket)(nil)

// NewBucket returns a Store in the configured bucket; use Check to find out
// whether the bucket works.
func NewBucket(cfg BucketConfig) *Bucket {
	cfg.Region = cmp.Or(cfg.Region, "auto")
	cfg.PartSizeBytes = cmp.Or(cfg.PartSizeBytes, defaultPartSize)
	cfg.Attempts = cmp.Or(cfg.Attempts, defaultAttempts)
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
		BaseEndpoint:       &cfg.Endpoint,
		EndpointResolverV2: newPathStyle(cfg),
		Region:             cfg.Region,
		UsePathStyle:       true,
		Credentials:        credentials.NewStaticCredentialsProvider(cfg.AccessKeyID, cfg.SecretAccessKey, ""),
		HTTPClient:         client,
		// The checksum trailers that the SDK adds on its own are refused by
		// several compatible services.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = cfg.Attempts
			o.MaxBackoff = cfg.MaxBackoff
			o.Backoff = backoff
			// The default limiter stops retrying altogether after a burst of
			// failures; the attempts are bounded already.
			o.RateLimiter = ratelimit.None
		}),
	}
	presign := s3.NewPresignClient(s3.New(opts))
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
		attempts: cfg.Attempts,
		backoff: func(try int) time.Duration {
			d, err := backoff.BackoffDelay(try, nil)
			if err != nil {
				return cfg.MaxBackoff
			}
			return d
		},
		secrets: []string{cfg.SecretAccessKey, cfg.AccessKeyID},
	}
}

// pathStyle is where the SDK's rules put one bucket, and how its requests are signed.
// The rules would be asked twice for every request, which with a region that is none of
// AWS's costs more than the signature.
type pathStyle struct {
	region   string
	endpoint func() (smithyendpoints.Endpoint, error)
}

func newPathStyle(cfg BucketConfig) *pathStyle {
	return &pathStyle{cfg.Region, sync.OnceValues(func() (smithyendpoints.Endpoint, error) {
		return s3.NewDefaultEndpointResolverV2().ResolveEndpoint(context.Background(), s3.EndpointParameters{
			Endpoint: &cfg.Endpoint, Region: &cfg.Region, Bucket: &cfg.Bucket, ForcePathStyle: aws.Bool(true)})
	})}
}

// ResolveEndpoint implements s3.EndpointResolverV2. The SDK writes into the properties.
func (p *pathStyle) ResolveEndpoint(context.Context, s3.EndpointParameters) (smithyendpoints.Endpoint, error) {
	sign := smithyauth.Option{SchemeID: smithyauth.SchemeIDSigV4}
	smithyhttp.SetSigV4SigningName(&sign.SignerProperties, "s3")
	smithyhttp.SetSigV4SigningRegion(&sign.SignerProperties, p.region)
	smithyhttp.SetDisableDoubleEncoding(&sign.SignerProperties, true)
	e, err := p.endpoint()
	e.Properties = smithy.Properties{}
	smithyauth.SetAuthOptions(&e.Properties, []*smithyauth.Option{&sign})
	return e, err
}

// NewTransport returns the transport of a bucket that is given no client.
func NewTransport() *http.Transport {
	// One connection per part: over HTTP/2 all parts would share one TCP
	// connection and its congestion window.
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

// call bounds one call that moves no file. Half of the time is for the first
// try: a connection that died while it was idle must not take all of it.
func (b *Bucket) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, tryLimitKey{}, b.timeout/2), b.timeout)
}

// Stat asks for the object's description.
func (b *Bucket) Stat(ctx context.Context, key string) (_ Info, err error) {
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
	return Info{
		Key:         key,
		SizeBytes:   aws.ToInt64(out.ContentLength),
		ModTime:     aws.ToTime(out.LastModified),
		ETag:        aws.ToString(out.ETag),
		ContentType: aws.ToString(out.ContentType),
	}, nil
}

// Delete removes the objects one request each: the bulk request needs a
// checksum header that not every compatible service accepts.
func (b *Bucket) Delete(ctx context.Context, keys ...string) (err error) {
	ctx, end := tracing.Start(ctx, "bucket delete")
	defer func() { end(err) }()
	errs := make([]error, len(keys))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, key := range keys {
		if errs[i] = CheckKey(key); errs[i] != nil {
			continue
		}
		g.Go(func() error {
			call, cancel := b.call(ctx)
			defer cancel()
			_, err := b.client.DeleteObject(call, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: &key})
			if err != nil {
				if err = b.fail(ctx, "delete", key, err); !errors.Is(err, ErrNotFound) {
					errs[i] = err
				}
			}
			return nil
		})
	}
	_ = g.Wait() // errs tells more
	return errors.Join(errs...)
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
				continue // somebody else's, such as a "folder" object
			}
			info := Info{Key: key, SizeBytes: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified), ETag: aws.ToString(o.ETag)}
			if err := each(info); err != nil {
				return err
			}
		}
	}
	return nil
}
