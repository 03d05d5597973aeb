package object

import (
	"encoding/hex"

	"github.com/zeebo/blake3"

	"github.com/skete-dev/skete/errs"
)

// Kind says what an object is.
type Kind uint8

// Kinds of objects. The bytes of a Blob are a file's, or a part of one; what
// lists and trees hold is package tree's.
const (
	Blob Kind = 1
	List Kind = 2
	Tree Kind = 3
)

// Hash names an object: BLAKE3-256 of its kind and content.
type Hash [32]byte

// HashOf returns the name of an object.
func HashOf(kind Kind, content []byte) Hash {
	d := blake3.New()
	_, _ = d.Write([]byte{byte(kind)})
	_, _ = d.Write(content)
	var h Hash
	d.Sum(h[:0])
	return h
}

// String is the hash in 64 hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero reports whether h names nothing.
func (h Hash) IsZero() bool { return h == Hash{} }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. Invalid: not 64 hex digits.
func (h *Hash) UnmarshalText(text []byte) error {
	p, err := ParseHash(string(text))
	if err == nil {
		*h = p
	}
	return err
}

// ParseHash reads what String wrote.
func ParseHash(s string) (Hash, error) {
	var h Hash
	if len(s) != 2*len(h) {
		return h, errs.New(errs.Invalid, "%.70q is no hash", s)
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return Hash{}, errs.New(errs.Invalid, "%.70q is no hash", s)
	}
	return h, nil
}
