// Package binary carries the skete-guest program and skete-agent, which works in
// machines, inside skete, compressed, and puts them on disk.
//
// `make build` places the programs in dist/ before it builds skete. A plain
// `go build` works without them; then Install and Agent say how to get one.
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
	return install(dir, "skete-guest", errs.New(errs.Unsupported, "this skete was built without its guest program").
		WithHint("build with `make build`, or name a guest program with SKETE_GUEST"))
}

// Agent is Install of skete-agent.
func Agent(dir string) (string, error) {
	return install(dir, "skete-agent", errs.New(errs.Unsupported, "this skete was built without the program of agents in sandboxes").
		WithHint("build with `make build`, or name one with SKETE_AGENTS_PROGRAM"))
}

func install(dir, name string, missing error) (string, error) {
	f, err := dist.Open("dist/" + name + ".zst")
	if errors.Is(err, fs.ErrNotExist) {
		return "", missing
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	path, err := packed.Install(dir, name+"-", 0o755, f.(io.ReadSeeker)) // embed says that it is one
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}
