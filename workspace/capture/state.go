package capture

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/tree"
)

// # Format of the state
//
// Integers are varints (times signed), text is its length and its bytes.
//
//	state = "skstat1\n" crc(4, little-endian, CRC-32C of the rest) whose:text directory
//	directory = stamp flags(1) hash(32) note* "\x00" name* "\x00"
//	note  = "\x01" flags(1) name:text why:text class:text
//	name  = "\x01" flags(1) stamp entry, and a directory if it is one
//	stamp = ino size mtime ctime mode uid gid nlink
//	entry = name:text type(1) xattrs:varint (name:text value:text)* size hash(32) target:text
//
// whose says which directory, since which start of the machine, by which rules.
// After a power cut a file may hold newer bytes than its times say, so what an
// earlier start learned is not believed.
const (
	stateMagic    = "skstat1\n"
	stateBytesMax = 256 << 20
	saveEvery     = 30 * time.Second
)

const (
	flagDerived = 1 << iota
	flagUnquiet
	flagRacy
	flagLinked
	flagListed
	flagMax
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// identify says what a state is good for; "" for nothing.
func identify(st *unix.Stat_t, fs *unix.Statfs_t, rules *ruleset) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %v %d %s", strings.TrimSpace(string(boot)), fs.Fsid.Val, st.Ino, rules.text)
}

// state keeps what scans learned in a file. What goes wrong with it is never an
// error: the files are read again.
type state struct {
	path, whose string
	saved       time.Time
	last        *directory // that is in the file
	saving      sync.WaitGroup
}

func newState(path, whose string) *state { return &state{path: path, whose: whose} }

// load reads the file; nil if there is none, or it is damaged or foreign.
func (x *state) load() *directory {
	info, err := os.Stat(x.path)
	if err != nil || x.whose == "" || info.Size() > stateBytesMax {
		return nil
	}
	data, err := os.ReadFile(x.path)
	if err != nil {
		return nil
	}
	whose, d, err := decodeState(data)
	if err != nil || whose != x.whose {
		return nil
	}
	return d
}

// offer saves what was learned if the last time is long ago, while the caller
// goes on.
func (x *state) offer(d *directory) {
	if time.Since(x.saved) < saveEvery || x.whose == "" {
		return
	}
	x.wait()
	x.saved = time.Now()
	x.saving.Go(func() { x.save(d) })
}

func (x *state) wait() { x.saving.Wait() }

// close saves what is not saved.
func (x *state) close(d *directory) {
	x.wait()
	if d != nil && d != x.last && x.whose != "" {
		x.save(d)
	}
}

// save replaces the file. It is not synced: a power cut makes it foreign.
func (x *state) save(d *directory) {
	data := encodeState(x.whose, d)
	if len(data) > stateBytesMax {
		return
	}
	temp := x.path + ".new"
	err := os.WriteFile(temp, data, 0o600)
	if err == nil {
		err = os.Rename(temp, x.path)
	}
	if err != nil {
		_ = os.Remove(temp)
		return
	}
	x.last = d
}

func encodeState(whose string, d *directory) []byte {
	w := writer{b: append([]byte(stateMagic), 0, 0, 0, 0)}
	w.text(whose)
	w.directory(d)
	sealState(w.b)
	return w.b
}

// sealState writes the checksum of what follows it.
func sealState(b []byte) {
	at := len(stateMagic)
	binary.LittleEndian.PutUint32(b[at:], crc32.Checksum(b[at+4:], crcTable))
}

type writer struct{ b []byte }

func (w *writer) number(v uint64) { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) text(s string)   { w.number(uint64(len(s))); w.b = append(w.b, s...) }

func (w *writer) flags(of ...bool) {
	flags := byte(0)
	for i, f := range of {
		if f {
			flags |= 1 << i
		}
	}
	w.b = append(w.b, flags)
}

func (w *writer) stamp(x stamp) {
	w.number(x.ino)
	w.number(x.size)
	w.b = binary.AppendVarint(binary.AppendVarint(w.b, x.mtime), x.ctime)
	for _, v := range []uint64{uint64(x.mode), uint64(x.uid), uint64(x.gid), x.nlink} {
		w.number(v)
	}
}

func (w *writer) directory(d *directory) {
	w.stamp(d.stamp)
	w.flags(d.class == Derived, d.unquiet)
	w.b = append(w.b, d.hash[:]...)
	w.number(uint64(d.more.skipped) << 1) // so that any number read is an int
	w.number(uint64(d.more.linked) << 1)
	for _, n := range d.notes {
		w.b = append(w.b, 1)
		w.flags(false, false, false, n.linked)
		w.text(n.name)
		w.text(n.why)
		w.text(string(n.class))
	}
	w.b = append(w.b, 0)
	for i := range d.names {
		w.b = append(w.b, 1)
		w.known(&d.names[i])
	}
	w.b = append(w.b, 0)
}

