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

const (
	quickThreads = 4  // for calls of a few system calls
	longThreads  = 16 // at once, for walks and transfers; each made for its call
)

// users runs functions with the sandbox user's rights.
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
// thread's effective capabilities, which newUsers verifies.
type users struct {
	root     bool // the process is root
	direct   bool // not root, or the user is root: nothing to switch
	uid, gid uint32

	jobs chan job
	long chan struct{} // semaphore
	done chan struct{}
	wg   sync.WaitGroup
}

type job struct {
	run  func() error
	done chan error
}

func newUsers(uid, gid uint32) (*users, error) {
	root := os.Geteuid() == 0
	u := &users{
		root: root, direct: !root || uid == 0,
		uid: uid, gid: gid,
		jobs: make(chan job),
		long: make(chan struct{}, longThreads),
		done: make(chan struct{}),
	}
	if u.direct {
		return u, nil
	}
	// Nothing of the supervisor is to be traced or read through /proc by a
	// thread or program of the user's.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("make the process not dumpable: %w", err)
	}
	ready := make(chan error, quickThreads)
	for range quickThreads {
		u.wg.Add(1)
		go u.serve(ready)
	}
	var err error
	for range quickThreads {
		err = errors.Join(err, <-ready)
	}
	if err != nil {
		u.close()
		return nil, fmt.Errorf("act as uid %d: %w", uid, err)
	}
	return u, nil
}

func (u *users) serve(ready chan<- error) {
	defer u.wg.Done()
	err := u.become()
	ready <- err
	if err != nil {
		return
	}
	for {
		select {
		case j := <-u.jobs:
			j.done <- guarded(j.run)
		case <-u.done:
			return
		}
	}
}

// become switches the calling goroutine's thread, for good.
func (u *users) become() error {
	runtime.LockOSThread()
	const keep = ^uintptr(0)
	groups := [1]uint32{u.gid}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&groups)), 0); e != 0 {
		return fmt.Errorf("setgroups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(u.gid), keep); e != 0 {
		return fmt.Errorf("setresgid: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(u.uid), keep); e != 0 {
		return fmt.Errorf("setresuid: %w", e)
	}
	return u.verify()
}

// verify makes sure that the kernel did what we rely on.
func (u *users) verify() error {
	if euid, _, _ := unix.RawSyscall(unix.SYS_GETEUID, 0, 0, 0); uint32(euid) != u.uid {
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

// guarded turns a panic into an error: on a thread of ours nobody else would
// recover it, and the supervisor must not die of one bad call.
func guarded(run func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a file call: %v\n%s", p, debug.Stack())
		}
	}()
	return run()
}

// quick runs a function of a few system calls with the user's rights. It
// returns when the function has, or when ctx ends before it began.
func (u *users) quick(ctx context.Context, run func() error) error {
	if u.direct {
		return guarded(run)
	}
	j := job{run: run, done: make(chan error, 1)}
	select {
	case u.jobs <- j:
		return <-j.done
	case <-ctx.Done():
		return ctx.Err()
	case <-u.done:
		return errClosed
	}
}

// slow runs a function that may take long on a thread of its own.
func (u *users) slow(ctx context.Context, run func() error) error {
	if u.direct {
		return guarded(run)
	}
	select {
	case u.long <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-u.done:
		return errClosed
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-u.long }()
		if err := u.become(); err != nil {
			done <- err
			return
		}
		done <- guarded(run)
	}()
	return <-done
}

func (u *users) close() {
	close(u.done)
	u.wg.Wait()
}

var errClosed = errs.New(errs.Unavailable, "the file service is closing")

// runner is how a call runs code with its user's rights.
type runner struct {
	quick, slow func(context.Context, func() error) error
}

// as picks the runner for a request's user.
func (s *Service) as(user string) (runner, error) {
	switch {
	case user == "" || user == s.cfg.User:
		return runner{s.users.quick, s.users.slow}, nil
	case user == "root" && s.cfg.Root && s.users.root:
		direct := func(_ context.Context, run func() error) error { return guarded(run) }
		return runner{direct, direct}, nil
	case user == "root" && !s.cfg.Root:
		return runner{}, errs.New(errs.Denied, "root was not granted to this sandbox")
	}
	return runner{}, errs.New(errs.Denied, "no user %.40q for files in this sandbox", user)
}
