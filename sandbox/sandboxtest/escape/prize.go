package escape

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skete-dev/skete/sandbox"
)

// prize is what an escape would find on the host.
type prize struct {
	token    string // in a file, in our environment, in a process's arguments
	file     string
	port     string // of a TCP server on the host's loopback
	socket   string // of a unix server
	abstract string // the same without a file
	pid      string // of a process
	address  string // of the host on some network, if it has one
}

func newPrize(t *testing.T) prize {
	t.Helper()
	p := prize{token: "prize-" + strings.TrimPrefix(string(sandbox.NewID()), "sbx_")}
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // the isolation shall protect it, not its mode
	}
	p.file = filepath.Join(dir, "secret")
	must(t, os.WriteFile(p.file, []byte(p.token), 0o644))
	t.Setenv("SKETE_TEST_PRIZE", p.token)
	p.socket, p.abstract = filepath.Join(dir, "s"), "@"+p.token
	p.port = listen(t, "tcp", "127.0.0.1:0")
	listen(t, "unix", p.abstract)
	listen(t, "unix", p.socket)
	must(t, os.Chmod(p.socket, 0o777))
	cmd := exec.Command("sh", "-c", "read x; : sleep 1000 "+p.token) // without a child that would outlive it
	_, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p.pid = strconv.Itoa(cmd.Process.Pid)
	p.address = hostAddress()
	return p
}

// listen returns the port, if the address has one.
func listen(t *testing.T, network, addr string) (port string) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	return port
}

func hostAddress() string {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "192.0.2.1"
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clip quotes the beginning of a text.
func clip(s string, most int) string { return strconv.Quote(s[:min(len(s), most)]) }
