package transfer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/revlog"
	"github.com/skete-dev/skete/workspace/tree"
)

const magic = "skmove1\n"

// Tags of items.
const (
	tagRevision = 'r'
	tagObject   = 'o'
	tagEnd      = 'e'
)

const itemHeader = 5

// Send writes revisions, the oldest first, for a receiver that has all objects
// of the tree base (the zero hash: none). NotFound, Corrupt: an object is not
// there, or damaged; the receiver sees a stream without an end.
func Send(ctx context.Context, w io.Writer, store *object.Store, base object.Hash, revs []revlog.Revision) error {
	s := sender{ctx: ctx, w: w, store: store, sent: map[object.Hash]struct{}{}}
	if _, err := io.WriteString(w, magic); err != nil {
		return err
	}
	for _, rev := range revs {
		text, err := json.Marshal(rev)
		if err != nil {
			return err
		}
		if err := s.item(tagRevision, text); err != nil {
			return err
		}
		if err := s.revision(base, rev.Root); err != nil {
			return err
		}
		base = rev.Root
	}
	return s.item(tagEnd, nil)
}

type sender struct {
	ctx   context.Context
	w     io.Writer
	store *object.Store
	sent  map[object.Hash]struct{} // in this stream
	had   map[object.Hash]struct{} // in the tree before, where it differs
}

func (s *sender) item(tag byte, payload []byte) error {
	var head [itemHeader]byte
	head[0] = tag
	binary.LittleEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := s.w.Write(head[:]); err != nil {
		return err
	}
	_, err := s.w.Write(payload)
	return err
}

// revision sends what the tree after needs and the tree before does not have.
// What moved within the workspace is not sent again.
func (s *sender) revision(before, after object.Hash) error {
	s.had = map[object.Hash]struct{}{}
	if err := s.gather(before, after); err != nil {
		return err
	}
	return s.dir(before, after)
}

// gather collects the objects of a directory that differ from another's.
func (s *sender) gather(before, after object.Hash) error {
	if before == after || before.IsZero() {
		return nil
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	s.had[before] = struct{}{}
	return s.pairs(before, after, func(b, a tree.Entry) error {
		switch b.Type {
		case tree.Dir:
			return s.gather(b.Hash, dirHash(a))
		case tree.File:
			if b.Hash == a.Hash {
				return nil
			}
			s.had[b.Hash] = struct{}{}
			return s.chunks(b, func(c tree.Chunk) error {
				s.had[c.Hash] = struct{}{}
				return nil
			})
		}
		return nil
	})
}

// pairs visits the names of two directories, of which either may be nothing.
func (s *sender) pairs(before, after object.Hash, visit func(before, after tree.Entry) error) error {
	b, err := apply.Read(s.store, before)
	if err != nil {
		return err
	}
	a, err := apply.Read(s.store, after)
	if err != nil {
		return err
	}
	return apply.Merge(b, a, visit)
}

func dirHash(e tree.Entry) object.Hash {
	if e.Type == tree.Dir {
		return e.Hash
	}
	return object.Hash{}
}

// chunks visits the parts of a large file.
func (s *sender) chunks(e tree.Entry, visit func(tree.Chunk) error) error {
	if !e.Listed {
		return nil
	}
	data, err := s.store.Get(object.List, e.Hash)
	if err != nil {
		return err
	}
	list, err := tree.DecodeList(data)
	if err != nil {
		return err
	}
	for _, c := range list {
		if err := visit(c); err != nil {
			return err
		}
	}
	return nil
}

// dir sends a directory, and then what is in it.
func (s *sender) dir(before, after object.Hash) error {
	if before == after || after.IsZero() {
		return nil
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if fresh, err := s.object(after); err != nil || !fresh {
		return err
	}
	return s.pairs(before, after, func(b, a tree.Entry) error {
		switch a.Type {
		case tree.Dir:
			return s.dir(dirHash(b), a.Hash)
		case tree.File:
			if b.Hash == a.Hash {
				return nil
			}
			return s.file(a)
		}
		return nil
	})
}

func (s *sender) file(e tree.Entry) error {
	fresh, err := s.object(e.Hash)
	if err != nil || !fresh {
		return err
	}
	return s.chunks(e, func(c tree.Chunk) error {
		_, err := s.object(c.Hash)
		return err
	})
}

// object sends one, unless the receiver has it.
func (s *sender) object(h object.Hash) (fresh bool, err error) {
	if _, ok := s.had[h]; ok {
		return false, nil
	}
	if _, ok := s.sent[h]; ok {
		return false, nil
	}
	x, err := s.store.Sealed(h)
	if err != nil {
		return false, errs.Wrap(errs.Of(err), err, "an object of the history cannot be sent")
	}
	s.sent[h] = struct{}{}
	return true, s.item(tagObject, x.Record())
}
