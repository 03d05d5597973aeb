package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/tree"
)

// line is an operation in the journal, which a Run writes before it does
// anything: entries as package tree writes them,
// since names need not be text.
type line struct {
	Action Action `json:"action"`
	Path   []byte `json:"path"`
	Before []byte `json:"before,omitempty"`
	After  []byte `json:"after,omitempty"`
}

func (o Op) line() (line, error) {
	l := line{Action: o.Action, Path: o.Path}
	for _, x := range []struct {
		e   tree.Entry
		out *[]byte
	}{{o.Before, &l.Before}, {o.After, &l.After}} {
		if x.e.Type == 0 {
			continue
		}
		var err error
		if *x.out, err = tree.Encode([]tree.Entry{x.e}); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l line) op() (Op, error) {
	o := Op{Action: l.Action, Path: l.Path}
	if !slices.Contains([]Action{Remove, Write, Mkdir, Attrs}, l.Action) {
		return o, errs.New(errs.Corrupt, "the journal of an undo holds %.20q, which is no operation", l.Action)
	}
	for name := range strings.SplitSeq(string(l.Path), "/") {
		if err := tree.CheckName(name); err != nil {
			return o, errs.Wrap(errs.Corrupt, err, "the journal of an undo names %.200q, which is no path", l.Path)
		}
	}
	for _, x := range []struct {
		data []byte
		out  *tree.Entry
	}{{l.Before, &o.Before}, {l.After, &o.After}} {
		if len(x.data) == 0 {
			continue
		}
		entries, err := tree.Decode(x.data)
		if err != nil || len(entries) != 1 {
			return o, errs.Wrap(errs.Corrupt, err, "the journal of an undo cannot be read")
		}
		*x.out = entries[0]
	}
	return o, nil
}

// mark stands when all contents are staged; done takes its place, and holds
// what was left, when all operations are done.
func (c Config) mark() string { return c.Journal + ".staged" }
func (c Config) done() string { return c.Journal + ".applied" }

// unmark removes both.
func (c Config) unmark() error { return errors.Join(remove(c.mark()), remove(c.done())) }

// marks says how far a Run has come.
func (c Config) marks() (staged, applied bool) {
	_, stagedErr := os.Lstat(c.mark())
	_, appliedErr := os.Lstat(c.done())
	return stagedErr == nil, appliedErr == nil
}

// markDone makes it durable that all operations are done. It needs no room on
// the disk, but for the list of what was left.
func (c Config) markDone(r Result) error {
	if len(r.Kept) > 0 {
		_ = c.writeKept(r.Kept) // see readKept
	}
	if err := os.Rename(c.mark(), c.done()); err != nil {
		return err
	}
	return syncDir(filepath.Dir(c.Journal))
}

// writeKept puts what was left into the mark that stands; names need not be text.
func (c Config) writeKept(kept []string) error {
	paths := make([][]byte, len(kept))
	for i, p := range kept {
		paths[i] = []byte(p)
	}
	data, err := json.Marshal(paths)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(c.mark(), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// readKept is what writeKept has written; nothing, if that cannot be read: it
// is a courtesy.
func (c Config) readKept() (kept []string) {
	f, err := os.Open(c.done())
	if err != nil {
		return nil
	}
	defer f.Close()
	var paths [][]byte
	if err := json.NewDecoder(io.LimitReader(f, journalBytesMax)).Decode(&paths); err != nil {
		return nil
	}
	for _, p := range paths {
		kept = append(kept, string(p))
	}
	return kept
}

// writeJournal makes the journal durable, without the mark.
func (c Config) writeJournal(ops []Op) error {
	if err := c.unmark(); err != nil {
		return err
	}
	lines := make([]line, len(ops))
	for i, o := range ops {
		var err error
		if lines[i], err = o.line(); err != nil {
			return err
		}
	}
	data, err := json.Marshal(record{lines, c.Note})
	if err != nil {
		return err
	}
	head := fmt.Appendf(nil, "%s %08x\n", journalMagic, crc32.Checksum(data, crcTable))
	if len(head)+len(data) > journalBytesMax { // readJournal would refuse it
		return errs.New(errs.Limit, "an undo of %d paths is too large", len(ops)).WithHint("nothing was changed; restore a part of the workspace at a time")
	}
	return writeDurably(c.Journal, append(head, data...))
}

// journalBytesMax bounds a journal: half a million paths, about.
const journalBytesMax = 512 << 20

const journalMagic = "skjournal1"

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// record is what a journal holds.
type record struct {
	Ops  []line `json:"ops"`
	Note []byte `json:"note,omitempty"`
}

// readJournal returns the operations and the note.
func (c Config) readJournal() ([]Op, []byte, error) {
	f, err := os.Open(c.Journal)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Size() > journalBytesMax {
		return nil, nil, errs.New(errs.Corrupt, "the journal of an undo is larger than %d MiB", journalBytesMax>>20)
	}
	data, err := io.ReadAll(io.LimitReader(f, journalBytesMax))
	if err != nil {
		return nil, nil, err
	}
	return parseJournal(data)
}

// parseJournal returns the operations and the note of a journal. Corrupt: it is
// damaged, or asks for what no plan does.
func parseJournal(data []byte) ([]Op, []byte, error) {
	head, text, _ := bytes.Cut(data, []byte("\n"))
	if string(head) != fmt.Sprintf("%s %08x", journalMagic, crc32.Checksum(text, crcTable)) {
		return nil, nil, errs.New(errs.Corrupt, "the journal of an undo is damaged")
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, nil, errs.Wrap(errs.Corrupt, err, "the journal of an undo cannot be read")
	}
	ops := make([]Op, len(r.Ops))
	for i, l := range r.Ops {
		var err error
		if ops[i], err = l.op(); err != nil {
			return nil, nil, err
		}
	}
	return ops, r.Note, nil
}

// Pending says what Recover would find: nothing, or a Run that it drops, or one
// that it finishes or tells of. It changes nothing. Corrupt: the journal is damaged.
func Pending(c Config) (begun, finishes bool, err error) {
	_, _, err = c.readJournal()
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	staged, applied := c.marks()
	return true, staged || applied, err
}

// writeDurably replaces a file in one step.
func writeDurably(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errors.Join(err, remove(path+".new"))
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
