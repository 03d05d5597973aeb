// Package binary carries the skete-guest program inside skete and puts it on
// disk for providers.
//
// `make build` places the program in dist/ before it builds skete. A plain
// `go build` works without it; then Install says how to get one.
package binary

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
)

//go:embed dist
var dist embed.FS

// Install writes the embedded guest program beneath dir, named by its content,
// and returns its path. An equal file that is there already is kept. Safe to
// call from several processes at once.
//
// Unsupported: this skete was built without a guest.
func Install(dir string) (string, error) {
	data, err := fs.ReadFile(dist, "dist/skete-guest")
	if errors.Is(err, fs.ErrNotExist) {
		return "", errs.New(errs.Unsupported, "this skete was built without its guest program").
			WithHint("build with `make build`, or name a guest program with SKETE_GUEST")
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, "skete-guest-"+hex.EncodeToString(sum[:8]))
	if old, err := os.ReadFile(path); err == nil && sha256.Sum256(old) == sum {
		return path, nil
	}
	return path, place(dir, path, data)
}

func place(dir, path string, data []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".guest-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
