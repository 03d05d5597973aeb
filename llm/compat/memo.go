package compat

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/skete-dev/skete/llm"
)

// memo keeps the encoded form of messages. A run sends its whole history with
// each step, and encoding it anew is most of what a step costs us.
//
// The key is 128 bits of two seeded hashes of everything that the encoding
// depends on: messages are rebuilt from the log, so their addresses say
// nothing, and hashing costs a tenth of encoding. Two generations bound it: when
// the young one is full it becomes the old one, and what is used moves back.
type memo struct {
	mu         sync.Mutex
	young, old map[key][]byte
	bytes      int // of young
}

type key [2]uint64

const (
	memoBytesMax  = 16 << 20 // of one generation
	memoPartMax   = 4 << 20  // larger parts are not kept
	memoPartExtra = 64       // what an entry costs beside its bytes
)

func newMemo() *memo { return &memo{young: map[key][]byte{}} }

// get returns what make returned for this key once. make may run several times
// at once for one key; all results are equal.
func (m *memo) get(k key, make func() []byte) []byte {
	m.mu.Lock()
	part, ok := m.young[k]
	if !ok {
		if part, ok = m.old[k]; ok {
			m.put(k, part)
		}
	}
	m.mu.Unlock()
	if ok {
		return part
	}
	if part = make(); cap(part) > len(part)+len(part)/4 {
		part = bytes.Clone(part) // without the room to grow
	}
	if len(part) <= memoPartMax {
		m.mu.Lock()
		m.put(k, part)
		m.mu.Unlock()
	}
	return part
}

// put stores a part. Preconditions: mu is held.
func (m *memo) put(k key, part []byte) {
	if _, ok := m.young[k]; ok {
		return
	}
	size := cap(part) + memoPartExtra
	if m.bytes+size > memoBytesMax {
		m.old, m.young, m.bytes = m.young, map[key][]byte{}, 0
	}
	m.young[k] = part
	m.bytes += size
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// hasher takes fields one after the other: each is hashed as a whole, and the
// sums are mixed in order, so that no two lists of fields look the same.
type hasher struct{ state key }

func newHasher(kind byte) hasher {
	var h hasher
	h.number(kind, 0)
	return h
}

func (h *hasher) mix(mark byte, a, b uint64) {
	h.state[0] = fold(h.state[0]^a, uint64(mark)<<1|0x9e3779b97f4a7c01)
	h.state[1] = fold(h.state[1]^b, uint64(mark)<<1|0xc2b2ae3d27d4eb01)
}

// fold multiplies to 128 bits and folds them. A state of 0 would stay 0 for
// ever, hence the constant.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b)
	return hi ^ lo
}

func (h *hasher) number(mark byte, n int) { h.mix(mark, uint64(n), ^uint64(n)) }

func (h *hasher) text(mark byte, s string) {
	h.mix(mark, maphash.String(seeds[0], s), maphash.String(seeds[1], s))
}

func (h *hasher) data(mark byte, b []byte) {
	h.mix(mark, maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b))
}

func (h *hasher) sum() key { return h.state }

func messageKey(m *llm.Message) key {
	h := newHasher('m')
	h.text('r', string(m.Role))
	h.blocks(m.Blocks)
	return h.sum()
}

func (h *hasher) blocks(blocks []llm.Block) {
	h.number('b', len(blocks))
	for i := range blocks {
		b := &blocks[i]
		h.text('k', string(b.Kind))
		h.text('t', b.Text)
		if b.Call != nil {
			h.text('i', b.Call.ID)
			h.text('n', b.Call.Name)
			h.data('a', b.Call.Args)
			if b.Call.Raw {
				h.number('w', 1)
			}
		}
		if b.Result != nil {
			h.text('c', b.Result.CallID)
			h.blocks(b.Result.Blocks)
		}
		if b.Media != nil {
			h.text('y', b.Media.Type)
			h.data('d', b.Media.Data)
		}
		if b.Vendor != nil {
			h.text('v', b.Vendor.Dialect)
			h.data('o', b.Vendor.Data)
		}
	}
}

func systemKey(blocks []llm.Block) key {
	h := newHasher('s')
	h.blocks(blocks)
	return h.sum()
}

func toolsKey(specs []llm.ToolSpec) key {
	h := newHasher('t')
	for _, t := range specs {
		h.text('n', t.Name)
		h.text('d', t.Description)
		h.data('s', t.Schema)
	}
	return h.sum()
}
