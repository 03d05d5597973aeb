package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Most of this file speaks to the kernel's packet filter as iptables(8) does: a table is read
// and replaced whole, by options of a raw socket. The layouts are those of
// linux/netfilter_ipv4/ip_tables.h and linux/netfilter/x_tables.h.

const (
	sockoptInfo, sockoptReplace = 64, 64 // IPT_SO_GET_INFO, IPT_SO_SET_REPLACE
	sockoptOriginal             = 80     // SO_ORIGINAL_DST

	hookPre, hookIn, hookOut, hookPost = 0, 1, 3, 4
	hooksOfNAT                         = 1<<hookPre | 1<<hookIn | 1<<hookOut | 1<<hookPost

	entryBytes  = 112 // struct ipt_entry
	targetBytes = 32  // struct xt_entry_target
	headBytes   = 96  // struct ipt_replace
	infoBytes   = 84  // struct ipt_getinfo

	acceptVerdict = -2   // -NF_ACCEPT - 1
	notTo         = 0x10 // IPT_INV_DSTIP
	portsGiven    = 2    // NF_NAT_RANGE_PROTO_SPECIFIED
)

// redirect has what is sent by TCP go to a port, by what the kernel has for it.
func redirect(port uint16) error {
	err := redirecting(port).install()
	if !errors.Is(err, unix.ENOPROTOOPT) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if other := redirectByNftables(port); other != nil {
		return errors.Join(err, other)
	}
	return nil
}

// table is a table of the filter in the making.
type table struct {
	entries      []byte
	n            uint32
	begin, under [5]uint32 // offsets by hook: its first entry, and its policy
}

// add appends an entry: what it matches, as struct ipt_ip, and its target.
func (t *table) add(match, target []byte) (at uint32) {
	at = uint32(len(t.entries))
	e := make([]byte, entryBytes+len(target))
	copy(e, match)
	binary.NativeEndian.PutUint16(e[88:], entryBytes)
	binary.NativeEndian.PutUint16(e[90:], uint16(len(e)))
	copy(e[entryBytes:], target)
	binary.NativeEndian.PutUint16(e[entryBytes:], uint16(len(target)))
	t.entries = append(t.entries, e...)
	t.n++
	return at
}

// policy ends the entries of a hook, whose first one is at begin.
func (t *table) policy(hook int, begin uint32) {
	accept := make([]byte, targetBytes+8)
	verdict := int32(acceptVerdict)
	binary.NativeEndian.PutUint32(accept[targetBytes:], uint32(verdict))
	t.under[hook] = t.add(nil, accept)
	t.begin[hook] = min(begin, t.under[hook])
}

// redirecting is a table that redirects what is sent by TCP to any address but a
// loopback one to a port.
func redirecting(port uint16) *table {
	t := &table{}
	const none = ^uint32(0)
	t.policy(hookPre, none)
	t.policy(hookIn, none)
	match := make([]byte, 84)
	match[4], match[12] = 127, 255 // to 127.0.0.0/8
	binary.NativeEndian.PutUint16(match[80:], unix.IPPROTO_TCP)
	match[83] = notTo
	target := make([]byte, targetBytes+24) // struct nf_nat_ipv4_multi_range_compat, padded
	copy(target[2:], "REDIRECT")
	binary.NativeEndian.PutUint32(target[targetBytes:], 1)
	binary.NativeEndian.PutUint32(target[targetBytes+4:], portsGiven)
	binary.BigEndian.PutUint16(target[targetBytes+16:], port)
	binary.BigEndian.PutUint16(target[targetBytes+18:], port)
	t.policy(hookOut, t.add(match, target))
	t.policy(hookPost, none)
	t.fault()
	return t
}

// fault is the last entry, at which nothing arrives.
func (t *table) fault() {
	fault := make([]byte, targetBytes+32)
	copy(fault[2:], "ERROR")
	copy(fault[targetBytes:], "ERROR")
	t.add(nil, fault)
}

// install replaces the table for address translation.
func (t *table) install() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("a raw socket: %w", err)
	}
	defer unix.Close(fd)
	info := make([]byte, infoBytes)
	copy(info, "nat")
	size := uint32(len(info))
	if _, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, sockoptInfo, uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0); e != 0 {
		return fmt.Errorf("read the table: %w", e)
	}
	// The kernel hands the counters of the entries that were there back.
	old := binary.NativeEndian.Uint32(info[76:])
	if old > 1<<16 {
		return errors.New("read the table: it has too many entries")
	}
	counters := make([]byte, 16*max(old, 1))
	msg := t.replace(old)
	*(**byte)(unsafe.Pointer(&msg[88])) = &counters[0]
	if _, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, sockoptReplace, uintptr(unsafe.Pointer(&msg[0])), uintptr(len(msg)), 0); e != 0 {
		return fmt.Errorf("replace the table: %w", e)
	}
	return nil
}

// replace is a struct ipt_replace with the entries; the pointer to old counters is
// missing.
func (t *table) replace(old uint32) []byte {
	b := make([]byte, headBytes, headBytes+len(t.entries))
	copy(b, "nat")
	binary.NativeEndian.PutUint32(b[32:], hooksOfNAT)
	binary.NativeEndian.PutUint32(b[36:], t.n)
	binary.NativeEndian.PutUint32(b[40:], uint32(len(t.entries)))
	for i := range t.begin {
		binary.NativeEndian.PutUint32(b[44+4*i:], t.begin[i])
		binary.NativeEndian.PutUint32(b[64+4*i:], t.under[i])
	}
	binary.NativeEndian.PutUint32(b[84:], old)
	return append(b, t.entries...)
}

// original returns where a redirected connection was to go.
func original(conn *net.TCPConn) (netip.AddrPort, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var a unix.RawSockaddrInet4
	var errno unix.Errno
	err = raw.Control(func(fd uintptr) {
		size := uint32(unix.SizeofSockaddrInet4)
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_IP, sockoptOriginal, uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil {
		return netip.AddrPort{}, err
	}
	if errno != 0 {
		return netip.AddrPort{}, errno
	}
	port := (*[2]byte)(unsafe.Pointer(&a.Port))
	return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), binary.BigEndian.Uint16(port[:])), nil
}
