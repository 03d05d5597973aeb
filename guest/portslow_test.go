package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
)

// dialEnv makes this test program a guest that dials one port, and says what
// came of it.
const dialEnv = "SKETE_TEST_GUEST_DIAL"

func TestMain(m *testing.M) {
	if port := os.Getenv(dialEnv); port != "" {
		os.Exit(dialOnce(port))
	}
	goleak.VerifyTestMain(m)
}

func dialOnce(port string) int {
	n, err := strconv.ParseUint(port, 10, 16)
	if err == nil {
		var conn net.Conn
		if conn, err = dialPort(context.Background(), uint32(n)); err == nil {
			conn.Close()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// stuck listens on a port whose queue is full: a dial of it waits until the
// queue has room.
func stuck(t *testing.T) (ln net.Listener, port uint32) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	if ln, err = net.FileListener(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	first, err := net.Dial("tcp", ln.Addr().String()) // all that it has room for
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	return ln, uint32(ln.Addr().(*net.TCPAddr).Port)
}

// A machine on a busy host does nothing for seconds while its clock goes on. A
// dial under way then has its connection when the machine goes on, and not the
// end of its time.
func TestForward_aMachineThatStoodStillConnects(t *testing.T) {
	if testing.Short() {
		t.Skip("stands still for as long as a dial waits")
	}
	t.Parallel()
	ln, port := stuck(t)
	guest := exec.Command(os.Args[0])
	guest.Env = append(os.Environ(), dialEnv+"="+strconv.Itoa(int(port)))
	var said bytes.Buffer
	guest.Stderr = &said
	if err := guest.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guest.Process.Kill() }()
	patience.Until(t, 10*time.Second, "the dial to begin", func() bool { return dialling(t, port) })
	began := time.Now()
	if err := guest.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the one that fills the queue, and the guest's
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	<-time.After(time.Until(began.Add(portDialSteps*portDialStep + time.Second)))
	if err := guest.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := guest.Wait(); err != nil {
		t.Errorf("%v: %s", err, &said)
	}
}

// dialling reports whether a connection to the port was asked for and not answered.
func dialling(t *testing.T, port uint32) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(table), fmt.Sprintf(" 0100007F:%04X 02 ", port)) // SYN_SENT
}

// Who cannot reach a port is told why.
func TestForward_saysWhyAPortIsNotReached(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	none := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
	down := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
	for _, c := range []struct {
		over error
		all  []error
		want string
	}{
		{nil, []error{refused, refused}, "nothing listens on port 80"},
		{nil, []error{refused, none}, "nothing listens on port 80"},
		{nil, []error{down, none}, "port 80 cannot be reached: network is unreachable"},
		{nil, []error{errors.New("odd")}, "port 80 cannot be reached: odd"},
		{errPortSilent, []error{context.Canceled}, "port 80 does not answer: what listens there takes no connections, it may be stuck"},
		{errPortSilent, []error{refused, context.Canceled}, "port 80 does not answer: what listens there takes no connections, it may be stuck"},
		{context.Canceled, []error{context.Canceled}, "the machine's guest ends"},
	} {
		if err := portError(80, c.over, c.all); !errs.Is(err, errs.Unavailable) || errs.Public(err) != c.want {
			t.Errorf("%v, %v: %v, want %q", c.over, c.all, err, c.want)
		}
	}
}

func TestForward_aStuckServerIsNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for as long as a dial does")
	}
	t.Parallel()
	_, port := stuck(t)
	conn, err := dialPort(t.Context(), port)
	if err == nil {
		conn.Close()
	}
	if want := fmt.Sprintf("port %d does not answer", port); !strings.HasPrefix(errs.Public(err), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
