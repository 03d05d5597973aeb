package qemu

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMapsAll(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n": true,
		"0 100000 65536\n":                   false,
		"":                                   false,
		"x y z\n":                            false,
		"0 0 1\n1 1 4294967294\n":            true,
	} {
		if got := mapsAllUsers(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestUsersAreTheirOwnAndInTheRange(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has users to give")
	}
	seen := map[uint32]bool{}
	for _, id := range []string{"a", "b", "sbx_1", "sbx_2"} {
		uid, _ := ownUser(id)
		again, _ := ownUser(id)
		if uid != again || seen[uid] || uid < userMin || uid > userMin+userMask {
			t.Errorf("%s: %d, %d", id, uid, again)
		}
		seen[uid] = true
	}
}

func TestSocketsAtLongPaths(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := privdropListen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := os.Stat(filepath.Join(dir, "s")); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Fatalf("%v, %v", info, err)
	}
	c, err := privdropDial(t.Context(), filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if _, err := privdropListen(filepath.Join(dir, "s")); err == nil {
		t.Error("a second socket at the same place")
	}
}

// A queue that is full of connections, those that were given up among them, is waited
// for: QEMU takes them out when its main loop comes round.
func TestDial_waitsForAFullQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for { // until one more does not fit
		conn, err := net.Dial("unix", path)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		conn.Close() // it stays in the queue
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if conn, err := privdropDial(ctx, path); err == nil {
		conn.Close()
		t.Error("a queue that stays full had room")
	} else if late, ok := errors.AsType[net.Error](err); !errors.Is(err, unix.EAGAIN) && (!ok || !late.Timeout()) {
		t.Errorf("a queue that stays full: %v", err)
	}
	dialled := make(chan error, 1)
	go func() {
		conn, err := privdropDial(t.Context(), path)
		if err == nil {
			conn.Close()
		}
		dialled <- err
	}()
	if taken, _, err := unix.Accept(fd); err != nil {
		t.Error(err)
	} else {
		_ = unix.Close(taken)
	}
	if err := <-dialled; err != nil {
		t.Errorf("when there was room: %v", err)
	}
}
