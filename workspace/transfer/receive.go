package transfer

import (
	"context"
	"encoding/json"
	"io"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/revlog"
	"github.com/skete-dev/skete/workspace/tree"
)

// Limits of what a receiver takes. A zero is the default.
type Limits struct {
	// FilesMax bounds the entries of one tree, all directories together;
	// default 8 Mi. What stands in two places counts twice.
	FilesMax int64
	// DepthMax bounds the directories above an entry; default 512.
	DepthMax int
	// WantedMax bounds the objects that are named and not there yet; default 2 Mi.
	WantedMax int
	// AgainMax bounds the bytes of objects in one stream that were there
	// already; default 4 GiB.
	AgainMax int64
}

func (l Limits) orDefault() Limits {
	d := Limits{FilesMax: 8 << 20, DepthMax: 512, WantedMax: 2 << 20, AgainMax: 4 << 30}
	if l.FilesMax > 0 {
		d.FilesMax = l.FilesMax
	}
	if l.DepthMax > 0 {
		d.DepthMax = l.DepthMax
	}
	if l.WantedMax > 0 {
		d.WantedMax = l.WantedMax
	}
	if l.AgainMax > 0 {
		d.AgainMax = l.AgainMax
	}
	return d
}

// extent is the size of a whole directory.
type extent struct {
	height int   // of directories beneath
	files  int64 // entries, in it and beneath
}

// Receiver takes streams into a store.
type Receiver struct {
	store  *object.Store
	limits Limits
	// whole has the directories that are in the store with all that is beneath.
	whole map[object.Hash]extent
	lists map[object.Hash]struct{} // the same of lists

	// Of the revision that is under way:
	wanted map[object.Hash]want
	again  int64 // bytes
}

type want struct {
	kind  object.Kind
	depth int
}

// wholeMax is how many directories a receiver remembers before it begins anew.
const wholeMax = 1 << 20

// NewReceiver returns a receiver into store. The caller must not drop objects of
// the store while it receives.
func NewReceiver(store *object.Store, l Limits) *Receiver {
	return &Receiver{store: store, limits: l.orDefault(), whole: map[object.Hash]extent{}, lists: map[object.Hash]struct{}{}}
}

// Forget forgets what is whole, after objects were dropped from the store.
func (r *Receiver) Forget() {
	clear(r.whole)
	clear(r.lists)
}

// Receive reads a stream to its end. known is the tree that the sender believes
// to be here; it is whole. begin is asked before anything of a revision is
// taken; done is told when it is whole and on disk. An error of theirs ends the
// call, as it is.
//
// Unavailable: the stream ended too early. Invalid: it is not one. Corrupt: it
// holds what is not what it says, or not needed. Limit: too much. NotFound: a
// revision needs an object that was not sent: the store lost some of known.
func (r *Receiver) Receive(ctx context.Context, in io.Reader, known object.Hash, begin, done func(revlog.Revision) error) error {
	items, err := newReader(in)
	if err != nil {
		return err
	}
	if len(r.whole) > wholeMax {
		r.Forget()
	}
	if !known.IsZero() {
		if _, err := r.measure(known, 0); err != nil {
			return err
		}
	}
	r.again = 0
	var rev *revlog.Revision
	finish := func() error {
		if rev == nil {
			return nil
		}
		if err := r.finish(*rev); err != nil {
			return err
		}
		return done(*rev)
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		tag, payload, err := items.next()
		if err != nil {
			return err
		}
		switch tag {
		case tagEnd:
			return finish()
		case tagRevision:
			if err := finish(); err != nil {
				return err
			}
			x, err := ParseRevision(payload)
			if err != nil {
				return err
			}
			rev = &x
			if err := begin(x); err != nil {
				return err
			}
			r.wanted = map[object.Hash]want{}
			if err := r.need(x.Root, want{object.Tree, 0}); err != nil {
				return err
			}
		case tagObject:
			if rev == nil {
				return errs.New(errs.Invalid, "an object before the first revision")
			}
			if err := r.take(payload); err != nil {
				return err
			}
		}
	}
}

// revisionBytesMax bounds one revision's labels.
const revisionBytesMax = 64 << 10

// ParseRevision reads a revision that the other side has written. Invalid: it
// says what cannot be. What its labels say is not looked at.
func ParseRevision(text []byte) (rev revlog.Revision, err error) {
	if len(text) > revisionBytesMax {
		return rev, errs.New(errs.Invalid, "a revision of %d bytes, where at most %d can be", len(text), revisionBytesMax)
	}
	if err := json.Unmarshal(text, &rev); err != nil {
		return rev, errs.Wrap(errs.Invalid, err, "a revision cannot be read")
	}
	if rev.N == 0 || rev.Root.IsZero() || rev.Files < 0 || rev.Bytes < 0 || rev.Undoes > rev.N {
		return rev, errs.New(errs.Invalid, "revision %d says what cannot be", rev.N)
	}
	return rev, nil
}

// take keeps an object that a directory, a list or the revision has named.
func (r *Receiver) take(record []byte) error {
	x, err := object.ParseSealed(record)
	if err != nil {
		return err
	}
	w, ok := r.wanted[x.Hash()]
	if !ok {
		return r.repeated(x)
	}
	if w.kind != x.Kind() {
		return errs.New(errs.Corrupt, "object %s is of another kind than its name", x.Hash())
	}
	content, err := x.Content()
	if err != nil {
		return err
	}
	children, err := r.children(x.Kind(), content, w.depth)
	if err != nil {
		return err
	}
	if err := r.store.PutSealed(x); err != nil {
		return err
	}
	delete(r.wanted, x.Hash())
	return children.each(r.need)
}

