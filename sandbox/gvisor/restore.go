package gvisor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor/runsc"
)

// guestOf is the program that the machine's guest is: what is mapped in a
// restored one must be what was mapped when it was saved, whatever the
// server has learnt since.
func guestOf(b sandbox.Boot) string {
	if b.From != "" {
		return filepath.Join(b.From, savedGuest)
	}
	return b.Guest
}

// loads reports whether b is to be restored, and refuses what cannot be.
func (p *Provider) loads(ctx context.Context, b sandbox.Boot, spec *specs.Spec) (bool, error) {
	if b.From == "" {
		return false, nil
	}
	if p.rootless() {
		return false, fmt.Errorf("%w: gVisor restores nothing without root", sandbox.ErrSnapshot)
	}
	program, _ := p.Program()
	want, err := savedBy(program, spec, b.Rootfs.Hash, b.Spec.DiskMB)
	if err != nil {
		return false, fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
	}
	if err := want.Check(b.From); err != nil {
		return false, err
	}
	return true, ctx.Err()
}

// runArgs is how gVisor starts the machine's first process, or goes on with
// all that there were.
func (p *Provider) runArgs(b sandbox.Boot) []string {
	common := []string{"--detach", "--pid-file=" + p.pidFile(b.ID), "--bundle=" + p.dir(b.ID)}
	if b.From == "" {
		return append(append([]string{"run"}, common...), string(b.ID))
	}
	return append(append([]string{"restore"}, common...), "--image-path="+b.From, string(b.ID))
}

func (p *Provider) pidFile(id sandbox.ID) string { return filepath.Join(p.dir(id), "sentry.pid") }

// keepGuest puts the guest program of a machine into its snapshot.
func (p *Provider) keepGuest(id sandbox.ID, dir string) error {
	return place(filepath.Join(p.bootDir(id), filepath.Base(wire.GuestBinary)), filepath.Join(dir, savedGuest))
}

// specOf reads the specification that a machine was made by.
func (p *Provider) specOf(id sandbox.ID) (*specs.Spec, error) {
	data, err := os.ReadFile(filepath.Join(p.dir(id), runsc.SpecName))
	if err != nil {
		return nil, err
	}
	spec := new(specs.Spec)
	return spec, json.Unmarshal(data, spec)
}
