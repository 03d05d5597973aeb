package client

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"github.com/skete-dev/skete/client/transport"
	"github.com/skete-dev/skete/internal/clip"
)

// DefaultURL is where a server listens unless configured otherwise.
const DefaultURL = transport.DefaultURL

// Config says where the server is and who is calling.
type Config = transport.Config

// Error is what the server answered instead of a result. errs.Of gives its
// class, errs.Public and errs.Hint its texts.
type Error = transport.Error

// Client talks to one server.
type Client struct{ t *transport.Client }

// New returns a client. It does not connect yet.
func New(cfg Config) (*Client, error) {
	t, err := transport.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{t: t}, nil
}

// Through returns a context whose calls tell the server by which program they are
// made for the key's owner: the history names it beside the key.
func Through(ctx context.Context, program string) context.Context {
	return transport.Through(ctx, clip.Line(program, programMax))
}

// programMax bounds the name of a program.
const programMax = 64

// FromEnv returns a client for $SKETE_URL with $SKETE_KEY, or for the unix
// socket in Home when SKETE_URL is not set.
func FromEnv() (*Client, error) {
	cfg := Config{URL: os.Getenv("SKETE_URL"), Key: os.Getenv("SKETE_KEY")}
	if cfg.URL == "" {
		cfg.Socket = SocketPath(Home())
	}
	return New(cfg)
}

// Home is the data directory of the server on this machine: $SKETE_HOME, else
// /var/lib/skete for root and ~/.local/share/skete for everyone else.
func Home() string {
	if dir := os.Getenv("SKETE_HOME"); dir != "" {
		return dir
	}
	if os.Getuid() == 0 {
		return "/var/lib/skete"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "share", "skete")
}

// SocketPath is where the server of a data directory listens.
func SocketPath(home string) string { return filepath.Join(home, "skete.sock") }

// Close drops idle connections. Streams under way go on.
func (c *Client) Close() { c.t.Close() }

// DialUnix connects to a unix socket whose path may be longer than the 107
// bytes that the kernel accepts.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	return transport.DialUnix(ctx, path)
}

// WithShortPath calls f with a path of at most 107 bytes for the same file.
// It is good only until f returns.
func WithShortPath(path string, f func(short string) error) error {
	return transport.WithShortPath(path, f)
}
