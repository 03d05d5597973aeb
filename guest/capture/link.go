package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// ownAll gives all addresses of IPv4 to the loopback interface: by a route, which Linux
// has for it, or by addresses whose prefixes are all there is, which gVisor takes so.
func ownAll() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if err := netlink(unix.RTM_NEWLINK, 0, linkUp(lo.Index)); err != nil {
		return fmt.Errorf("bring the loopback interface up: %w", err)
	}
	err = netlink(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, localRoute(lo.Index))
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	for _, half := range []byte{1, 128} { // 0.0.0.0/1 begins with addresses that are none
		err := netlink(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, address(lo.Index, half))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("give %d.0.0.1/1 to the loopback interface: %w", half, err)
		}
	}
	return nil
}

// linkUp is the body of RTM_NEWLINK: struct ifinfomsg of rtnetlink(7).
func linkUp(index int) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(b[12:], unix.IFF_UP)
	return b
}

// localRoute is the body of RTM_NEWROUTE: struct rtmsg and the interface.
func localRoute(index int) []byte {
	b := []byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	return append(b, attribute(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))...)
}

// address is the body of RTM_NEWADDR: struct ifaddrmsg and FIRST.0.0.1/1.
func address(index int, first byte) []byte {
	b := []byte{unix.AF_INET, 1, 0, unix.RT_SCOPE_HOST}
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		b = append(b, attribute(kind, []byte{first, 0, 0, 1})...)
	}
	return b
}

// attribute is a struct rtattr of four bytes.
func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	return append(binary.NativeEndian.AppendUint16(b, kind), value...)
}

// netlink sends a message to the kernel's routing and waits for what it says of it.
func netlink(kind, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	msg = binary.NativeEndian.AppendUint16(msg, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = binary.NativeEndian.AppendUint32(msg, 1) // sequence number
	msg = binary.NativeEndian.AppendUint32(msg, 0) // port
	if err := unix.Sendto(fd, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer is not one")
	}
	if e := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); e != 0 {
		return unix.Errno(-e)
	}
	return nil
}