// repeated passes over an object that is here: senders know only roughly what
// a receiver has.
func (r *Receiver) repeated(x object.Sealed) error {
	if !r.store.Has(x.Hash()) {
		return errs.New(errs.Corrupt, "object %s belongs to nothing", x.Hash())
	}
	if r.again += int64(len(x.Record())); r.again > r.limits.AgainMax {
		return errs.New(errs.Limit, "more than %d MiB of objects were sent again", r.limits.AgainMax>>20)
	}
	return nil
}

// child is what an object names.
type child struct {
	hash object.Hash
	want want
}

type childList []child

func (l childList) each(f func(object.Hash, want) error) error {
	for _, c := range l {
		if err := f(c.hash, c.want); err != nil {
			return err
		}
	}
	return nil
}

// children lists what an object names. Corrupt: it cannot be read.
func (r *Receiver) children(kind object.Kind, content []byte, depth int) (l childList, err error) {
	switch kind {
	case object.Tree:
		entries, err := tree.Decode(content)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 && depth >= r.limits.DepthMax {
			return nil, errs.New(errs.Limit, "directories lie more than %d deep", r.limits.DepthMax)
		}
		for _, e := range entries {
			switch {
			case e.Type == tree.Dir:
				l = append(l, child{e.Hash, want{object.Tree, depth + 1}})
			case e.Type == tree.File && e.Listed:
				l = append(l, child{e.Hash, want{object.List, depth + 1}})
			case e.Type == tree.File:
				l = append(l, child{e.Hash, want{object.Blob, depth + 1}})
			}
		}
	case object.List:
		chunks, err := tree.DecodeList(content)
		if err != nil {
			return nil, err
		}
		for _, c := range chunks {
			l = append(l, child{c.Hash, want{object.Blob, depth}})
		}
	}
	return l, nil
}

// need wants an object, or what is missing beneath it: the store may have
// parts of a revision that never became whole.
func (r *Receiver) need(h object.Hash, w want) error {
	if !r.store.Has(h) {
		return r.miss(h, w)
	}
	todo := childList{{h, w}}
	var seen map[object.Hash]struct{}
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if r.isWhole(c) {
			continue
		}
		if _, ok := seen[c.hash]; ok {
			continue
		}
		if seen == nil {
			seen = map[object.Hash]struct{}{}
		}
		seen[c.hash] = struct{}{}
		more, err := r.beneath(c)
		if err != nil {
			return err
		}
		todo = append(todo, more...)
	}
	return nil
}

// beneath lists what an object that may be here names; else it is missed.
func (r *Receiver) beneath(c child) (childList, error) {
	if !r.store.Has(c.hash) {
		return nil, r.miss(c.hash, c.want)
	}
	content, err := r.store.Get(c.want.kind, c.hash)
	if err != nil {
		return nil, err
	}
	return r.children(c.want.kind, content, c.want.depth)
}

func (r *Receiver) miss(h object.Hash, w want) error {
	if len(r.wanted) >= r.limits.WantedMax {
		return errs.New(errs.Limit, "more than %d objects are missing", r.limits.WantedMax)
	}
	r.wanted[h] = w
	return nil
}

// isWhole reports whether nothing needs to be looked for at or beneath c.
func (r *Receiver) isWhole(c child) bool {
	switch c.want.kind {
	case object.Tree:
		_, ok := r.whole[c.hash]
		return ok
	case object.List:
		_, ok := r.lists[c.hash]
		return ok
	}
	return r.store.Has(c.hash) // a blob
}

// finish makes sure that a revision is whole, not too large, and on disk.
func (r *Receiver) finish(rev revlog.Revision) error {
	if n := len(r.wanted); n > 0 {
		return errs.New(errs.NotFound, "revision %d came without %d of its objects", rev.N, n)
	}
	if _, err := r.measure(rev.Root, 0); err != nil {
		return err
	}
	return r.store.Sync()
}

// measure walks over what is new in a directory and remembers how large it is.
func (r *Receiver) measure(h object.Hash, depth int) (extent, error) {
	if x, ok := r.whole[h]; ok {
		return x, r.deep(depth + x.height)
	}
	if err := r.deep(depth); err != nil {
		return extent{}, err
	}
	data, err := r.store.Get(object.Tree, h)
	if err != nil {
		return extent{}, err
	}
	entries, err := tree.Decode(data)
	if err != nil {
		return extent{}, err
	}
	x := extent{files: int64(len(entries))}
	for _, e := range entries {
		if e.Listed {
			r.lists[e.Hash] = struct{}{}
		}
		if e.Type != tree.Dir {
			continue
		}
		below, err := r.measure(e.Hash, depth+1)
		if err != nil {
			return extent{}, err
		}
		x.height = max(x.height, below.height+1)
		x.files = min(x.files+below.files, r.limits.FilesMax+1)
	}
	if x.files > r.limits.FilesMax {
		return extent{}, errs.New(errs.Limit, "a workspace of more than %d files", r.limits.FilesMax)
	}
	r.whole[h] = x
	return x, nil
}

func (r *Receiver) deep(depth int) error {
	if depth > r.limits.DepthMax {
		return errs.New(errs.Limit, "directories lie more than %d deep", r.limits.DepthMax)
	}
	return nil
}
