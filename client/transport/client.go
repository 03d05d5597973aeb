package transport

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// DefaultURL is where a server listens unless configured otherwise.
const DefaultURL = "http://127.0.0.1:7733"

// Config says where the server is and who is calling.
type Config struct {
	// URL is http://host:port, https://host[:port] or unix:///path/of/skete.sock.
	URL string
	// Key is an API key. A unix socket needs none: the server looks at who calls.
	Key string
	// Socket is the path of a unix socket; it wins over URL.
	Socket string
	// HTTPClient is used for URLs of http and https; nil = one of our own.
	// It must not have a Timeout: streams live as long as they live.
	HTTPClient *http.Client
	// ReconnectTimeout is how long a broken stream tries to come back; 0 = 60 s.
	ReconnectTimeout time.Duration
}

// Client talks to one server.
type Client struct {
	base      string // scheme://host, no slash at the end
	key       string
	http      *http.Client
	reconnect time.Duration
}

// New returns a client. It does not connect yet.
func New(cfg Config) (*Client, error) {
	c := &Client{key: cfg.Key, reconnect: cfg.ReconnectTimeout}
	if c.reconnect <= 0 {
		c.reconnect = 60 * time.Second
	}
	socket, err := socketOf(cfg)
	if err != nil {
		return nil, err
	}
	if socket != "" {
		c.base = "http://skete"
		c.http = noRedirects(&http.Client{Transport: unixTransport(socket)})
		return c, nil
	}
	c.base, err = baseOf(cfg.URL)
	if err != nil {
		return nil, err
	}
	hc := cfg.HTTPClient
	if hc == nil {
		hc = &http.Client{Transport: tcpTransport()}
	}
	c.http = noRedirects(hc)
	return c, nil
}

// Close drops idle connections. Streams under way go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Reconnect is how long a broken stream tries to come back.
func (c *Client) Reconnect() time.Duration { return c.reconnect }

func socketOf(cfg Config) (string, error) {
	if cfg.Socket != "" {
		return cfg.Socket, nil
	}
	rest, ok := strings.CutPrefix(cfg.URL, "unix://")
	if !ok {
		return "", nil
	}
	if !filepath.IsAbs(rest) {
		return "", errs.New(errs.Invalid, "the server's URL %.80q names no absolute path", cfg.URL).
			WithHint("write unix:///path/of/skete.sock")
	}
	return rest, nil
}

func baseOf(s string) (string, error) {
	if s == "" {
		s = DefaultURL
	}
	u, err := url.Parse(s)
	ok := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		u.User == nil && u.RawQuery == "" && u.Fragment == ""
	if !ok {
		return "", errs.New(errs.Invalid, "%.80q is not the URL of a server", s).
			WithHint("use http://host:port, https://host or unix:///path/of/skete.sock")
	}
	return strings.TrimSuffix(s, "/"), nil
}

// noRedirects returns a copy of hc that follows no redirect: our API has none,
// and a key must not travel to where one points.
func noRedirects(hc *http.Client) *http.Client {
	own := *hc
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

func tcpTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}
}

func unixTransport(socket string) *http.Transport {
	t := tcpTransport()
	t.Proxy = nil
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return DialUnix(ctx, socket)
	}
	return t
}
