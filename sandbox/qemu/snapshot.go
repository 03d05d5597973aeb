package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/qemu/qmp"
)

// Snapshot implements sandbox.Machine.
func (m *machine) Snapshot(ctx context.Context, dir string, frozen func(context.Context) error) error {
	if err := m.take(ctx); err != nil {
		return err
	}
	defer func() { <-m.turn }()
	s := &saving{m: m, dir: dir, manifest: savedManifest{Format: savedFormat, Shape: m.rec.Shape}}
	defer s.close()
	err := s.freeze(ctx, frozen)
	if err == nil {
		err = s.finish()
	}
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", m.id, err)
	}
	return nil
}

// saving is one snapshot being made.
type saving struct {
	m        *machine
	dir      string
	manifest savedManifest
	files    []*os.File // to be synced
}

// freeze stops the machine for as long as it takes to write everything.
func (s *saving) freeze(ctx context.Context, frozen func(context.Context) error) (err error) {
	m := s.m
	// The guest sees the end of its session now, and not in every clone again.
	m.guest.Close()
	m.line.Hangup()
	defer m.line.Hangup() // what was opened meanwhile
	if err := m.command(ctx, "stop", nil, nil); err != nil {
		return err
	}
	defer func() {
		if m.paused {
			return
		}
		if e := m.goOn(context.WithoutCancel(ctx)); e != nil {
			err = errors.Join(err, errs.Wrap(errs.Unavailable, e, "the machine could not go on"))
		}
	}()
	if err := s.state(ctx); err != nil {
		return err
	}
	if s.manifest.MemoryBytes > 0 {
		if err := s.memory(ctx); err != nil {
			return err
		}
	}
	if err := s.layer(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return frozen(ctx)
}

// state has QEMU write what it knows. Memory that is a file is left out.
func (s *saving) state(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	c, err := s.m.client(ctx)
	if err != nil {
		return err
	}
	apart := !s.m.rec.Shared
	if err := memoryApart(ctx, c, apart); refused(err) && apart {
		apart = false // an experimental thing that this QEMU does not have
	} else if err != nil {
		return err
	}
	if apart {
		s.manifest.MemoryBytes = int64(s.manifest.Shape.MemoryMB) << 20
	}
	f, err := s.create(stateFile)
	if err != nil {
		return err
	}
	if err := c.Execute(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": int64(64 << 30)}, nil); err != nil {
		return err
	}
	if err := c.PassFile(ctx, "state", f); err != nil {
		return err
	}
	if err := c.Execute(ctx, "migrate", map[string]string{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	return awaitMigration(ctx, c)
}

// memoryApart says whether memory that is a file is part of the state.
func memoryApart(ctx context.Context, c *qmp.Client, apart bool) error {
	type capability struct {
		Name  string `json:"capability"`
		State bool   `json:"state"`
	}
	return c.Execute(ctx, "migrate-set-capabilities", map[string]any{
		"capabilities": []capability{{"x-ignore-shared", apart}},
	}, nil)
}

// pollEvery is how often QEMU is asked for progress.
const pollEvery = 2 * time.Millisecond

func awaitMigration(ctx context.Context, c *qmp.Client) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		var now struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := c.Execute(ctx, "query-migrate", nil, &now); err != nil {
			return err
		}
		switch now.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return errs.New(errs.Unavailable, "QEMU could not write the machine's state (%s): %.200q", now.Status, now.Error)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// memory copies the memory file, which only QEMU has open.
func (s *saving) memory(ctx context.Context) error {
	from, err := openMemory(s.m.rec.QEMU.PID)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := s.create(MemoryFile)
	if err != nil {
		return err
	}
	s.manifest.MemorySum, err = copyData(ctx, to, from, s.manifest.MemoryBytes)
	return err
}

// openMemory opens the memory file of a QEMU by its descriptor there.
func openMemory(pid int) (*os.File, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find the machine's memory: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, "/memfd:memory-backend-memfd") {
			return os.Open(path)
		}
	}
	return nil, errs.New(errs.Internal, "QEMU does not have the machine's memory open")
}

func (s *saving) layer() error {
	from, err := os.Open(s.m.p.layerPath(s.m.id))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := s.create(layerFile)
	if err != nil {
		return err
	}
	s.manifest.LayerBytes, err = copyFile(to, from)
	return err
}

func (s *saving) create(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		s.files = append(s.files, f)
	}
	return f, err
}

func (s *saving) close() {
	for _, f := range s.files {
		_ = f.Close()
	}
}

// finish writes the manifest when everything else is on the disk. The machine
// runs again.
func (s *saving) finish() error {
	for _, f := range s.files {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	var err error
	if s.manifest.StateSum, s.manifest.StateBytes, err = sumFile(filepath.Join(s.dir, stateFile)); err != nil {
		return err
	}
	return writeJSON(filepath.Join(s.dir, manifestFile), s.manifest)
}
