package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/engine"
)

// root is what a container's root file system is made of.
type root struct {
	image    string // the engine's id
	hash     string // of what the image holds
	readonly bool
	mounts   []engine.Mount
	tmpfs    []string // further places for one, without the leading slash
}

// roots makes root file systems. An engine takes only an image for one, and
// bounds what is written above it only on a few kinds of storage. So where we
// are root, a machine's root is an overlay of our own: the template below, a
// volume of bounded size above. Its top-level directories are bound into a
// container whose image is a skeleton: links and empty directories. Nothing is
// copied, and what a machine writes has a bound that the kernel keeps.
//
// Elsewhere the template becomes an image, once, and the engine keeps what is
// written, without a bound.
type roots struct {
	p       *Provider
	scratch *volume.Store // of upper layers and guests' states
	layered bool

	importing keylock.Locks[string] // by hash: one at a time
	mu        sync.Mutex
	images    map[string]string // by hash
}

func newRoots(p *Provider, scratch *volume.Store) *roots {
	return &roots{p: p, scratch: scratch, layered: os.Geteuid() == 0 && scratch.Weakness() == nil, images: map[string]string{}}
}

// describe adds what roots do and do not.
func (r *roots) describe(c *sandbox.Capabilities) {
	c.LimitsDisk = r.layered
	if r.layered {
		c.Notes = append(c.Notes, "the root directory itself is read-only: new names can be made in every directory but directly in /")
		return
	}
	c.Notes = append(c.Notes, "what a sandbox writes outside its workspace is kept by the container engine and has no bound: run the server as root, with loop devices and mkfs.ext4, to have one")
}

// stateOf names the volume of a guest's state.
func stateOf(id sandbox.ID) string { return string(id) + stateSuffix }

const stateSuffix = "-state"

// make makes a machine's root. What was left of the same ID is replaced; on
// error remove clears it away.
func (r *roots) make(ctx context.Context, b sandbox.Boot) (root, error) {
	if !r.layered {
		return r.imported(ctx, b)
	}
	sk, err := readSkeleton(b.Rootfs.Dir)
	if err != nil {
		return root{}, fmt.Errorf("read the template: %w", err)
	}
	archive, hash := sk.archive()
	image, err := r.image(ctx, hash, archive)
	if err != nil {
		return root{}, err
	}
	merged, err := r.overlay(ctx, b)
	if err != nil {
		return root{}, fmt.Errorf("make the root's writable layer: %w", err)
	}
	if err := sk.makeTempDirs(merged); err != nil {
		return root{}, fmt.Errorf("make the root's directories: %w", err)
	}
	state, err := r.volume(ctx, stateOf(b.ID), spoolBytes)
	if err != nil {
		return root{}, fmt.Errorf("make the guest's state directory: %w", err)
	}
	if err := os.Chmod(state, 0o700); err != nil {
		return root{}, err
	}
	ro := root{image: image, hash: hash, readonly: true, mounts: sk.mounts(merged, b.Rootfs.Binds), tmpfs: sk.covered}
	ro.mounts = append(ro.mounts, bind(state, stateDir, false))
	return ro, nil
}

// volume makes one that the kernel bounds, or fails.
func (r *roots) volume(ctx context.Context, name string, bytes int64) (path string, err error) {
	v, err := r.scratch.Create(ctx, name, max(bytes, volume.BytesMin))
	if err != nil {
		return "", err
	}
	if !v.Enforced {
		return "", errs.Wrap(errs.Unsupported, r.scratch.Weakness(), "the disk of a container cannot be bounded here").
			WithHint("this needs loop devices and mkfs.ext4; `skete doctor` says which is missing")
	}
	return v.Path, nil
}

func (r *roots) rootDir(id sandbox.ID) string { return filepath.Join(r.p.dir(id), "root") }

// overlay mounts the template below a writable layer.
func (r *roots) overlay(ctx context.Context, b sandbox.Boot) (merged string, err error) {
	merged = r.rootDir(b.ID)
	if err := unmountAll(merged); err != nil {
		return "", err
	}
	path, err := r.volume(ctx, string(b.ID), int64(b.Spec.DiskMB)<<20)
	if err != nil {
		return "", err
	}
	upper, work := filepath.Join(path, "upper"), filepath.Join(path, "work")
	for _, dir := range []string{upper, work, merged} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return merged, mountOverlay(merged, b.Rootfs.Dir, upper, work)
}

