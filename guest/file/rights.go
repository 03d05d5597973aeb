package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// This file runs functions with the rights of a sandbox's user.
//
// The functions may open what they like: the kernel checks them. A descriptor
// that they return carries its rights along and may be used anywhere. Safe
// for concurrent use. Close refuses new calls and waits for the quick ones.

const (
	quickThreads = 4  // for calls of a few system calls
	longThreads  = 16 // at once, for walks and transfers; each made for its call
)

// userThreads runs functions with the user's rights.
//
// Linux keeps credentials per thread. A goroutine locks itself to its thread,
// drops the supplementary groups and switches the *effective* group and user
// by raw system calls (package syscall's own would switch the whole process)
// and never unlocks, so the thread dies with the goroutine and no other code
// ever runs on it. New threads of the runtime are not cloned from locked ones.
//
// Only the effective ids change. The real and saved ones stay root's, because
// otherwise a program of the user could signal the thread, and so kill the
// supervisor, or trace it. With the effective id the kernel also clears the
// thread's effective capabilities, which New verifies.
type userThreads struct {
	root     bool // the process is root
	direct   bool // not root, or the user is root: nothing to switch
	uid, gid uint32

	jobs chan userJob
	long chan struct{} // semaphore
	done chan struct{}
	wg   sync.WaitGroup
}

type userJob struct {
	run  func() error
	done chan error
}

// newUserThreads makes threads with a user's rights and verifies them. Without root, or
// for root, there is nothing to switch and functions run where they are.
func newUserThreads(uid, gid uint32) (*userThreads, error) {
	root := os.Geteuid() == 0
	t := &userThreads{
		root: root, direct: !root || uid == 0,
		uid: uid, gid: gid,
		jobs: make(chan userJob),
		long: make(chan struct{}, longThreads),
		done: make(chan struct{}),
	}
	if t.direct {
		return t, nil
	}
	// Nothing of the supervisor is to be traced or read through /proc by a
	// thread or program of the user's.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("make the process not dumpable: %w", err)
	}
	ready := make(chan error, quickThreads)
	for range quickThreads {
		t.wg.Add(1)
		go t.serve(ready)
	}
	var err error
	for range quickThreads {
		err = errors.Join(err, <-ready)
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("act as uid %d: %w", uid, err)
	}
	return t, nil
}

func (t *userThreads) serve(ready chan<- error) {
	defer t.wg.Done()
	err := t.become()
	ready <- err
	if err != nil {
		return
	}
	for {
		select {
		case j := <-t.jobs:
			j.done <- guarded(j.run)
		case <-t.done:
			return
		}
	}
}

// become switches the calling goroutine's thread, for good.
func (t *userThreads) become() error {
	runtime.LockOSThread()
	const keep = ^uintptr(0)
	groups := [1]uint32{t.gid}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&groups)), 0); e != 0 {
		return fmt.Errorf("setgroups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(t.gid), keep); e != 0 {
		return fmt.Errorf("setresgid: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(t.uid), keep); e != 0 {
		return fmt.Errorf("setresuid: %w", e)
	}
	return t.verify()
}

// verify makes sure that the kernel did what we rely on.
func (t *userThreads) verify() error {
	if euid, _, _ := unix.RawSyscall(unix.SYS_GETEUID, 0, 0, 0); uint32(euid) != t.uid {
		return fmt.Errorf("the thread's user is %d", euid)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if data[0].Effective|data[1].Effective != 0 {
		return errors.New("the thread kept capabilities")
	}
	return nil
}

// guarded turns a panic into an error: on a thread of ours no other code
// would recover it, and the supervisor must not die of one bad call.
func guarded(run func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a file call: %v\n%s", p, debug.Stack())
		}
	}()
	return run()
}

// Root reports whether the process is root, so that calls can be too.
func (t *userThreads) Root() bool { return t.root }

// Quick runs a function of a few system calls with the user's rights. It
// returns when the function has, or when ctx ends before it began.
func (t *userThreads) Quick(ctx context.Context, run func() error) error {
	if t.direct {
		return guarded(run)
	}
	j := userJob{run: run, done: make(chan error, 1)}
	select {
	case t.jobs <- j:
		return <-j.done
	case <-ctx.Done():
		return ctx.Err()
	case <-t.done:
		return errThreadsClosed
	}
}

// Slow runs a function that may take long on a thread of its own.
func (t *userThreads) Slow(ctx context.Context, run func() error) error {
	if t.direct {
		return guarded(run)
	}
	select {
	case t.long <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-t.done:
		return errThreadsClosed
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-t.long }()
		if err := t.become(); err != nil {
			done <- err
			return
		}
		done <- guarded(run)
	}()
	return <-done
}

// Close ends the threads. It must be called once.
func (t *userThreads) Close() {
	close(t.done)
	t.wg.Wait()
}

// errThreadsClosed answers calls after Close.
var errThreadsClosed = errs.New(errs.Unavailable, "the file service is closing")
