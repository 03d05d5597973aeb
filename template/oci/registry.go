package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/skete-dev/skete/errs"
)

const (
	dialTimeout   = 15 * time.Second
	headerTimeout = 60 * time.Second
	// stallTimeout is how long a registry may send nothing of a layer.
	stallTimeout = 60 * time.Second
)

// Auth is how to sign in at the registry; the zero value is anonymous. It shows
// nothing of itself.
type Auth struct{ config authn.AuthConfig }

// NewAuth takes a name and password, or one of the tokens that `docker login` keeps.
func NewAuth(username, password, identityToken, registryToken string) Auth {
	return Auth{authn.AuthConfig{Username: username, Password: password, IdentityToken: identityToken, RegistryToken: registryToken}}
}

// String and GoString keep it out of logs.
func (Auth) String() string { return "***" }

// GoString is String.
func (Auth) GoString() string { return "***" }

// Reference is a parsed name of an image.
type Reference struct {
	ref   name.Reference
	plain bool // plain HTTP may be spoken
	given string
}

// String is the name as it was given.
func (r Reference) String() string { return r.given }

// Registry is the host that serves it.
func (r Reference) Registry() string { return r.ref.Context().RegistryStr() }

// Short is the last part of the repository's name, good as a template's name.
func (r Reference) Short() string {
	repo := r.ref.Context().RepositoryStr()
	return repo[strings.LastIndexByte(repo, '/')+1:]
}

// ParseReference reads "name", "name:tag" or "name@digest" as docker does.
// Plain HTTP is spoken when asked for, and with this machine itself.
func ParseReference(s string, plainHTTP bool) (Reference, error) {
	if len(s) > 1000 {
		return Reference{}, errs.New(errs.Invalid, "the image's name is too long")
	}
	ref, err := name.ParseReference(s)
	if err == nil && (plainHTTP || loopback(ref.Context().RegistryStr())) {
		plainHTTP = true
		ref, err = name.ParseReference(s, name.Insecure)
	}
	if err != nil {
		return Reference{}, errs.Wrap(errs.Invalid, err, "%.200q is not the name of an image", s).
			WithHint("such as debian, registry.example/owner/name:tag or name@sha256:…")
	}
	return Reference{ref, plainHTTP, s}, nil
}

func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// registry speaks with one registry about one repository.
type registry struct {
	ref    Reference
	client *http.Client
	close  func()
}

// dial signs in.
func dial(ctx context.Context, ref Reference, auth Auth) (*registry, error) {
	base := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout,
		ResponseHeaderTimeout: headerTimeout, MaxIdleConnsPerHost: fetchersMax, ForceAttemptHTTP2: true,
		DisableCompression: true,
	}
	who := authn.Anonymous
	if auth.config != (authn.AuthConfig{}) {
		who = authn.FromConfig(auth.config)
	}
	repo := ref.ref.Context()
	t, err := transport.NewWithContext(ctx, repo.Registry, who, transport.NewUserAgent(guard{base, ref.plain}, "skete"), []string{repo.Scope(transport.PullScope)})
	if err != nil {
		base.CloseIdleConnections()
		return nil, ref.failed(err, "sign in")
	}
	return &registry{ref, &http.Client{Transport: t}, base.CloseIdleConnections}, nil
}

// guard refuses plain HTTP that was not asked for, wherever a registry leads.
type guard struct {
	next  http.RoundTripper
	plain bool
}

var errPlain = errors.New("plain HTTP was not asked for")

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" && !g.plain && !loopback(r.URL.Host) {
		return nil, errPlain
	}
	return g.next.RoundTrip(r)
}

// get asks for a part of the repository.
func (r *registry) get(ctx context.Context, kind, id string, header http.Header) (*http.Response, error) {
	repo := r.ref.ref.Context()
	u := url.URL{Scheme: "https", Host: repo.RegistryStr(), Path: fmt.Sprintf("/v2/%s/%s/%s", repo.RepositoryStr(), kind, id)}
	if r.ref.plain {
		u.Scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	res, err := r.client.Do(req)
	if err != nil {
		return nil, r.ref.failed(err, kind+" "+id)
	}
	if err := transport.CheckError(res, http.StatusOK, http.StatusPartialContent); err != nil {
		_ = res.Body.Close()
		return nil, r.ref.failed(&refused{err, retryAfter(res.Header)}, kind+" "+id)
	}
	return res, nil
}

// refused keeps when the registry asks to come back.
type refused struct {
	error
	after time.Duration
}

func (r *refused) Unwrap() error { return r.error }

const retryAfterMax = 2 * time.Minute

func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n <= 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, retryAfterMax)
}

var manifestKinds = []string{
	string(types.OCIImageIndex), string(types.DockerManifestList), string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
}

