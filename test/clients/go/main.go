// Command film makes a film with the client that oapi-codegen generates. BASE is the service's address, ID_TOKEN the
// user's identity token; the arguments are the paths of a clip and of the film. It is a separate module, so its
// dependencies are not the service's.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
)

//go:generate go tool oapi-codegen -generate types,client -package main -o api.gen.go ../../../internal/api/httpapi/openapi.yaml

func main() {
	if err := film(context.Background(), os.Getenv("BASE"), os.Getenv("ID_TOKEN"), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "film:", err)
		os.Exit(1)
	}
}

func film(ctx context.Context, base, idToken, clip, out string) error {
	var token string
	// The object store refuses a presigned address if the request also has a token.
	follow := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		r.Header.Del("Authorization")
		return nil
	}}
	c, err := NewClientWithResponses(base, WithHTTPClient(follow), WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return nil
	}))
	if err != nil {
		return err
	}
	session, err := c.SignInProviderAWithResponse(ctx, SignInARequest{IdToken: idToken})
	if err != nil || session.JSON200 == nil {
		return fmt.Errorf("sign in: %w, %s", err, session.Body)
	}
	token = session.JSON200.AccessToken
	asset, err := upload(ctx, c, clip)
	if err != nil {
		return err
	}
	end, from, twice, low := 1000, 1000, float32(2), Low
	job, err := c.SubmitRenderV3WithResponse(ctx, &SubmitRenderV3Params{}, RenderConfigV3{Quality: &low, Segments: []SegmentV3{
		{SourceAssetKey: asset, Order: 0, DurationMs: 2000, TrimEndMs: &end},
		{SourceAssetKey: asset, Order: 1, DurationMs: 2000, TrimStartMs: &from, SpeedScale: &twice},
	}})
	if err != nil || job.JSON200 == nil {
		return fmt.Errorf("render: %w, %s", err, job.Body)
	}
	state, err := wait(ctx, c, job.JSON200.JobId)
	if err != nil {
		return err
	}
	done, err := c.DownloadRenderWithResponse(ctx, job.JSON200.JobId, &DownloadRenderParams{})
	if err != nil || int64(len(done.Body)) != state.SizeBytes {
		return fmt.Errorf("download: %w, %d bytes of %d", err, len(done.Body), state.SizeBytes)
	}
	return os.WriteFile(out, done.Body, 0o600)
}

func upload(ctx context.Context, c *ClientWithResponses, clip string) (AssetKey, error) {
	content, err := os.ReadFile(clip)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	to, err := c.CreateUploadUrlWithResponse(ctx, AssetUploadUrlRequest{
		Sha256Hex: hex.EncodeToString(sum[:]), SizeBytes: int64(len(content)), Ext: "mp4", ContentType: "video/mp4"})
	if err != nil || to.JSON200 == nil {
		return "", fmt.Errorf("upload address: %w, %s", err, to.Body)
	}
	if to.JSON200.AlreadyExists {
		return to.JSON200.AssetKey, nil
	}
	put, err := http.NewRequestWithContext(ctx, http.MethodPut, *to.JSON200.UploadUrl, bytes.NewReader(content))
	if err != nil {
		return "", err
	}
	put.Header.Set("Content-Type", "video/mp4")
	res, err := http.DefaultClient.Do(put)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("upload: %s", res.Status)
	}
	return to.JSON200.AssetKey, nil
}

// wait waits for changes of the state until it is final.
func wait(ctx context.Context, c *ClientWithResponses, job RenderJobId) (RenderCompleted, error) {
	prefer, tag := "wait=30", (*string)(nil)
	for {
		res, err := c.GetRenderStatusWithResponse(ctx, job, &GetRenderStatusParams{Prefer: &prefer, IfNoneMatch: tag})
		if err != nil {
			return RenderCompleted{}, err
		}
		if res.StatusCode() == http.StatusNotModified {
			continue
		}
		if res.JSON200 == nil {
			return RenderCompleted{}, fmt.Errorf("status: %s", res.Body)
		}
		state, err := res.JSON200.ValueByDiscriminator()
		if err != nil {
			return RenderCompleted{}, err
		}
		switch state := state.(type) {
		case RenderCompleted:
			return state, nil
		case RenderFailed:
			return RenderCompleted{}, fmt.Errorf("the render failed: %s", state.Error)
		}
		current := res.HTTPResponse.Header.Get("ETag")
		tag = &current
	}
}
