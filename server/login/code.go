package login

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
)

// This file is how a person whose program has a key, or the local socket, logs a browser in
// without typing that key: a code in an address, good once and for a short time. The address
// shows whom it logs in and asks; only the button's request uses the code up. So what merely
// looks at the address takes nothing away, and a link of another person's code does not log a
// browser in unseen.

const (
	codePrefix = "code/"
	codeLasts  = 2 * time.Minute
)

// invitation is what is kept of a code, by a part of its hash.
type invitation struct {
	Hash      string        `json:"hash"`
	Identity  auth.Identity `json:"identity"`
	ExpiresAt time.Time     `json:"expires_at"`
}

// Invite makes a code by which one browser logs in as id.
func (d *Store) Invite(ctx context.Context, id auth.Identity) (code string, expires time.Time, err error) {
	if id.Login != "" {
		return "", time.Time{}, errs.New(errs.Denied, "a browser's login lets no other browser in").WithHint("`skete ui` does, and so does a key")
	}
	code = rand.Text()
	hash := hashOf(code)
	expires = d.now().Add(codeLasts).UTC()
	data, err := json.Marshal(invitation{hash, id, expires})
	if err != nil {
		return "", time.Time{}, err
	}
	if _, err := d.kv.Create(ctx, codePrefix+idOf(hash), data); err != nil {
		return "", time.Time{}, fmt.Errorf("store a code: %w", err)
	}
	return code, expires, nil
}

// Invited says whom a code logs in, and uses it up if take. Denied: it is none, or not any more.
func (d *Store) Invited(ctx context.Context, code string, take bool) (auth.Identity, error) {
	gone := errs.New(errs.Denied, "this address logs no browser in any more: it does so once, and for two minutes").WithHint("`skete ui` gives another one")
	if len(code) != secretLen || strings.Trim(code, secretChars) != "" {
		return auth.Identity{}, gone
	}
	hash := hashOf(code)
	data, rev, err := d.kv.Get(ctx, codePrefix+idOf(hash))
	if errs.Is(err, errs.NotFound) {
		return auth.Identity{}, gone
	}
	if err != nil {
		return auth.Identity{}, err
	}
	var in invitation
	if err := json.Unmarshal(data, &in); err != nil {
		return auth.Identity{}, errs.Wrap(errs.Corrupt, err, "the record of a code is damaged")
	}
	if in.Hash != hash || !d.now().Before(in.ExpiresAt) {
		return auth.Identity{}, gone
	}
	if !take {
		return in.Identity, nil
	}
	err = d.kv.Delete(ctx, codePrefix+idOf(hash), rev)
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.NotFound) {
		return auth.Identity{}, gone // another browser was faster
	}
	return in.Identity, err
}

type codeOut struct{ Body api.LoginCode }

// invite answers with an address for the caller's browser.
func (p pages) invite(ctx context.Context, _ *struct{}) (*codeOut, error) {
	code, expires, err := p.Store.Invite(ctx, auth.From(ctx))
	if err != nil {
		return nil, err
	}
	return &codeOut{api.LoginCode{Path: "/login?" + url.Values{"code": {code}}.Encode(), ExpiresAt: expires}}, nil
}

// offer shows whom a code logs in.
func (p pages) offer(w http.ResponseWriter, r *http.Request, next, code string) {
	id, err := p.Store.Invited(r.Context(), code, false)
	if err != nil {
		p.refuse(w, next, err)
		return
	}
	p.render(w, http.StatusOK, pageData{Next: next, Code: code, Invited: &id})
}

// byCode logs a browser in by a code.
func (p pages) byCode(w http.ResponseWriter, r *http.Request, next, code string) error {
	id, err := p.Store.Invited(r.Context(), code, true)
	if err != nil {
		p.refuse(w, next, err)
		return nil
	}
	return p.start(w, r, id, func() { redirect(w, next) })
}
