package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor/runsc"
)

// Destroy implements sandbox.Provider.
func (p *Provider) Destroy(ctx context.Context, id sandbox.ID) error {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return err
	}
	return p.machines.Destroy(ctx, id, destroyTimeout, func(ctx context.Context) error { return p.clear(ctx, id) })
}

// clear ends the machine and removes all that has the ID in its name. It may
// find anything from nothing to a running machine, and may be repeated. We do
// not ask runsc to do it: it trusts its own state file, and waits in steps of
// 100 ms for control groups.
func (p *Provider) clear(ctx context.Context, id sandbox.ID) error {
	m := p.machines.Known(id)
	if m == nil {
		if rec, err := readRecord(p.dir(id)); err == nil && p.original(id, rec) != "" {
			return p.clearCopy(id)
		}
	}
	if m != nil {
		m.lifetime.Doom(true)
	}
	if err := p.kill(ctx, id); err != nil {
		return err
	}
	if m != nil {
		m.lifetime.Settle(ctx)
		_ = m.Close()
	}
	if p.cgroups != nil {
		if err := p.group(id).Remove(ctx); err != nil {
			return err
		}
	}
	if err := removeAll(p.strayFiles(id)); err != nil {
		return err
	}
	if err := unmountBelow(p.dir(id)); err != nil {
		return err
	}
	_ = p.openDoor(id) // or it could not be removed; it may be missing
	return os.RemoveAll(p.dir(id))
}

// clearCopy removes what a copied data directory has of a machine that lives
// for the original: files of this directory alone.
func (p *Provider) clearCopy(id sandbox.ID) error {
	state := p.stateFile(id)
	if err := removeAll([]string{state, strings.TrimSuffix(state, ".state") + ".lock", filepath.Join(p.runscDir(), p.controlSocket(id))}); err != nil {
		return err
	}
	if err := unmountBelow(p.dir(id)); err != nil {
		return err
	}
	_ = p.openDoor(id)
	return os.RemoveAll(p.dir(id))
}

// kill ends every process of the machine and returns when none is left; what
// is started meanwhile is found in the next round.
func (p *Provider) kill(ctx context.Context, id sandbox.ID) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		refs, err := p.processes(id)
		if err != nil {
			return err
		}
		refs = slices.DeleteFunc(refs, func(r hostproc.Ref) bool {
			return errors.Is(r.Signal(unix.SIGKILL), hostproc.ErrGone)
		})
		if p.cgroups != nil {
			if err := p.group(id).Kill(ctx); err != nil {
				return err
			}
		}
		if len(refs) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// processes lists what is known to belong to the machine besides the members
// of its control group: those on record. Where record or group is missing,
// command lines must do: a server that died in a create left no record, and
// perhaps a runsc that is still at work.
func (p *Provider) processes(id sandbox.ID) ([]hostproc.Ref, error) {
	rec, err := readRecord(p.dir(id))
	if err != nil || p.cgroups == nil {
		return p.search(id)
	}
	return []hostproc.Ref{rec.Sentry, rec.Gofer}, nil
}

// search finds the machine's processes by their command lines.
func (p *Provider) search(id sandbox.ID) ([]hostproc.Ref, error) {
	ps, err := hostproc.List()
	if err != nil {
		return nil, err
	}
	var refs []hostproc.Ref
	for _, proc := range ps {
		if !p.ours(proc.Args, id) {
			continue
		}
		refs = append(refs, hostproc.Tree(ps, proc.PID)...)
	}
	return refs, nil
}

// ours tells a process of gVisor that works for this machine of this state
// directory: the ID is always its last argument.
func (p *Provider) ours(args []string, id sandbox.ID) bool {
	if len(args) < 3 || args[len(args)-1] != string(id) || !slices.Contains(args, "--root="+p.runscDir()) {
		return false
	}
	return strings.HasPrefix(filepath.Base(args[0]), "runsc") || args[0] == runsc.SelfExe || args[1] == runsc.Verb
}

func (p *Provider) stateFile(id sandbox.ID) string {
	return filepath.Join(p.runscDir(), fmt.Sprintf("%s_sandbox:%s.state", id, id))
}

// strayFiles are those outside the machine's own directory. runsc puts its
// control socket elsewhere when the path to its state is too long for one.
func (p *Provider) strayFiles(id sandbox.ID) []string {
	state := p.stateFile(id)
	files := []string{state, strings.TrimSuffix(state, ".state") + ".lock"}
	for _, dir := range []string{p.runscDir(), "/var/run", "/run", "/tmp"} {
		files = append(files, filepath.Join(dir, p.controlSocket(id)))
	}
	return files
}

func removeAll(paths []string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// unmountBelow detaches whatever is mounted at or below dir. gVisor mounts in
// namespaces of its own, so this finds nothing unless something went wrong;
// removing a tree through a mount would be worse than leaving it.
func unmountBelow(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	points := mountsBelow(string(data), dir)
	for _, point := range slices.Backward(points) {
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// mountsBelow lists the mount points at or below dir, in mount order.
func mountsBelow(mountinfo, dir string) []string {
	var points []string
	dir = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(dir)
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) > 4 && (f[4] == dir || strings.HasPrefix(f[4], dir+"/")) {
			points = append(points, f[4])
		}
	}
	return points
}
