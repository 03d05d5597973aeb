package jail

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/hostproc"
)

// Limits of what is read and waited for.
const (
	pidBytesMax    = 32
	outputBytesMax = 4 << 10 // of what the jailer complains
	rootTimeout    = 5 * time.Second
)

// Start starts Firecracker, detached: it outlives us. With a jailer it is born
// in a network namespace of its own in which there is nothing.
func (j Jail) Start(ctx context.Context) (hostproc.Ref, error) {
	program, args := j.command()
	if j.Jailer == "" {
		return j.startBare(program, args)
	}
	// The jailer ends as soon as Firecracker runs. Its words must not come
	// through a pipe, which Firecracker would inherit and keep open.
	out, err := os.OpenFile(filepath.Join(j.Dir, "jailer.out"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return hostproc.Ref{}, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{}, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return hostproc.Ref{}, fmt.Errorf("start Firecracker: %w", context.Cause(ctx))
		}
		return hostproc.Ref{}, errs.Wrap(errs.Unavailable, err, "the jailer does not start Firecracker: %s", complaint(out))
	}
	return j.find(ctx)
}

func complaint(out *os.File) string {
	data, _ := io.ReadAll(io.NewSectionReader(out, 0, outputBytesMax))
	return strings.TrimSpace(strings.ToValidUTF8(string(bytes.ReplaceAll(data, []byte("\n"), []byte(" "))), "?"))
}

func (j Jail) startBare(program string, args []string) (hostproc.Ref, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = j.Root(), []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return hostproc.Ref{}, errs.Wrap(errs.Unavailable, err, "Firecracker does not start")
	}
	ref, err := hostproc.Of(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Wait()
		return ref, errs.Wrap(errs.Unavailable, err, "Firecracker ended at once")
	}
	return ref, cmd.Process.Release() // followed like anybody's child from here
}

// find reads the process number that the jailer left, which Firecracker could
// have exchanged already, and believes it if that process lives in this jail.
func (j Jail) find(ctx context.Context) (hostproc.Ref, error) {
	data, err := j.readPID()
	if err != nil {
		return hostproc.Ref{}, errs.Wrap(errs.Unavailable, err, "the jailer left no process number")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		return hostproc.Ref{}, errs.New(errs.Unavailable, "the jailer left %.20q as a process number", data)
	}
	ref, err := hostproc.Of(pid)
	if err != nil {
		return ref, errs.Wrap(errs.Unavailable, err, "Firecracker ended at once")
	}
	ctx, cancel := context.WithTimeout(ctx, rootTimeout)
	defer cancel()
	for !j.isInside(pid) { // it changes its root before it is Firecracker
		if !ref.Alive() {
			return ref, errs.New(errs.Unavailable, "Firecracker ended at once")
		}
		select {
		case <-ctx.Done():
			return ref, errs.New(errs.Unavailable, "process %d is not in the jail", pid)
		case <-time.After(time.Millisecond):
		}
	}
	return ref, nil
}

func (j Jail) readPID() ([]byte, error) {
	f, err := j.Open(filepath.Base(j.Exec) + ".pid")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, pidBytesMax))
}

// isInside reports whether Root is the process's root directory.
func (j Jail) isInside(pid int) bool {
	root, err := os.Stat(j.Root())
	if err != nil {
		return false
	}
	its, err := os.Stat(fmt.Sprintf("/proc/%d/root", pid))
	return err == nil && os.SameFile(root, its)
}

// Processes finds jailers and Firecrackers of this machine by their command
// lines: a server that died while it started one left no other trace.
func (j Jail) Processes() ([]hostproc.Ref, error) {
	ps, err := hostproc.List()
	if err != nil {
		return nil, err
	}
	var refs []hostproc.Ref
	for _, p := range ps {
		if i := slices.Index(p.Args, "--id"); i < 1 || i+1 >= len(p.Args) || p.Args[i+1] != j.ID {
			continue
		}
		if j.isInside(p.PID) || slices.Contains(p.Args, j.Base()) || j.worksHere(p.PID) {
			refs = append(refs, hostproc.Tree(ps, p.PID)...)
		}
	}
	return refs, nil
}

// worksHere: Firecracker without a jailer has Root as its working directory.
func (j Jail) worksHere(pid int) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err == nil && cwd == j.Root()
}

// Ending says how Firecracker says that it ended: its log's last words.
func (j Jail) Ending() (clean, known bool) {
	tail, err := j.ReadTail(Log, outputBytesMax)
	if err != nil {
		return false, false
	}
	i := bytes.LastIndex(tail, []byte("Firecracker exiting "))
	if i < 0 {
		return false, false
	}
	return bytes.HasPrefix(tail[i:], []byte("Firecracker exiting successfully")), true
}
