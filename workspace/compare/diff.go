package compare

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// Bounds of a Diff if Options has no others.
const (
	contextDefault  = 3
	filesMaxDefault = 1000
	bytesMaxDefault = 1 << 20
)

// Options choose a part and how much of it.
type Options struct {
	Path  string // and what is beneath it; "" = all
	Hunks bool   // the changed lines of texts too
	// Lines of context around a change; 0 = 3.
	Context int
	// FilesMax bounds the files, BytesMax the text of all hunks; 0 = 1,000 and 1 MiB.
	FilesMax int
	BytesMax int
	// Without are names of directories that one of the trees may have lost; where
	// only one has them that is no difference.
	Without []string
}

// Diff is what differs between two trees, by path.
type Diff struct {
	Files []File
	// Cut: there was more than was asked for.
	Cut bool
}

// File is one path that differs. The zero Entry is nothing: it was made, or
// removed. A directory is listed if it came, went, or has another mode, owner
// or attribute.
type File struct {
	Path   string // any bytes
	Before tree.Entry
	After  tree.Entry
	// Hunks of a text, if they were asked for. Binary: they cannot be had;
	// Large: it would be too much.
	Hunks  []Hunk
	Binary bool
	Large  bool
}

// Hunk is a run of changed lines with lines of context around it. Line numbers
// count from 1, as in a unified diff.
type Hunk struct {
	Before, BeforeLines int
	After, AfterLines   int
	Lines               []Line
}

// Line of a Hunk. Kind is ' ', '-' or '+'; Text has no newline at its end.
type Line struct {
	Kind byte
	Text string
	// NoNewline: the file ends here without one.
	NoNewline bool
}

// errCut ends the walk of a Diff that is full.
var errCut = errors.New("cut")

// Trees compares two trees; the zero hash is the empty one.
func Trees(ctx context.Context, store *object.Store, from, to object.Hash, o Options) (Diff, error) {
	o.Context = cmp.Or(o.Context, contextDefault)
	o.FilesMax = cmp.Or(o.FilesMax, filesMaxDefault)
	o.BytesMax = cmp.Or(o.BytesMax, bytesMaxDefault)
	d := differ{ctx: ctx, store: store, o: o, left: o.BytesMax}
	before, err := at(store, from, o.Path)
	if err != nil {
		return Diff{}, err
	}
	after, err := at(store, to, o.Path)
	if err != nil {
		return Diff{}, err
	}
	if err = d.name(o.Path, before, after); errors.Is(err, errCut) {
		d.out.Cut, err = true, nil
	}
	return d.out, err
}

type differ struct {
	ctx   context.Context
	store *object.Store
	o     Options
	left  int // bytes of hunks
	out   Diff
}

// name compares what is at one path.
func (d *differ) name(path string, before, after tree.Entry) error {
	if one := cmp.Or(before.Type, after.Type); (before.Type == 0 || after.Type == 0) && one == tree.Dir && slices.Contains(d.o.Without, cmp.Or(before.Name, after.Name)) {
		return nil
	}
	if before.Type == after.Type && (before.Type == 0 || before.Same(after)) {
		return nil
	}
	if err := d.ctx.Err(); err != nil {
		return err
	}
	if path != "" && !sameDir(before, after) {
		if len(d.out.Files) >= d.o.FilesMax {
			return errCut
		}
		f := File{Path: path, Before: before, After: after}
		if err := d.hunks(&f); err != nil {
			return err
		}
		d.out.Files = append(d.out.Files, f)
	}
	return d.beneath(path, before, after)
}

// sameDir reports whether two directories differ in nothing but what is in them.
func sameDir(before, after tree.Entry) bool {
	if before.Type != tree.Dir || after.Type != tree.Dir {
		return false
	}
	before.Hash = after.Hash
	return before.Same(after)
}

func (d *differ) beneath(path string, before, after tree.Entry) error {
	b, err := d.entries(before)
	if err != nil {
		return err
	}
	a, err := d.entries(after)
	if err != nil {
		return err
	}
	return apply.Merge(b, a, func(before, after tree.Entry) error {
		return d.name(apply.Join(path, cmp.Or(before.Name, after.Name)), before, after)
	})
}

func (d *differ) entries(e tree.Entry) ([]tree.Entry, error) {
	if e.Type != tree.Dir {
		return nil, nil
	}
	return apply.Read(d.store, e.Hash)
}

// hunks compares two files by lines, if they are texts and short enough.
func (d *differ) hunks(f *File) error {
	if !d.o.Hunks || f.Before.Type != tree.File && f.After.Type != tree.File || f.Before.SameContent(f.After) {
		return nil
	}
	if f.Before.Size > TextBytesMax || f.After.Size > TextBytesMax {
		f.Large = true
		return nil
	}
	var texts [2][]byte
	for i, e := range []tree.Entry{f.Before, f.After} {
		if e.Type != tree.File {
			continue
		}
		var b bytes.Buffer
		if err := Content(d.ctx, d.store, e, &b); err != nil {
			return err
		}
		if texts[i] = b.Bytes(); !IsText(texts[i]) {
			f.Binary = true
			return nil
		}
	}
	hunks, size := convert(DiffLines(texts[0], texts[1], d.o.Context))
	if size > d.left {
		f.Large = true
		return nil
	}
	d.left -= size
	f.Hunks = hunks
	return nil
}

// convert also says how many bytes of text there are.
func convert(from []MergeHunk) (hunks []Hunk, size int) {
	for _, h := range from {
		hunk := Hunk{Before: h.OldStart, BeforeLines: h.OldLines, After: h.NewStart, AfterLines: h.NewLines}
		for _, l := range h.Lines {
			text, ended := strings.CutSuffix(l.Text, "\n")
			hunk.Lines = append(hunk.Lines, Line{Kind: l.Op[0], Text: text, NoNewline: !ended})
			size += len(l.Text)
		}
		hunks = append(hunks, hunk)
	}
	return hunks, size
}
