// Package binary carries the skete-guest program inside skete, compressed, and
// puts it on disk for providers.
//
// `make build` places the program in dist/ before it builds skete. A plain
// `go build` works without it; then Install says how to get one.
package binary

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/packed"
)

//go:embed dist
var dist embed.FS

// Install writes the embedded guest program beneath dir, named by its hash,
// and returns its path. An equal file that is there already is kept. Safe to
// call from several processes at once.
//
// Unsupported: this skete was built without a guest.
func Install(dir string) (string, error) {
	f, err := dist.Open("dist/skete-guest.zst")
	if errors.Is(err, fs.ErrNotExist) {
		return "", errs.New(errs.Unsupported, "this skete was built without its guest program").
			WithHint("build with `make build`, or name a guest program with SKETE_GUEST")
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	path, err := packed.Install(dir, "skete-guest-", 0o755, f.(io.ReadSeeker)) // embed says that it is one
	if err != nil {
		return "", fmt.Errorf("install skete-guest: %w", err)
	}
	return path, nil
}
