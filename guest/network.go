package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/capture"
	"github.com/skete-dev/skete/guest/wire"
)

const bundleBytesMax = 8 << 20

// openNetwork makes programs reach the public network through the host; nil: the
// machine has none. What programs look at is written first.
func openNetwork(cfg Config, host transport) (*capture.Capture, error) {
	n := cfg.Boot.Network
	if n == nil || !cfg.Own {
		return nil, nil
	}
	err := writeFile("/etc/resolv.conf", []byte("nameserver "+capture.Resolver+"\n"))
	if n.Authority != "" {
		err = errors.Join(err, trust("/", []byte(n.Authority)))
	}
	err = errors.Join(err, configure("/", cfg.Boot.Files()))
	c, cerr := capture.Start(capture.Config{
		Open: func(ctx context.Context) (net.Conn, error) { return host.dial(ctx, wire.NetworkPort) },
		Logf: func(format string, args ...any) { logf(cfg.Log, format, args...) },
	})
	return c, errors.Join(err, cerr)
}

// renewNetwork is called when the machine may have come out of a snapshot, before its
// commands go on. No authority: the one that is trusted stays.
func (c *control) renewNetwork(authority []byte, files map[string][]byte) {
	if c.network == nil {
		return
	}
	err := c.network.Renew()
	if len(authority) > 0 {
		err = errors.Join(err, trust("/", authority))
	}
	err = errors.Join(err, configure("/", files))
	if err != nil {
		logf(c.cfg.Log, "%v", err)
	}
}

// trust adds a certificate to those that programs trust: to the bundles that there are,
// and to one of our own that the environment of commands names. It takes the place of one
// that was added before.
func trust(root string, authority []byte) error {
	ours := slices.Concat([]byte(wire.TrustBegin), bytes.TrimRight(authority, "\n"), []byte("\n"+wire.TrustEnd))
	var all []byte
	var errs error
	for _, p := range wire.TrustBundles {
		p = filepath.Join(root, p)
		old, err := readFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if old = withoutOurs(old); err == nil {
			err = writeFile(p, append(old, ours...))
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("trust the network: %w", err))
			continue
		}
		if len(old) > len(all) {
			all = old
		}
	}
	all = append(all, ours...)
	if err := writeFile(filepath.Join(root, wire.TrustFile), all); err != nil {
		return errors.Join(errs, fmt.Errorf("trust the network: %w", err))
	}
	return errors.Join(errs, trustJava(root, all))
}

// configure writes settings of package managers. What a template or a program has put in
// such a place stays.
func configure(root string, files map[string][]byte) error {
	var errs error
	for p, content := range files {
		p = filepath.Join(root, p)
		switch old, err := readFile(p); {
		case err == nil && !bytes.HasPrefix(old, []byte(wire.SettingsBegin)):
			continue
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			errs = errors.Join(errs, err)
			continue
		}
		if err := writeFile(p, slices.Concat([]byte(wire.SettingsBegin), content)); err != nil {
			errs = errors.Join(errs, fmt.Errorf("settings of the network: %w", err))
		}
	}
	return errs
}

// withoutOurs returns what is in a bundle but for what was added, ended by a line's end.
func withoutOurs(b []byte) []byte {
	if before, rest, ok := bytes.Cut(b, []byte(wire.TrustBegin)); ok {
		_, after, _ := bytes.Cut(rest, []byte(wire.TrustEnd))
		b = slices.Concat(before, after)
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		b = append(slices.Clip(b), '\n')
	}
	return slices.Clip(b)
}

func readFile(p string) ([]byte, error) {
	info, err := os.Stat(p)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > bundleBytesMax {
		return nil, fmt.Errorf("%s is no bundle of certificates", p)
	}
	return os.ReadFile(p)
}

// writeFile replaces a file whole. Where it is a link, as bundles are in places, what it
// leads to is replaced.
func writeFile(p string, content []byte) error {
	if to, err := filepath.EvalSymlinks(p); err == nil {
		p = to
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(p), ".skete-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	err = os.Rename(f.Name(), p)
	if errors.Is(err, unix.EBUSY) { // it is mounted there, as container engines do
		err = os.WriteFile(p, content, 0o644)
	}
	return err
}
