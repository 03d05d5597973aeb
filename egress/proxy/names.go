package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/skete-dev/skete/egress"
)

// Addresses that stand for names in a sandbox. Nothing on the host's network has one:
// they are of the range for benchmarks of networks (RFC 2544).
var standIns = netip.MustParsePrefix("198.18.0.0/15")

const (
	namesMax   = 16 << 10
	nameKept   = time.Hour // after it was last asked for
	answerTTL  = 60        // seconds
	queryBytes = 512
)

// names gives each name that a sandbox asks for an address of its own. No query leaves
// the host for it: what is asked for reaches no one, and a name has no address that it
// could be bound to anew.
//
// Safe for concurrent use.
type names struct {
	now func() time.Time

	mu     sync.Mutex
	byName map[string]*name
	byAddr map[netip.Addr]*name
	next   netip.Addr
}

type name struct {
	text  string
	addr  netip.Addr
	asked time.Time
}

func newNames(now func() time.Time) *names {
	return &names{now: now, byName: map[string]*name{}, byAddr: map[netip.Addr]*name{}, next: standIns.Addr().Next()}
}

// address returns the one that stands for a name; false: all are in use.
func (n *names) address(text string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if x := n.byName[text]; x != nil {
		x.asked = n.now()
		return x.addr, true
	}
	if len(n.byName) >= namesMax && !n.forgetOld() {
		return netip.Addr{}, false
	}
	for n.byAddr[n.next] != nil || !standIns.Contains(n.next) {
		if n.next = n.next.Next(); !standIns.Contains(n.next) {
			n.next = standIns.Addr().Next()
		}
	}
	x := &name{text, n.next, n.now()}
	n.byName[text], n.byAddr[x.addr] = x, x
	n.next = n.next.Next()
	return x.addr, true
}

// forgetOld forgets the names that were not asked for in a long time. Preconditions:
// mu is held.
func (n *names) forgetOld() bool {
	before := len(n.byName)
	for text, x := range n.byName {
		if n.now().Sub(x.asked) > nameKept {
			delete(n.byName, text)
			delete(n.byAddr, x.addr)
		}
	}
	return len(n.byName) < before
}

// of returns what an address stands for: a name, itself if it is a real one, or "".
func (n *names) of(a netip.Addr) string {
	if a = a.Unmap(); !standIns.Contains(a) {
		return a.String()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if x := n.byAddr[a]; x != nil {
		x.asked = n.now()
		return x.text
	}
	return ""
}

// Names that are of a machine or a network, and not of the public one.
var local = []string{"localhost", "local", "internal", "intranet", "home", "lan", "corp", "private", "arpa", "onion", "invalid"}

func isLocal(name string) bool {
	_, top, more := cutLast(name)
	if !more {
		return true
	}
	return slices.Contains(local, top)
}

func cutLast(name string) (before, last string, found bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}

// Answer answers a query of the domain name system, or returns nil for what is none.
// All names of the public network are answered, so that what is refused can be told
// with a reason; local ones are not known.
func (p *Proxy) Answer(query []byte) []byte {
	if len(query) > queryBytes {
		return nil
	}
	var parser dnsmessage.Parser
	h, err := parser.Start(query)
	if err != nil || h.Response {
		return nil
	}
	q, err := parser.Question()
	if err != nil {
		return reply(h, nil, dnsmessage.RCodeFormatError)
	}
	if h.OpCode != 0 || q.Class != dnsmessage.ClassINET {
		return reply(h, &q, dnsmessage.RCodeNotImplemented)
	}
	text := egress.Name(q.Name.String())
	if text == "" || isLocal(text) && p.c.Local(text) == nil {
		return reply(h, &q, dnsmessage.RCodeNameError)
	}
	if q.Type != dnsmessage.TypeA {
		return reply(h, &q, dnsmessage.RCodeSuccess) // none of this kind
	}
	a, ok := p.names.address(text)
	if !ok {
		return reply(h, &q, dnsmessage.RCodeServerFailure)
	}
	return reply(h, &q, dnsmessage.RCodeSuccess, a)
}

func reply(to dnsmessage.Header, q *dnsmessage.Question, code dnsmessage.RCode, addrs ...netip.Addr) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: to.ID, Response: true, OpCode: to.OpCode, RecursionDesired: to.RecursionDesired, RecursionAvailable: true, RCode: code,
	})
	b.EnableCompression()
	if q != nil {
		_ = b.StartQuestions()
		_ = b.Question(*q)
		_ = b.StartAnswers()
		for _, a := range addrs {
			_ = b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: answerTTL}, dnsmessage.AResource{A: a.As4()})
		}
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}
