package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// This file redirects by nftables, for kernels that have no ip_tables. What it sends
// are the messages of linux/netfilter/nfnetlink.h and nf_tables.h.

const (
	nftName     = "skete" // of the table, and of its chain
	localOut    = 3       // NF_INET_LOCAL_OUT
	natPriority = -100    // NF_IP_PRI_NAT_DST
	register    = 1       // NFT_REG_1
	daddrAt     = 16      // in a header of IPv4
)

// nested and value are attributes of nftables, which has its numbers in network order.
func nested(kind uint16, parts ...[]byte) []byte {
	return value(kind|unix.NLA_F_NESTED, slices.Concat(parts...))
}

func value(kind uint16, content []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(content)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), content...)
	return append(b, make([]byte, -len(b)&3)...)
}

func word(kind uint16, n int32) []byte {
	return value(kind, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

func text(kind uint16, s string) []byte { return value(kind, append([]byte(s), 0)) }

// expression is a step of a rule.
func expression(name string, attributes ...[]byte) []byte {
	return nested(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nested(unix.NFTA_EXPR_DATA, attributes...))
}

// compare goes on with the rule if the register is, or is not, a value.
func compare(op int32, with byte) []byte {
	return expression("cmp", word(unix.NFTA_CMP_SREG, register), word(unix.NFTA_CMP_OP, op),
		nested(unix.NFTA_CMP_DATA, value(unix.NFTA_DATA_VALUE, []byte{with})))
}

// redirectByNftables replaces our table by one that redirects what is sent by TCP to any
// address but a loopback one to a port.
func redirectByNftables(port uint16) error {
	table := text(unix.NFTA_TABLE_NAME, nftName)
	chain := slices.Concat(
		text(unix.NFTA_CHAIN_TABLE, nftName), text(unix.NFTA_CHAIN_NAME, nftName), text(unix.NFTA_CHAIN_TYPE, "nat"),
		nested(unix.NFTA_CHAIN_HOOK, word(unix.NFTA_HOOK_HOOKNUM, localOut), word(unix.NFTA_HOOK_PRIORITY, natPriority)),
	)
	rule := slices.Concat(text(unix.NFTA_RULE_TABLE, nftName), text(unix.NFTA_RULE_CHAIN, nftName), nested(unix.NFTA_RULE_EXPRESSIONS,
		expression("meta", word(unix.NFTA_META_DREG, register), word(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO)),
		compare(unix.NFT_CMP_EQ, unix.IPPROTO_TCP),
		expression("payload", word(unix.NFTA_PAYLOAD_DREG, register), word(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER),
			word(unix.NFTA_PAYLOAD_OFFSET, daddrAt), word(unix.NFTA_PAYLOAD_LEN, 1)),
		compare(unix.NFT_CMP_NEQ, 127),
		expression("immediate", word(unix.NFTA_IMMEDIATE_DREG, register),
			nested(unix.NFTA_IMMEDIATE_DATA, value(unix.NFTA_DATA_VALUE, binary.BigEndian.AppendUint16(nil, port)))),
		expression("redir", word(unix.NFTA_REDIR_REG_PROTO_MIN, register), word(unix.NFTA_REDIR_FLAGS, portsGiven)),
	))
	return transaction([]message{
		{unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, table}, // or there would be none to delete
		{unix.NFT_MSG_DELTABLE, 0, table},
		{unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, table},
		{unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, chain},
		{unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_APPEND, rule},
	})
}

// message is one of nftables, with its attributes.
type message struct {
	kind, flags uint16
	attributes  []byte
}

// transaction has the kernel do all of it or nothing.
func transaction(list []message) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	defer unix.Close(fd)
	head := func(kind, flags uint16, family byte, resource uint16, n int) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+4+n))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
		b = append(b, 1, 0, 0, 0, 0, 0, 0, 0, family, 0) // sequence number, port, struct nfgenmsg
		return binary.BigEndian.AppendUint16(b, resource)
	}
	batch := head(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, 0)
	for _, m := range list {
		batch = append(batch, head(unix.NFNL_SUBSYS_NFTABLES<<8|m.kind, m.flags|unix.NLM_F_ACK, unix.NFPROTO_IPV4, 0, len(m.attributes))...)
		batch = append(batch, m.attributes...)
	}
	batch = append(batch, head(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, 0)...)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	for answers := 0; answers < len(list); {
		n, err := acknowledged(fd)
		if err != nil {
			return fmt.Errorf("nftables: %w", err)
		}
		answers += n
	}
	return nil
}

// acknowledged reads what the kernel says, and returns how many messages it has taken.
func acknowledged(fd int) (n int, err error) {
	buf := make([]byte, 16<<10)
	size, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return 0, err
	}
	for b := buf[:size]; len(b) > 0; n++ {
		if len(b) < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
			return n, errors.New("the kernel's answer is not one")
		}
		if e := int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:])); e != 0 {
			return n, unix.Errno(-e)
		}
		length := (int(binary.NativeEndian.Uint32(b)) + 3) &^ 3
		b = b[min(max(length, unix.NLMSG_HDRLEN), len(b)):]
	}
	return n, nil
}
