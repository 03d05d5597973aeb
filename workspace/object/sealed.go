package object

import "github.com/skete-dev/skete/errs"

// SealedBytesMax bounds the record of one object.
const SealedBytesMax = recordHeader + ContentBytesMax

// Sealed is an object as a store keeps it, on its way to another store. Its
// header has been read, its content not yet: Content does.
type Sealed struct {
	head   header
	record []byte
}

// ParseSealed takes a record apart without looking at the payload. It keeps
// record. Corrupt: it is no record, or of another length than it says.
func ParseSealed(record []byte) (Sealed, error) {
	h, err := parseHeader(record)
	if err != nil {
		return Sealed{}, err
	}
	if int64(len(record)) != recordHeader+int64(h.stored) {
		return Sealed{}, errRecord
	}
	return Sealed{h, record}, nil
}

// Kind is what the record says that it is.
func (s Sealed) Kind() Kind { return s.head.kind }

// Hash is the name that the record claims.
func (s Sealed) Hash() Hash { return s.head.hash }

// Record is header and payload.
func (s Sealed) Record() []byte { return s.record }

// Content opens the payload. Corrupt: it is not what the hash names.
func (s Sealed) Content() ([]byte, error) { return s.head.open(s.record[recordHeader:]) }

// Sealed returns an object as it is stored. NotFound: it is not there.
// Corrupt: it is damaged.
func (s *Store) Sealed(h Hash) (Sealed, error) {
	for {
		record, p, err := s.read(h)
		if err != nil {
			return Sealed{}, err
		}
		x, err := ParseSealed(record)
		if err == nil && x.head.hash == h {
			return x, nil
		}
		if !s.moved(h, p) {
			return Sealed{}, errs.New(errs.Corrupt, "object %s is damaged", h)
		}
	}
}

// PutSealed adds an object of another store as it is; it is on disk after Sync.
//
// Preconditions: Content has found it whole.
func (s *Store) PutSealed(x Sealed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(x.head.hash, x.head.kind, x.record)
}
