package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/skete-dev/skete/secret"
)

// This file exchanges tokens that a token endpoint gave a sandbox: it has placeholders of them.

// formBytesMax is how much of a form is read to look for placeholders.
const formBytesMax = 64 << 10

// fields are those of a form at a token endpoint that have tokens (RFC 6749, 7009, 7523, 8693).
var fields = []string{refreshToken, "token", "subject_token", "assertion"}

// stale are headers that are about the bytes of a body.
var stale = []string{"Content-Length", "Etag", "Digest", "Content-Digest", "Repr-Digest", "Content-Md5"}

// carried is what a request takes along of secrets.
type carried struct {
	sent, signing []secret.Held
	at            []secret.Held // it goes to a host of theirs, which is sent tokens alone
	endpoint      *secret.Held  // it goes to the token endpoint of this one
	stored        *secret.SandboxTokens
	tokens        []secret.Token
	over          []secret.Token // are not exchanged any more, and hidden still
	bearer        *secret.Token  // is sent, in place of its placeholder
}

// carry finds out what a request takes along, and puts real tokens into a form.
func (p *Proxy) carry(r *http.Request, held []secret.Held) (c carried, err error) {
	var oauth []secret.Held
	for i, h := range held {
		switch {
		case h.Signs():
			c.signing = append(c.signing, h)
		case h.OAuth() && !h.Grant.OAuth:
			c.at = append(c.at, h)
		default:
			c.sent = append(c.sent, h)
		}
		if h.Grant.OAuth {
			c.endpoint = &held[i]
		}
		if h.OAuth() {
			oauth = append(oauth, h)
		}
	}
	if len(oauth) == 0 {
		return c, nil
	}
	if c.stored = p.c.Tokens(); c.stored == nil {
		return carried{}, errors.New("no tokens are kept here")
	}
	if c.tokens, c.over, err = c.stored.List(r.Context(), oauth...); err != nil {
		return carried{}, errors.New("its tokens cannot be read now")
	}
	if word, ok := strings.CutPrefix(one(r.Header["Authorization"]), "Bearer "); ok {
		c.bearer = c.token(word, c.at)
	}
	if c.endpoint != nil {
		err = c.fill(r)
	}
	return c, err
}

func one(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// token is what a placeholder stands for, of one of the secrets; nil = nothing.
func (c carried) token(word string, of []secret.Held) *secret.Token {
	for i, t := range c.tokens {
		if t.Placeholder == word && slices.ContainsFunc(of, func(h secret.Held) bool { return h.Name == t.Secret }) {
			return &c.tokens[i]
		}
	}
	return nil
}

// any reports whether a secret or a token may come back in the answer.
func (c carried) any() bool { return len(c.sent)+len(c.at) > 0 }

// used are the secrets that are sent, or of which a token is.
func (c carried) used() []secret.Held {
	list := slices.Concat(c.sent, c.signing)
	for _, h := range c.at {
		if c.bearer != nil && h.Name == c.bearer.Secret {
			list = append(list, h)
		}
	}
	slices.SortStableFunc(list, func(a, b secret.Held) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (c carried) needles() [][]byte {
	needles := needlesOf(slices.Concat(c.sent, c.at))
	for _, t := range slices.Concat(c.tokens, c.over) {
		needles = append(needles, t.Forms()...)
	}
	return needles
}

// fill puts real tokens into the form of a request to a token endpoint. What is no form, or
// too long, stays as it is: placeholders are worth nothing.
func (c carried) fill(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(one(r.Header["Content-Type"]))
	if err != nil || kind != "application/x-www-form-urlencoded" || r.Header.Get("Content-Encoding") != "" || r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, formBytesMax+1))
	if err != nil {
		return errors.New("the form could not be read")
	}
	form := string(body)
	if len(body) <= formBytesMax {
		form = c.filled(form)
	}
	rest := r.Body
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(form), rest), rest}
	if form == string(body) {
		return nil
	}
	for _, h := range stale {
		r.Header.Del(h)
	}
	r.ContentLength, r.TransferEncoding = int64(len(form)), nil
	return nil
}

// filled is a form with real tokens, each field once and its value whole.
func (c carried) filled(form string) string {
	parts := strings.Split(form, "&")
	at := map[string][]int{}
	for i, part := range parts {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err == nil && slices.Contains(fields, plain) {
			at[plain] = append(at[plain], i)
		}
	}
	for _, places := range at {
		if len(places) != 1 {
			continue
		}
		name, value, _ := strings.Cut(parts[places[0]], "=")
		if plain, err := url.QueryUnescape(value); err == nil {
			if t := c.token(plain, []secret.Held{*c.endpoint}); t != nil {
				parts[places[0]] = name + "=" + url.QueryEscape(t.Value.Reveal())
			}
		}
	}
	return strings.Join(parts, "&")
}

// hide hides in an answer what is not to be seen.
func (c *carried) hide(ctx context.Context, res *http.Response) error {
	if err := readable(res); err != nil {
		return err
	}
	if c.endpoint != nil {
		if err := c.seal(ctx, res); err != nil {
			return err
		}
	}
	mask(res, c.needles())
	return nil
}

// seal takes the tokens out of the answer of a token endpoint, and keeps them. What it cannot
// be sure of is not passed on.
func (c *carried) seal(ctx context.Context, res *http.Response) error {
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols:
		return errors.New("its token endpoint goes on with another protocol")
	case res.Header.Get("Location") != "":
		return errors.New("its token endpoint redirects, and where to may say a token")
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax+1))
	if err != nil {
		return errors.New("its answer could not be read to its end")
	}
	if len(body) > answerBytesMax {
		return errors.New("its answer is too long, so that tokens could not be hidden in it")
	}
	out, real := body, []secret.Token(nil)
	if len(body) > 0 {
		out, real, err = sealAnswer(body, slices.Concat(c.over, c.tokens), func(fresh []secret.NewToken) ([]secret.Token, error) {
			list, err := c.stored.Keep(ctx, *c.endpoint, fresh)
			if err != nil {
				return nil, errors.New("its tokens could not be kept")
			}
			return list, nil
		})
	}
	if errors.Is(err, errNoObject) && res.StatusCode/100 != 2 && !saysJSON(res.Header) {
		out, err = body, nil // an error page
	}
	if err != nil {
		return err
	}
	c.tokens = append(c.tokens, real...)
	if !bytes.Equal(out, body) {
		for _, h := range stale {
			res.Header.Del(h)
		}
		res.ContentLength = int64(len(out))
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(out), res.Body}
	return nil
}

func saysJSON(h http.Header) bool {
	return slices.ContainsFunc(h["Content-Type"], func(s string) bool { return strings.Contains(strings.ToLower(s), "json") })
}
