// Package hostproc follows processes of the host that need not be our
// children: a machine's process outlives the server that started it, and the
// next server must not mistake another process with the same number for it.
//
//	ref, err := hostproc.Of(pid)       // to be kept in a file
//	w, err := hostproc.Open(ref)       // later, in another process
//	<-w.Done(); w.Status()
//
// A Ref names a process uniquely for ever: number, start time, boot. All
// functions and methods are safe for concurrent use.
package hostproc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Ref names one process.
type Ref struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
	Boot  string `json:"boot"`  // the kernel's boot id
}

// ErrGone is returned for a process that has ended.
var ErrGone = errors.New("the process has ended")

// Of returns the reference of a process that lives now; ErrGone otherwise.
// A zombie has ended.
func Of(pid int) (Ref, error) {
	st, err := readStat(pid)
	if err != nil || st.zombie() {
		return Ref{}, ErrGone
	}
	return Ref{PID: pid, Start: st.start, Boot: bootID()}, nil
}

// Alive reports whether exactly this process lives.
func (r Ref) Alive() bool {
	now, err := Of(r.PID)
	return err == nil && now == r
}

// Signal sends sig to exactly this process, never to a later one with the
// same number. ErrGone: it has ended.
func (r Ref) Signal(sig unix.Signal) error {
	fd, err := r.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", r.PID, err)
	}
	return nil
}

// open returns a pidfd of r. The check after the open makes it exact: a
// number cannot be taken over while the descriptor's process has not ended.
func (r Ref) open() (int, error) {
	if r.PID <= 1 || r.Boot != bootID() {
		return -1, ErrGone
	}
	fd, err := unix.PidfdOpen(r.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			return -1, ErrGone
		}
		return -1, fmt.Errorf("open process %d: %w", r.PID, err)
	}
	if !r.Alive() {
		unix.Close(fd)
		return -1, ErrGone
	}
	return fd, nil
}

// Process is one entry of List.
type Process struct {
	Ref
	Parent int
	Args   []string
}

// List returns the processes that live now and have a command line (kernel
// threads and zombies have none).
func List() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var ps []Process
	boot := bootID()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		st, err := readStat(pid)
		if err != nil || st.zombie() {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil || len(line) == 0 {
			continue
		}
		args := strings.Split(string(bytes.TrimSuffix(line, []byte{0})), "\x00")
		ps = append(ps, Process{Ref: Ref{PID: pid, Start: st.start, Boot: boot}, Parent: st.parent, Args: args})
	}
	return ps, nil
}

// Tree returns the root, if it is among ps, and all its descendants, parents
// first.
func Tree(ps []Process, root int) []Ref {
	children := map[int][]Ref{}
	var tree []Ref
	for _, p := range ps {
		children[p.Parent] = append(children[p.Parent], p.Ref)
		if p.PID == root {
			tree = append(tree, p.Ref)
		}
	}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i].PID]...)
	}
	return tree
}

type stat struct {
	state  byte
	parent int
	start  uint64
}

func (s stat) zombie() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(data)
}

// parseStat reads /proc/PID/stat. The second field is the program's name in
// brackets and may hold anything, brackets and newlines too.
func parseStat(data []byte) (stat, error) {
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return stat{}, errors.New("no name in stat")
	}
	f := strings.Fields(string(data[end+1:]))
	const parentField, startField = 1, 19 // 4 and 22 of the manual, less the three before
	if len(f) <= startField || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("stat has %d fields", len(f))
	}
	parent, err := strconv.Atoi(f[parentField])
	if err != nil {
		return stat{}, err
	}
	start, err := strconv.ParseUint(f[startField], 10, 64)
	if err != nil {
		return stat{}, err
	}
	return stat{state: f[0][0], parent: parent, start: start}, nil
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
