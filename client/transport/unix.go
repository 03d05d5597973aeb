package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// unixPathMax is what fits into sockaddr_un with its terminating zero.
const unixPathMax = 107

// DialUnix connects to a unix socket whose path may be longer than the 107
// bytes that the kernel accepts.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	var conn net.Conn
	err := WithShortPath(path, func(short string) error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", short)
		return err
	})
	return conn, err
}

// WithShortPath calls f with a path of at most 107 bytes for the same file: a
// long one goes through the directory's descriptor in /proc. The short path
// is good only until f returns.
func WithShortPath(path string, f func(short string) error) error {
	if len(path) <= unixPathMax {
		return f(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	return errors.Join(f(short), dir.Close())
}