func (w *writer) known(k *known) {
	e := &k.entry
	w.flags(false, false, k.racy, false, e.Listed)
	w.stamp(k.stamp)
	w.text(e.Name)
	w.b = append(w.b, byte(e.Type))
	w.number(uint64(e.Mode))
	w.number(uint64(e.UID))
	w.number(uint64(e.GID))
	w.number(uint64(len(e.Xattrs)))
	for _, x := range e.Xattrs {
		w.text(x.Name)
		w.text(x.Value)
	}
	w.number(uint64(e.Size))
	w.b = append(w.b, e.Hash[:]...)
	w.text(e.Target)
	if k.dir != nil {
		w.directory(k.dir)
	}
}

// decodeState reads what encodeState wrote. Corrupt: it is anything else.
func decodeState(data []byte) (whose string, d *directory, err error) {
	rest, ok := strings.CutPrefix(string(data), stateMagic)
	if !ok || len(rest) < 4 || binary.LittleEndian.Uint32([]byte(rest[:4])) != crc32.Checksum(data[len(data)-len(rest)+4:], crcTable) {
		return "", nil, errState
	}
	r := reader{s: rest[4:]}
	whose = r.text()
	d = r.directory(0)
	if r.bad || r.s != "" {
		return "", nil, errState
	}
	return whose, d, nil
}

var errState = errs.New(errs.Corrupt, "not what a scan learned")

// reader takes a state apart; once bad it returns zeros.
type reader struct {
	s   string
	bad bool
}

func (r *reader) fail() {
	r.s, r.bad = "", true
}

func (r *reader) take(n uint64) string {
	if n > uint64(len(r.s)) {
		r.fail()
		return ""
	}
	s := r.s[:n]
	r.s = r.s[n:]
	return s
}

func (r *reader) octet() byte {
	if s := r.take(1); s != "" {
		return s[0]
	}
	return 0
}

func (r *reader) number() (v uint64) {
	for shift := 0; shift < 64; shift += 7 {
		b := r.octet()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	r.fail()
	return 0
}

func (r *reader) signed() int64 {
	v := r.number()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) text() string { return r.take(r.number()) }

func (r *reader) flags() byte {
	f := r.octet()
	if f >= flagMax {
		r.fail()
	}
	return f
}

func (r *reader) hash() (h [32]byte) {
	copy(h[:], r.take(uint64(len(h))))
	return h
}

// more reads the byte before each element of a list, or the one at its end.
func (r *reader) more() bool {
	b := r.octet()
	if b > 1 {
		r.fail()
	}
	return b == 1 && !r.bad
}

func (r *reader) stamp() stamp {
	return stamp{
		ino: r.number(), size: r.number(), mtime: r.signed(), ctime: r.signed(),
		mode: uint32(r.number()), uid: uint32(r.number()), gid: uint32(r.number()), nlink: r.number(),
	}
}

func (r *reader) directory(depth int) *directory {
	d := &directory{stamp: r.stamp(), class: Source}
	flags := r.flags()
	if flags&flagDerived != 0 {
		d.class = Derived
	}
	d.unquiet, d.hash = flags&flagUnquiet != 0, r.hash()
	d.more = sums{skipped: int(r.number() >> 1), linked: int(r.number() >> 1)}
	for r.more() {
		n := note{linked: r.flags()&flagLinked != 0, name: r.text(), why: r.text(), class: Class(r.text())}
		d.notes = append(d.notes, n)
	}
	for r.more() {
		k := r.known(depth)
		if n := len(d.names); n > 0 && d.names[n-1].entry.Name >= k.entry.Name {
			r.fail()
		}
		if k.dir != nil {
			d.subs = append(d.subs, len(d.names))
		}
		d.names = append(d.names, k)
	}
	d.total()
	return d
}

func (r *reader) known(depth int) (k known) {
	flags := r.flags()
	k.racy, k.entry.Listed = flags&flagRacy != 0, flags&flagListed != 0
	k.stamp = r.stamp()
	e := &k.entry
	e.Name, e.Type, e.Mode, e.UID, e.GID = r.text(), tree.Type(r.octet()), uint32(r.number()), uint32(r.number()), uint32(r.number())
	for n := r.number(); n > 0 && !r.bad; n-- {
		e.Xattrs = append(e.Xattrs, tree.Xattr{Name: r.text(), Value: r.text()})
	}
	e.Size, e.Hash, e.Target = int64(r.number()), r.hash(), r.text()
	switch {
	case e.Type == tree.Dir && depth < depthMax:
		k.dir = r.directory(depth + 1)
	case e.Type != tree.File && e.Type != tree.Link && e.Type != tree.Fifo, r.bad:
		r.fail()
	}
	return k
}