// mountOverlay names the directories by descriptors: the machine sees the
// mount's options, and paths of the host are none of its business. Nor need
// they be quoted then, or be short.
func mountOverlay(target, lower, upper, work string) error {
	var options []string
	for _, o := range []struct{ name, path string }{{"lowerdir", lower}, {"upperdir", upper}, {"workdir", work}} {
		fd, err := unix.Open(o.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", o.path, err)
		}
		defer unix.Close(fd)
		options = append(options, fmt.Sprintf("%s=/proc/self/fd/%d", o.name, fd))
	}
	var err error
	// Volatile: the layer dies with the machine, so nothing is worth a sync.
	for _, extra := range [][]string{{"volatile"}, nil} {
		all := strings.Join(slices.Concat(options, extra), ",")
		err = unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, all)
		if !errors.Is(err, unix.EINVAL) { // a kernel that does not know the word
			break
		}
	}
	if err != nil {
		return fmt.Errorf("mount the overlay: %w", err)
	}
	return nil
}

// mountsMax bounds how often one place is unmounted.
const mountsMax = 16

// unmountAll detaches whatever is mounted at the place.
func unmountAll(path string) error {
	for range mountsMax {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EPERM) && os.Geteuid() != 0:
			return nil // who may not unmount has not mounted
		default:
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return errs.New(errs.Internal, "a sandbox's root is mounted again and again")
}

// remove deletes a machine's root. The container must be gone. It may be repeated.
func (r *roots) remove(ctx context.Context, id sandbox.ID) error {
	if err := unmountAll(r.rootDir(id)); err != nil {
		return err
	}
	return errors.Join(r.scratch.Remove(ctx, string(id)), r.scratch.Remove(ctx, stateOf(id)))
}

// list names the machines of whose roots there is anything.
func (r *roots) list(ctx context.Context) ([]string, error) {
	names, err := r.scratch.List(ctx)
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], stateSuffix)
	}
	return names, err
}

// archiver writes a tar archive.
type archiver func(ctx context.Context) (archive, error)

// image returns the id of the image with this content, importing it if the
// engine has none.
func (r *roots) image(ctx context.Context, hash string, content archiver) (string, error) {
	defer r.importing.Lock(hash)()
	r.mu.Lock()
	id := r.images[hash]
	r.mu.Unlock()
	if id != "" {
		return id, nil
	}
	id, err := r.find(ctx, hash)
	if err == nil && id == "" {
		id, err = r.importImage(ctx, hash, content)
	}
	if err != nil {
		return "", fmt.Errorf("make the image: %w", err)
	}
	r.mu.Lock()
	r.images[hash] = id
	r.mu.Unlock()
	return id, nil
}

// How often a list of images is asked for that cannot be made.
const (
	listTries = 5
	listPause = 100 * time.Millisecond
)

// ours lists the images of this server. Podman's list fails with a status of 500
// if an image comes or goes while it is made ("locating item named manifest").
func (r *roots) ours(ctx context.Context) (images []engine.Image, err error) {
	for range listTries {
		images, err = r.p.engine.Images(ctx, labelServer+"="+r.p.server)
		var refused *engine.Error
		if !errors.As(err, &refused) || refused.Status != http.StatusInternalServerError {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(listPause):
		}
	}
	return images, err
}

func (r *roots) find(ctx context.Context, hash string) (string, error) {
	images, err := r.ours(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(images, func(i engine.Image) bool { return i.Labels[labelRoot] == hash })
	if i < 0 {
		return "", nil
	}
	return images[i].ID, nil
}

func (r *roots) importImage(ctx context.Context, hash string, content archiver) (string, error) {
	tar, err := content(ctx)
	if err != nil {
		return "", err
	}
	defer tar.Close()
	labels := map[string]string{labelServer: r.p.server, labelRoot: hash}
	id, err := r.p.engine.Import(ctx, "skete-root-"+r.p.server+"-"+hash, labels, tar)
	if err != nil {
		return "", err
	}
	return id, tar.err()
}

// forget makes the next machine look for the image again.
func (r *roots) forget(ro root) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.images[ro.hash] == ro.image {
		delete(r.images, ro.hash)
	}
}

// sweep removes the images that no container uses; the next machine makes its
// own again.
func (r *roots) sweep(ctx context.Context) error {
	r.mu.Lock()
	clear(r.images)
	r.mu.Unlock()
	images, err := r.ours(ctx)
	for _, i := range images {
		if e := r.p.engine.RemoveImage(ctx, i.ID); !errs.Is(e, errs.Conflict) && !errs.Is(e, errs.NotFound) {
			err = errors.Join(err, e)
		}
	}
	return err
}
