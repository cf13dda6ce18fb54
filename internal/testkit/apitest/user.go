// Users of a test: sign-in, credits, roles and requests with their token.

package apitest

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"cutroom/internal/sandbox/identity"
	"cutroom/internal/sandbox/store"
)

// userSerial numbers the users of a test process.
var userSerial atomic.Int64

// User is a signed-in user.
type User struct {
	*Server
	Token   string // access token of the last sign-in
	Sub     string // the user's id in the service
	Email   string
	Name    string
	Role    string
	Picture string

	provider string // provider_a or provider_b
	fullName string
}

// Auth is the body of a sign-in.
type Auth struct {
	AccessToken string
	ExpiresAt   int64
	User        AuthUser
}

// AuthUser is the user in the body of a sign-in.
type AuthUser struct {
	Sub, Email, Name, Role string
	Picture                *string
}

type userOptions struct {
	credits  int
	provider string
}

// UserOption changes the user that SignIn creates.
type UserOption func(*userOptions)

// Credits gives the user at least n credits: the sign-up bonus plus purchases on platform_a.
func Credits(n int) UserOption { return func(o *userOptions) { o.credits = n } }

// ProviderB signs in through provider_b.
func ProviderB() UserOption { return func(o *userOptions) { o.provider = "provider_b" } }

// SignIn signs in a new user.
func (s *Server) SignIn(t testing.TB, opts ...UserOption) *User {
	t.Helper()
	o := userOptions{provider: "provider_a"}
	for _, opt := range opts {
		opt(&o)
	}
	n := userSerial.Add(1)
	u := &User{Server: s, provider: o.provider,
		Email:    fmt.Sprintf("person%d@example.test", n),
		fullName: fmt.Sprintf("Person %d Tester", n)}
	u.SignInAgain(t)
	for have := u.Balance(t); have < o.credits; {
		have = u.Buy(t, "credits.50").Balance
	}
	return u
}

// SignInAgain signs the user in again and keeps the new token.
func (u *User) SignInAgain(t testing.TB) *Auth {
	t.Helper()
	body := map[string]any{}
	if u.provider == "provider_b" {
		body["idToken"] = u.World.MintB(t, identity.Claims{Email: u.Email})
		body["fullName"] = u.fullName
	} else {
		body["idToken"] = u.World.MintA(t, identity.Claims{Email: u.Email, Name: u.fullName, Picture: "https://pictures.example.test/" + u.Email})
	}
	var auth Auth
	u.Do(t, Request{
		Method: http.MethodPost, Path: "/api/v2/auth/" + u.provider, JSON: body, Valid: true,
		Header: http.Header{"X-Forwarded-For": {u.IP()}},
	}).Expect(http.StatusOK).JSON(&auth)
	u.Token, u.Sub, u.Role, u.Name = auth.AccessToken, auth.User.Sub, auth.User.Role, auth.User.Name
	return &auth
}

// Admin creates a user and grants the admin role on the command line.
func (s *Server) Admin(t testing.TB) *User {
	t.Helper()
	u := s.SignIn(t)
	if status, out := s.Command(t, "admin", "grant", u.Email); status != 0 {
		t.Fatalf("cutroom admin grant %s: exit status %d\n%s", u.Email, status, out)
	}
	u.SignInAgain(t)
	if u.Role != "admin" {
		t.Fatalf("role after cutroom admin grant: %q", u.Role)
	}
	return u
}

// Send is Do with the user's token.
func (u *User) Send(t testing.TB, r Request) *Response {
	t.Helper()
	r.Token = u.Token
	return u.Do(t, r)
}

// Get is a valid GET with the user's token.
func (u *User) Get(t testing.TB, path string) *Response {
	t.Helper()
	return u.Send(t, Request{Path: path, Valid: true})
}

// Post is a valid POST of a JSON body with the user's token.
func (u *User) Post(t testing.TB, path string, body any) *Response {
	t.Helper()
	return u.Send(t, Request{Method: http.MethodPost, Path: path, JSON: body, Valid: true})
}

// Balance returns the user's credit balance.
func (u *User) Balance(t testing.TB) int {
	t.Helper()
	var body struct{ Balance int }
	u.Get(t, "/api/v2/credits").Expect(http.StatusOK).JSON(&body)
	return body.Balance
}

// Purchased is the body of a purchase or a grant.
type Purchased struct {
	Granted, Balance int
	TransactionID    string
}

// Buy purchases a product on platform_a.
func (u *User) Buy(t testing.TB, product string) Purchased {
	t.Helper()
	p := u.World.PurchaseA(store.PurchaseA{ProductID: product, AccountID: u.Sub})
	var got Purchased
	u.Post(t, "/api/v2/credits/purchase", map[string]string{
		"platform": "platform_a", "transactionId": p.OrderID, "receipt": p.Token, "productId": product,
	}).Expect(http.StatusOK).JSON(&got)
	if got.Granted == 0 {
		t.Fatalf("purchase of %s granted nothing", product)
	}
	return got
}
