package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// What a data directory holds. A directory never changes from one to the
// other by itself: NATS deletes the streams of a single server that it is
// told to start as a cluster, and state would seem gone after a switch.
const (
	modeFile     = "mode"
	modeSingle   = "single"
	modeExternal = "external"
)

// lockDir takes the directory for this process until the file is closed. The
// kernel frees it when the process dies, however it dies.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot open the lock of the data directory").WithHint("check SKETE_HOME and its owner")
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		return nil, errs.New(errs.Exists, "another server uses this data directory%s", ownerOf(f)).
			WithHint("use that server, stop it first, or give this one a SKETE_HOME of its own")
	}
	if err == nil {
		err = errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n"))
	}
	if err != nil {
		_ = f.Close()
		return nil, errs.Wrap(errs.Internal, err, "cannot lock the data directory")
	}
	return f, nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// ownerOf reads who holds the lock; it may not have written that yet.
func ownerOf(f *os.File) string {
	b, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", pid)
}

// claimMode writes the mode of a new directory and refuses the wrong one.
func claimMode(dir, want string) error {
	b, err := os.ReadFile(filepath.Join(dir, modeFile))
	if errors.Is(err, fs.ErrNotExist) {
		if err := stateFile(dir, modeFile, want+"\n"); err != nil {
			return errs.Wrap(classOf(err), err, "cannot write to the data directory")
		}
		return nil
	}
	if err != nil {
		return errs.Wrap(errs.Internal, err, "cannot read the mode of the data directory")
	}
	switch have := strings.TrimSpace(string(b)); have {
	case want:
		return nil
	case modeSingle:
		return errs.New(errs.Conflict, "this data directory holds an embedded store; a store URL would leave that behind").
			WithHint("start without the store URL, or with an empty SKETE_HOME")
	case modeExternal:
		return errs.New(errs.Conflict, "the state of this data directory is in an external store; the embedded one would start empty").
			WithHint("give the store URL, or an empty SKETE_HOME")
	default:
		return errs.New(errs.Corrupt, "the mode of the data directory is %.20q, which this version does not know", have).
			WithHint("a newer skete may have written it")
	}
}

// classOf tells a full disk from our own faults.
func classOf(err error) errs.Class {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.Unavailable
	}
	return errs.Internal
}
