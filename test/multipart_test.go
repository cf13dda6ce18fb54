// Asset uploads in parts, interrupted and continued.

package test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"cutroom/internal/testkit/apitest"
)

const completePath = "/api/v2/assets/complete"

// inParts requests the upload of a file in parts.
func inParts(t testing.TB, u *apitest.User, path string) uploadURL {
	t.Helper()
	var got uploadURL
	u.Post(t, uploadURLPath, apitest.With(assetRequest(t, path, "mp4", "video/mp4"), M{"multipart": true})).Expect(200).JSON(&got)
	return got
}

// sendParts sends the wanted parts of a file, or all missing parts, and returns the numbers of the parts that the store
// already had.
func sendParts(t testing.TB, u *apitest.User, up uploadURL, content []byte, wanted ...int) (had []int) {
	t.Helper()
	for i, part := range up.Parts {
		if part.Done {
			had = append(had, part.PartNumber)
		}
		if slices.Contains(wanted, part.PartNumber) || len(wanted) == 0 && !part.Done {
			at := int64(i) * up.PartSizeBytes
			u.Outside(t, "PUT", part.URL, nil, content[at:at+part.SizeBytes]).Expect(200)
		}
	}
	return had
}

// loseConnection sends half of a part and closes the connection.
func loseConnection(t testing.TB, address string, content []byte) {
	t.Helper()
	lost := errors.New("a tunnel")
	half := io.MultiReader(bytes.NewReader(content[:len(content)/2]), iotest.ErrReader(lost))
	req, err := http.NewRequestWithContext(t.Context(), "PUT", address, half)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = int64(len(content))
	res, err := http.DefaultClient.Do(req)
	if !errors.Is(err, lost) {
		t.Fatalf("half a part: %v, %v", res, err)
	}
}

func complete(t testing.TB, u *apitest.User, id string) *apitest.Response {
	t.Helper()
	return u.Post(t, completePath, M{"uploadId": id})
}

// renderAsset checks the bytes of an asset by rendering it, and returns the film's path.
func renderAsset(t testing.TB, u *apitest.User, key string) string {
	t.Helper()
	job := u.Post(t, "/api/v2/render/v3", M{"segments": []M{{"sourceAssetKey": key, "order": 0, "durationMs": 2000, "trimEndMs": 400}}}).Job(200)
	u.WaitRendered(t, job)
	return u.Download(t, job)
}

func TestUploadInPartsGoesOnWhereItWasInterrupted(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Bucket(true))
	u, other := s.SignIn(t), s.SignIn(t)
	film := largerCopy(t, redClip(t), 16<<20)
	content := readFile(t, film)
	first := inParts(t, u, film)
	if len(first.Parts) != 3 || first.PartSizeBytes != 8<<20 || first.ExpiresInSec != 300 || first.UploadURL != nil || first.AlreadyExists {
		t.Fatalf("%+v", first)
	}
	if had := sendParts(t, u, first, content, 1); had != nil {
		t.Errorf("the store has parts %v before they are sent", had)
	}
	loseConnection(t, first.Parts[1].URL, content[8<<20:16<<20])
	last := content[16<<20:]
	for name, body := range map[string][]byte{"shorter": last[1:], "longer": append(last[:len(last):len(last)], 'x')} {
		if status := u.Outside(t, "PUT", first.Parts[2].URL, nil, body).Status; status < 400 {
			t.Errorf("a part that is %s: %d", name, status)
		}
	}
	complete(t, u, first.UploadID).Sentence(400, "missing", "3")

	second := inParts(t, u, film)
	if second.UploadID != first.UploadID {
		t.Errorf("upload %s became %s", first.UploadID, second.UploadID)
	}
	theirs := inParts(t, other, film)
	if theirs.UploadID == first.UploadID {
		t.Error("two users share an upload")
	}
	for _, id := range []string{first.UploadID, "", "x", "00000000-0000-4000-8000-000000000000"} {
		complete(t, other, id).Sentence(404)
	}
	if had := sendParts(t, other, theirs, content, 2); had != nil {
		t.Errorf("another user finds parts %v", had)
	}
	// versitygw may accept the half of part 2 as the whole part.
	if had := sendParts(t, u, second, content, 2, 3); !slices.Contains(had, 1) || slices.Contains(had, 3) {
		t.Errorf("parts %v are there, want 1", had)
	}
	for range 2 {
		var done uploadURL
		complete(t, u, first.UploadID).Expect(200).JSON(&done)
		if !done.AlreadyExists || done.AssetKey != first.AssetKey || done.UploadURL != nil || done.ExpiresInSec != 0 {
			t.Errorf("completing the upload: %+v", done)
		}
	}
	if again := inParts(t, u, film); !again.AlreadyExists || again.Parts != nil {
		t.Errorf("after the upload: %+v", again)
	}
	picturesAre(t, renderAsset(t, u, first.AssetKey), []time.Duration{200 * time.Millisecond}, red)
	// The other user's upload completes too, because the asset exists. No uploads are left.
	complete(t, other, theirs.UploadID).Expect(200)
	if keys := s.PendingUploads(t); len(keys) > 0 {
		t.Errorf("uploads are left: %v", keys)
	}
	// Deleting an account aborts its uploads.
	inParts(t, other, largerCopy(t, redClip(t), 16<<20))
	if keys := s.PendingUploads(t); len(keys) != 1 {
		t.Errorf("pending: %v, want one upload", keys)
	}
	other.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account"}).Expect(204)
	if keys := s.PendingUploads(t); len(keys) > 0 {
		t.Errorf("the uploads of a deleted user are left: %v", keys)
	}
}

func TestOnlyLargeFilesAreUploadedInParts(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true), apitest.Env("MAX_UPLOAD_FILE_SIZE_MB", "4096"))
	u := s.SignIn(t)
	request := M{"sha256Hex": sha256Of(t, redClip(t)), "ext": "mp4", "contentType": "video/mp4"}
	for _, tt := range []struct {
		size      int64
		multipart bool
		parts     int
	}{
		{16 << 20, true, 0}, {16<<20 + 1, true, 3}, {16<<20 + 1, false, 0}, {1 << 30, true, 128}, {1<<30 + 1, true, 65}, {4 << 30, true, 128},
	} {
		var got uploadURL
		u.Post(t, uploadURLPath, apitest.With(request, M{"sizeBytes": tt.size, "multipart": tt.multipart})).Expect(200).JSON(&got)
		if len(got.Parts) != tt.parts || (got.UploadURL == nil) != (tt.parts > 0) || (got.UploadID == "") != (tt.parts == 0) {
			t.Errorf("%d bytes, multipart %v: %d parts", tt.size, tt.multipart, len(got.Parts))
		}
		var sum int64
		for _, p := range got.Parts {
			sum += p.SizeBytes
		}
		if tt.parts > 0 && sum != tt.size {
			t.Errorf("parts of %d bytes for %d", sum, tt.size)
		}
	}
	u.Send(t, apitest.Request{Method: "POST", Path: uploadURLPath, Raw: `{"multipart":"yes"}`}).Error(400, "bad_request")
	u.Send(t, apitest.Request{Method: "POST", Path: completePath, Raw: `{"uploadId":5}`}).Error(400, "bad_request")
}
