package apply

import (
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sealed is a journal with this text, whose checksum is right.
func sealed(text string) []byte {
	return fmt.Appendf(nil, "%s %08x\n%s", journalMagic, crc32.Checksum([]byte(text), crcTable), text)
}

func someOps() []Op {
	return []Op{
		{Action: Remove, Path: []byte("gone"), Before: tree.Entry{Name: "gone", Type: tree.Link, Target: "x"}},
		{Action: Write, Path: []byte("in\xffvalid"), After: tree.Entry{Name: "in\xffvalid", Type: tree.File, Mode: 0o644, Size: 3, Hash: object.Hash{1}}},
	}
}

func TestJournal_saysWhatWasWritten(t *testing.T) {
	c := Config{Journal: filepath.Join(t.TempDir(), "journal"), Note: []byte("note")}
	if _, _, err := c.readJournal(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without one: %v", err)
	}
	must(t, c.writeJournal(someOps()))
	ops, note, err := c.readJournal()
	if err != nil || string(note) != "note" || !reflect.DeepEqual(ops, someOps()) {
		t.Errorf("%+v, %q, %v", ops, note, err)
	}
}

func TestJournal_bad(t *testing.T) {
	good := string(sealed(`{"ops":[]}`))
	entries := func(list ...tree.Entry) string {
		data, err := tree.Encode(list)
		must(t, err)
		return string(sealed(`{"ops":[{"action":"write","path":"YQ==","after":"` + base64.StdEncoding.EncodeToString(data) + `"}]}`))
	}
	for name, data := range map[string]string{
		"empty":               "",
		"no text":             journalMagic,
		"another kind":        strings.Replace(good, journalMagic, "skjournal9", 1),
		"a flipped bit":       strings.Replace(good, "ops", "opr", 1),
		"cut off":             good[:len(good)-1],
		"no JSON":             string(sealed(`{"ops":`)),
		"no entry":            string(sealed(`{"ops":[{"action":"write","path":"YQ==","after":"YQ=="}]}`)),
		"no operation":        string(sealed(`{"ops":[{"action":"run","path":"YQ=="}]}`)),
		"out of the root":     string(sealed(`{"ops":[{"action":"remove","path":"Li4vYQ=="}]}`)), // ../a
		"from the root":       string(sealed(`{"ops":[{"action":"remove","path":"L2E="}]}`)),     // /a
		"the directory alone": string(sealed(`{"ops":[{"action":"remove","path":""}]}`)),
		"no entries":          entries(),
		"two entries":         entries(tree.Entry{Name: "a", Type: tree.Fifo}, tree.Entry{Name: "b", Type: tree.Fifo}),
	} {
		if _, _, err := parseJournal([]byte(data)); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v, want Corrupt", name, err)
		}
	}
}

// A journal that is longer than any that is written is refused before it is
// read through.
func TestJournal_tooLarge(t *testing.T) {
	c := Config{Journal: filepath.Join(t.TempDir(), "journal")}
	must(t, os.WriteFile(c.Journal, nil, 0o600))
	must(t, os.Truncate(c.Journal, 1<<40))
	if _, _, err := c.readJournal(); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("%v", err)
	}
}

// Whatever is in a journal, reading it does not crash, and what it asks for is
// in the directory.
func FuzzJournal(f *testing.F) {
	c := Config{Journal: filepath.Join(f.TempDir(), "journal")}
	must(f, c.writeJournal(someOps()))
	data, err := os.ReadFile(c.Journal)
	must(f, err)
	_, text, _ := strings.Cut(string(data), "\n")
	f.Add(text)
	f.Add(`{"ops":[{"action":"remove","path":"Li4vYQ=="}],"note":"AA=="}`)
	f.Fuzz(func(t *testing.T, text string) {
		ops, _, err := parseJournal(sealed(text)) // a forger writes the checksum too
		if err != nil {
			if !errs.Is(err, errs.Corrupt) {
				t.Fatalf("%v is not Corrupt", err)
			}
			return
		}
		for _, o := range ops {
			if p := string(o.Path); !filepath.IsLocal(p) || p == "." {
				t.Fatalf("an operation on %q", p)
			}
			if _, err := o.line(); err != nil {
				t.Fatalf("%+v cannot be written again: %v", o, err)
			}
		}
	})
}

// A file whose parts are longer or shorter than its entry says is damaged.
func TestContent_lies(t *testing.T) {
	store, err := object.Open(t.TempDir(), object.Config{})
	must(t, err)
	defer func() { must(t, store.Close()) }()
	blob, err := store.Put(object.Blob, []byte("12345"))
	must(t, err)
	chunks, err := tree.EncodeList([]tree.Chunk{{Offset: 0, Length: 5, Hash: blob}, {Offset: 8, Length: 5, Hash: blob}})
	must(t, err)
	list, err := store.Put(object.List, chunks)
	must(t, err)
	shorter, err := tree.EncodeList([]tree.Chunk{{Offset: 0, Length: 4, Hash: blob}})
	must(t, err)
	cut, err := store.Put(object.List, shorter)
	must(t, err)
	for name, x := range map[string]struct {
		e  tree.Entry
		ok bool
	}{
		"right":            {tree.Entry{Hash: blob, Size: 5}, true},
		"too short":        {tree.Entry{Hash: blob, Size: 6}, false},
		"too long":         {tree.Entry{Hash: blob, Size: 4}, false},
		"parts, a hole":    {tree.Entry{Hash: list, Size: 20, Listed: true}, true},
		"parts to the end": {tree.Entry{Hash: list, Size: 13, Listed: true}, true},
		"parts beyond":     {tree.Entry{Hash: list, Size: 12, Listed: true}, false},
		"a part is longer": {tree.Entry{Hash: cut, Size: 20, Listed: true}, false},
	} {
		x.e.Name, x.e.Type = "f", tree.File
		err := Content(store, x.e, func(int64, []byte) error { return nil })
		if x.ok && err != nil || !x.ok && !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