// manifest reads an index or manifest by tag or digest; a digest is checked.
func (r *registry) manifest(ctx context.Context, id string) ([]byte, types.MediaType, error) {
	res, err := r.get(ctx, "manifests", id, http.Header{"Accept": manifestKinds})
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, documentBytesMax+1))
	if err != nil {
		return nil, "", r.ref.failed(err, "manifest "+id)
	}
	if len(data) > documentBytesMax {
		return nil, "", errs.New(errs.Limit, "the registry %s sent a manifest of more than %d bytes", r.ref.Registry(), documentBytesMax)
	}
	if strings.Contains(id, ":") && digestOf(data) != id {
		return nil, "", r.ref.lied("the manifest", id)
	}
	return data, types.MediaType(strings.SplitN(res.Header.Get("Content-Type"), ";", 2)[0]), nil
}

// open begins a blob at an offset, if the registry can.
func (r *registry) open(ctx context.Context, digest string, offset, size int64) (io.ReadCloser, int64, error) {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, size-1))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	res, err := r.get(ctx, "blobs", digest, header)
	var answer *transport.Error
	if offset > 0 && errors.As(err, &answer) && answer.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		res, err = r.get(ctx, "blobs", digest, http.Header{}) // then from the begin
	}
	if err != nil {
		cancel(nil)
		return nil, 0, err
	}
	if res.StatusCode != http.StatusPartialContent || !strings.HasPrefix(res.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", offset)) {
		if res.StatusCode == http.StatusPartialContent {
			_ = res.Body.Close()
			cancel(nil)
			return nil, 0, r.ref.lied("a part of the layer", digest)
		}
		offset = 0
	}
	return &patient{body: res.Body, ref: r.ref, ctx: ctx, cancel: cancel, timer: time.AfterFunc(stallTimeout, func() { cancel(errStalled) })}, offset, nil
}

var errStalled = errors.New("nothing came for a minute")

// patient ends a body that stalls, and gives its errors a class.
type patient struct {
	body   io.ReadCloser
	ref    Reference
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (p *patient) Read(b []byte) (int, error) {
	p.timer.Reset(stallTimeout)
	n, err := p.body.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(p.ctx); errors.Is(cause, errStalled) {
			err = cause
		}
		err = p.ref.failed(err, "read a layer")
	}
	return n, err
}

func (p *patient) Close() error {
	p.timer.Stop()
	p.cancel(nil)
	return p.body.Close()
}

// lied names the registry whose content is not what its name says.
func (r Reference) lied(what, digest string) error {
	return errs.New(errs.Corrupt, "the registry %s sent other bytes for %s %s than that digest says", r.Registry(), what, digest).
		WithHint("the image is not used; ask the operator of the registry, or pull from another one")
}

// failed gives an error of a registry its class. What it says to users was not
// written by the registry.
func (r Reference) failed(err error, doing string) error {
	host := r.Registry()
	var own *errs.Error
	var answer *transport.Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &own), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && !isTimeout(err):
		return err
	case errors.Is(err, errPlain):
		return errs.Wrap(errs.Denied, err, "the registry %s wants plain HTTP", host).
			WithHint("--insecure-http allows it; what comes is still checked by its digest, but names and passwords can be read on the way")
	case errors.As(err, &answer):
		return r.answered(err, answer, doing)
	case errors.As(err, &dns) && dns.IsNotFound:
		return errs.Wrap(errs.NotFound, err, "there is no host %.200q", host).WithHint("is the image's name right? what comes before its first slash is taken for a host if it has a dot or a colon")
	case strings.Contains(err.Error(), "x509:"), strings.Contains(err.Error(), "tls: "), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return errs.Wrap(errs.Denied, err, "the registry %s cannot prove who it is", host).
			WithHint("a registry without HTTPS needs --insecure-http; one with a certificate of its own needs that in the host's trust store")
	}
	return errs.Wrap(errs.Unavailable, err, "the registry %s cannot be reached, or broke off", host).
		WithHint("`skete template pull` goes on where it was; without a network, `skete template import` takes a bundle or `docker save`")
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, os.ErrDeadlineExceeded)
}

func (r Reference) answered(err error, answer *transport.Error, doing string) error {
	host := r.Registry()
	switch code := answer.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return errs.Wrap(errs.Denied, err, "the registry %s does not let us have %s", host, r.given).
			WithHint("is the name right? `docker login %s` or --username and --password-stdin sign in", host)
	case code == http.StatusNotFound && strings.HasPrefix(doing, "blobs "):
		return errs.Wrap(errs.NotFound, err, "the registry %s lacks a part of %s: %s", host, r.given, strings.TrimPrefix(doing, "blobs "))
	case code == http.StatusNotFound:
		return errs.Wrap(errs.NotFound, err, "the registry %s has no image %s", host, r.given)
	case code == http.StatusTooManyRequests:
		return errs.Wrap(errs.Unavailable, err, "the registry %s asks us to come back later", host).WithHint("signing in often allows more")
	case code >= 500 || code == http.StatusRequestTimeout:
		return errs.Wrap(errs.Unavailable, err, "the registry %s has trouble (status %d)", host, code)
	}
	return errs.Wrap(errs.Unsupported, err, "the registry %s answered %d", host, answer.StatusCode)
}
