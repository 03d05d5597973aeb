package qemu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// This file keeps a machine in files: what a snapshot's directory holds,
// whether it is whole and fits this host, and its memory for those that load
// it.
//
// It knows nothing of how QEMU writes and reads them.

// Limits of the memory that is kept for further clones.
const (
	imagesMax = 4
	imageAge  = time.Minute // after its last use
)

// savedImages holds the memory of snapshots that machines came from lately, each
// in a sealed memory file: no process can change it any more, ours neither. The
// machines hold it too, so dropping it costs only the next clone's time.
//
// The zero value is ready. Safe for concurrent use.
type savedImages struct {
	mu   sync.Mutex
	held map[string]*savedImage
}

type savedImage struct {
	ready chan struct{} // closed when file or err is set
	file  *os.File
	err   error
	timer *time.Timer
	used  time.Time
}

// Get returns the memory of the snapshot in dir, in a descriptor of its
// own, which the caller closes.
func (is *savedImages) Get(ctx context.Context, dir string, snap savedManifest) (*os.File, error) {
	key := dir + "\x00" + snap.StateSum
	is.mu.Lock()
	if is.held == nil {
		is.held = map[string]*savedImage{}
	}
	im, known := is.held[key]
	if !known {
		im = &savedImage{ready: make(chan struct{})}
		im.timer = time.AfterFunc(imageAge, func() { is.drop(key, im) })
		is.held[key] = im
	}
	im.used = time.Now()
	im.timer.Reset(imageAge)
	is.mu.Unlock()
	if !known {
		im.file, im.err = sealedManifest(ctx, dir, snap)
		close(im.ready)
	}
	select {
	case <-im.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	is.mu.Lock()
	defer is.mu.Unlock()
	if im.err != nil {
		delete(is.held, key)
		im.timer.Stop()
		return nil, im.err
	}
	is.shrink()
	return duplicateImage(im.file)
}

// shrink drops the longest unused ones. The caller holds mu.
func (is *savedImages) shrink() {
	for len(is.held) > imagesMax {
		oldest := ""
		for key, im := range is.held {
			if im.isReady() && (oldest == "" || im.used.Before(is.held[oldest].used)) {
				oldest = key
			}
		}
		if oldest == "" {
			return
		}
		is.forget(oldest)
	}
}

func (im *savedImage) isReady() bool {
	select {
	case <-im.ready:
		return true
	default:
		return false
	}
}

// forget closes an image that is ready. The caller holds mu.
func (is *savedImages) forget(key string) {
	im := is.held[key]
	delete(is.held, key)
	im.timer.Stop()
	_ = im.file.Close()
}

func (is *savedImages) drop(key string, im *savedImage) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.held[key] == im && im.isReady() && im.file != nil {
		is.forget(key)
	}
}

// Close drops all.
func (is *savedImages) Close() {
	is.mu.Lock()
	defer is.mu.Unlock()
	for key, im := range is.held {
		if im.isReady() && im.file != nil {
			is.forget(key)
		}
	}
}

func duplicateImage(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// sealedManifest reads a snapshot's memory into a memory file that cannot be changed.
func sealedManifest(ctx context.Context, dir string, snap savedManifest) (*os.File, error) {
	from, err := os.Open(filepath.Join(dir, MemoryFile))
	if err != nil {
		return nil, err
	}
	defer from.Close()
	fd, err := unix.MemfdCreate("skete-snapshot", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a memory file: %w", err)
	}
	to := os.NewFile(uintptr(fd), "skete-snapshot")
	sum, err := copyData(ctx, to, from, snap.MemoryBytes)
	if err == nil && sum != snap.MemorySum {
		err = fmt.Errorf("%s is damaged", MemoryFile)
	}
	if err == nil {
		_, err = unix.FcntlInt(to.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		_ = to.Close()
		return nil, err
	}
	return to, nil
}
