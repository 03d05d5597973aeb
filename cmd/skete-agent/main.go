// Skete-agent is an agent that works in its own sandbox. The guest's supervisor starts
// it, as root, with two connections open; the first thing that it does is to become the
// sandbox's user for good.
//
//	skete-agent UID GID
//
// Descriptor 3 leads to the server, which says what there is to do (agent/inside), and 4
// to the machine (guest/wire).
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/agent/inside"
	"github.com/skete-dev/skete/agent/plan"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/tool/backend/guest"
	"github.com/skete-dev/skete/tool/kit"
)

// helloTime is how long its own machine may take to say how it is.
const helloTime = 30 * time.Second

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: skete-agent UID GID (the guest's supervisor starts it)")
	}
	if err := become(args[1], args[2]); err != nil {
		return err
	}
	host, err := connection(wire.AgentHostFD)
	if err != nil {
		return err
	}
	defer host.Close()
	local, err := connection(wire.AgentLocalFD)
	if err != nil {
		return err
	}
	defer local.Close()
	machine := wire.NewAgentClient(local)
	ctx, cancel := context.WithTimeout(context.Background(), helloTime)
	hello, err := machine.Hello(ctx)
	cancel()
	if err != nil {
		return fmt.Errorf("ask the machine how it is: %w", err)
	}
	tools := kit.New()
	plan.Add(tools, plan.BuiltIn())
	_ = inside.Drive(context.Background(), host, inside.Local{ // it ends when the server has done with it
		Files: guest.NewFiles(machine), Commands: guest.NewCommands(machine), Services: guest.NewServices(machine), Boot: hello.BootId,
		Tools: tools, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	return nil
}

// become makes the process, all its threads, that of the user. Root that becomes another
// is one whose memory, environment and descriptors are root's to look into from then on.
func become(uid, gid string) error {
	u, err := strconv.ParseUint(uid, 10, 31)
	if err != nil {
		return fmt.Errorf("a user's number, not %q", uid)
	}
	g, err := strconv.ParseUint(gid, 10, 31)
	if err != nil {
		return fmt.Errorf("a group's number, not %q", gid)
	}
	if os.Getuid() == 0 && u != 0 {
		if err := syscall.Setgroups([]int{int(g)}); err != nil {
			return fmt.Errorf("leave root's groups: %w", err)
		}
		if err := syscall.Setgid(int(g)); err != nil {
			return fmt.Errorf("leave root's group: %w", err)
		}
		if err := syscall.Setuid(int(u)); err != nil {
			return fmt.Errorf("become the user: %w", err)
		}
	}
	for _, set := range [][3]uintptr{{unix.PR_SET_NO_NEW_PRIVS, 1, 0}, {unix.PR_SET_DUMPABLE, 0, 0}} {
		if _, _, errno := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, set[0], set[1], set[2]); errno != 0 {
			return fmt.Errorf("close the process: %w", errno)
		}
	}
	return nil
}

// connection is an open descriptor, which no child inherits.
func connection(fd uintptr) (net.Conn, error) {
	unix.CloseOnExec(int(fd))
	f := os.NewFile(fd, "connection")
	if f == nil {
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is no connection: %w", fd, err)
	}
	return c, nil
}
