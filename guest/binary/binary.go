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
	return install(dir, guest, "", errs.New(errs.Unsupported, "this skete was built without its guest program").
		WithHint("build with `make build`, or name a guest program with SKETE_GUEST"))
}

// Agent is Install of skete-agent, which is packed against the guest program.
func Agent(dir string) (string, error) {
	return install(dir, "skete-agent", guest, errs.New(errs.Unsupported, "this skete was built without the program of agents in sandboxes").
		WithHint("build with `make build`, or name one with SKETE_AGENTS_PROGRAM"))
}

const guest = "skete-guest"

func install(dir, name, base string, missing error) (string, error) {
	p, err := program(name)
	if base != "" && err == nil {
		p.Base, err = program(base)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", missing
	}
	if err != nil {
		return "", err
	}
	path, err := p.Install(dir, name+"-", 0o755)
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}

func program(name string) (*packed.Program, error) {
	f, err := dist.Open("dist/" + name + ".zst")
	if err != nil {
		return nil, err
	}
	return &packed.Program{Data: f.(io.ReadSeeker)}, nil // embed says that it is one, and closing it does nothing
}
