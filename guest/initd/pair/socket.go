package pair

import (
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SocketFD is the descriptor on which supervise finds its end of the pair.
const SocketFD = 3

// DefaultStateDir is used when Boot names none.
const DefaultStateDir = "/var/lib/skete-guest"

// SpoolDir is where supervise keeps the output of processes, by entry id.
func SpoolDir(stateDir string) string { return filepath.Join(stateDir, "p") }

// UnixConn takes ownership of fd.
func UnixConn(fd int) (*net.UnixConn, error) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4*MessageBytesMax) // a wish
	f := os.NewFile(uintptr(fd), "pair")
	defer f.Close()
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return nc.(*net.UnixConn), nil
}

// Receive reads one message. Descriptors that handle keeps are set to -1 in fds.
func Receive(sock *net.UnixConn, buf, oob []byte) (int, []int, error) {
	n, oobn, flags, _, err := sock.ReadMsgUnix(buf, oob)
	if err != nil {
		return 0, nil, err
	}
	fds := rights(oob[:oobn])
	if n == 0 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return 0, nil, ErrMessage
	}
	return n, fds, nil
}

func rights(oob []byte) []int {
	if len(oob) == 0 {
		return nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var all []int
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}
