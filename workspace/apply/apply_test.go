package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// files are a directory: paths, and what is there. "/" is a directory, "->x" a link to x,
// "|" a fifo, all else a file's content; "755 " before it is its mode.
type files map[string]string

// entryOf is what is at a path, without a hash.
func entryOf(name, what string) (tree.Entry, string) {
	e := tree.Entry{Name: name, Type: tree.File, Mode: 0o644, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if mode, rest, ok := strings.Cut(what, " "); ok && len(mode) >= 3 {
		if n, err := strconv.ParseUint(mode, 8, 12); err == nil {
			e.Mode, what = uint32(n), rest
			defer func() { e.Mode = uint32(n) }()
		}
	}
	target, isLink := strings.CutPrefix(what, "->")
	switch {
	case isLink:
		e.Type, e.Mode, e.Target = tree.Link, 0o777, target
	case what == "|":
		e.Type = tree.Fifo
	case what == "/":
		e.Type = tree.Dir
		if e.Mode == 0o644 {
			e.Mode = 0o755
		}
	default:
		e.Size = int64(len(what))
	}
	return e, what
}

func newStore(t testing.TB) *object.Store {
	t.Helper()
	store, err := object.Open(t.TempDir(), object.Config{})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	return store
}

// put stores a directory; parents that are not said are made.
func put(t testing.TB, store *object.Store, all files) object.Hash {
	t.Helper()
	names := map[string]files{}
	for p, what := range all {
		name, rest, deeper := strings.Cut(p, "/")
		if names[name] == nil {
			names[name] = files{}
		}
		if deeper {
			names[name][rest] = what
		}
	}
	var entries []tree.Entry
	for _, name := range slices.Sorted(maps.Keys(names)) {
		what, said := all[name]
		if !said {
			what = "/"
		}
		e, content := entryOf(name, what)
		var err error
		switch e.Type {
		case tree.File:
			e.Hash, err = store.Put(object.Blob, []byte(content))
		case tree.Dir:
			e.Hash = put(t, store, names[name])
		}
		must(t, err)
		entries = append(entries, e)
	}
	data, err := tree.Encode(entries)
	must(t, err)
	h, err := store.Put(object.Tree, data)
	must(t, err)
	return h
}

// lay makes a directory of files.
func lay(t testing.TB, dir string, all files) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(all)) {
		e, content := entryOf(filepath.Base(p), all[p])
		at := filepath.Join(dir, p)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		switch e.Type {
		case tree.File:
			must(t, os.WriteFile(at, []byte(content), 0o600))
		case tree.Dir:
			must(t, os.MkdirAll(at, 0o700))
		case tree.Link:
			must(t, os.Symlink(e.Target, at))
			continue
		case tree.Fifo:
			must(t, unix.Mkfifo(at, 0o600))
		}
		must(t, unix.Chmod(at, e.Mode))
	}
}

// there is what a directory holds, as lay takes it.
func there(t testing.TB, dir string) files {
	t.Helper()
	all := files{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(p, &st))
		what, usual := "/", uint32(0o755)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			target, err := os.Readlink(p)
			must(t, err)
			what, usual = "->"+target, st.Mode&0o7777
		case unix.S_IFIFO:
			what, usual = "|", 0o644
		case unix.S_IFREG:
			data, err := os.ReadFile(p)
			must(t, err)
			what, usual = string(data), 0o644
		}
		if mode := st.Mode & 0o7777; mode != usual {
			what = fmt.Sprintf("%o %s", mode, what)
		}
		all[rel] = what
		return nil
	}))
	return all
}

// with are files and the parents that they have not said.
func (f files) with() files {
	all := maps.Clone(f)
	for p := range f {
		for d := filepath.Dir(p); d != "."; d = filepath.Dir(d) {
			if _, said := all[d]; !said {
				all[d] = "/"
			}
		}
	}
	return all
}

// in are files beneath a directory.
func (f files) in(dir string, more files) files {
	all := maps.Clone(more)
	if all == nil {
		all = files{}
	}
	for p, what := range f {
		all[dir+"/"+p] = what
	}
	return all
}

// git is a repository that works.
var git = files{"HEAD": "ref: refs/heads/main", "config": "[core]", "objects/ab/" + strings.Repeat("c", 38): "o", "refs/heads/main": "abc"}

func (f files) but(change files) files {
	all := maps.Clone(f)
	for p, what := range change {
		if all[p] = what; what == "" {
			delete(all, p)
		}
	}
	return all
}

var plans = map[string]struct {
	now, target files
	filter      Filter
	ops, left   []string
	becomes     files // nil = target
}{
	"nothing":                        {now: files{"a": "1", "d/b": "2"}, target: files{"a": "1", "d/b": "2"}},
	"files":                          {now: files{"a": "1", "b": "1", "c": "1"}, target: files{"b": "2", "c": "1", "d": "1"}, ops: []string{"remove a", "write b", "write d"}},
	"modes":                          {now: files{"a": "1", "d": "/", "e/f": "1"}, target: files{"a": "755 1", "d": "700 /", "e": "700 /", "e/f": "2"}, ops: []string{"attrs a", "attrs d", "write e/f", "attrs e"}},
	"the deepest goes first":         {now: files{"d/e/f": "1", "d/g": "1", "x": "1"}, target: files{"x": "1"}, ops: []string{"remove d/e/f", "remove d/e", "remove d/g", "remove d"}},
	"the root comes first":           {now: files{"x": "1"}, target: files{"d/e/f": "1", "d/g": "1", "d/h": "/", "x": "1"}, ops: []string{"mkdir d", "mkdir d/e", "write d/e/f", "write d/g", "mkdir d/h"}},
	"a file in place of a directory": {now: files{"d/f": "1", "x": "1"}, target: files{"d": "1", "x": "1"}, ops: []string{"remove d/f", "remove d", "write d"}},
	"a directory in place of a file": {now: files{"d": "1"}, target: files{"d/f": "1"}, ops: []string{"remove d", "mkdir d", "write d/f"}},
	"links and fifos": {
		now: files{"a": "->x", "b": "->x", "c": "1", "d": "|", "e": "|"}, target: files{"a": "->y", "b": "1", "c": "->x", "d": "666 |", "f": "666 |", "g": "->x"},
		ops: []string{"remove e", "write a", "write b", "write c", "attrs d", "write f", "write g"},
	},
	"a part":            {now: files{"a": "1", "ab": "1", "d/e": "1"}, target: files{"a": "2", "ab": "2", "c": "1"}, filter: Filter{Path: "a"}, ops: []string{"write a"}, becomes: files{"a": "2", "ab": "1", "d/e": "1"}},
	"a part beneath":    {now: files{"d/a": "1", "d/ab": "1", "da": "1"}, target: files{"d": "700 /", "d/a": "2", "d/ab": "2", "da": "2"}, filter: Filter{Path: "d/a"}, ops: []string{"write d/a"}, becomes: files{"d/a": "2", "d/ab": "1", "da": "1"}},
	"all of a part":     {now: files{"d/a": "1", "d/b": "1", "x": "1"}, target: files{"d": "700 /", "d/a": "2", "x": "2"}, filter: Filter{Path: "d"}, ops: []string{"remove d/b", "write d/a", "attrs d"}, becomes: files{"d": "700 /", "d/a": "2", "x": "1"}},
	"a part that goes":  {now: files{"d/a": "1", "d/b": "1"}, target: files{"x": "1"}, filter: Filter{Path: "d/a"}, ops: []string{"remove d/a"}, becomes: files{"d/b": "1"}},
	"a part that comes": {now: files{"d/b": "1"}, target: files{"d/a/c": "1"}, filter: Filter{Path: "d/a"}, ops: []string{"mkdir d/a", "write d/a/c"}, becomes: files{"d/a/c": "1", "d/b": "1"}},
	"a part of a file":  {now: files{"d": "1"}, target: files{"d": "2"}, filter: Filter{Path: "d/a"}, becomes: files{"d": "1"}},
	"what is spared":    {now: files{"a/m/f": "1", "m/f": "1", "n/m": "1"}, target: files{"n/x": "1"}, filter: Filter{Spare: []string{"m"}}, ops: []string{"remove a/m/f", "remove a/m", "remove a", "remove n/m", "write n/x"}, left: []string{"m: " + whySpared}, becomes: files{"m/f": "1", "n/x": "1"}},
	"spared no more":    {now: files{"m/f": "1"}, target: files{"m": "1"}, filter: Filter{Spare: []string{"m"}}, ops: []string{"remove m/f", "remove m", "write m"}},
	"spared, and there": {now: files{"m/f": "1"}, target: files{"m/f": "2"}, filter: Filter{Spare: []string{"m"}}, ops: []string{"write m/f"}},

	"a repository elsewhere":                      {now: git.in("d/.git", files{"a": "1", "m/f": "1"}), target: files{"a": "2"}, filter: Filter{Path: "a", Spare: []string{"m"}}, ops: []string{"write a"}, becomes: git.in("d/.git", files{"a": "2", "m/f": "1"})},
	"a repository made since":                     {now: git.in(".git", files{"a": "1"}), target: files{"a": "2"}, ops: []string{"write a"}, left: []string{".git: " + whyNew}, becomes: git.in(".git", files{"a": "2"})},
	"one in a directory that goes":                {now: git.in("d/.git", files{"d/a": "1"}), target: files{"b": "1"}, ops: []string{"remove d/a", "write b"}, left: []string{"d/.git: " + whyNew}, becomes: git.in("d/.git", files{"b": "1"})},
	"one in a directory that becomes a file":      {now: git.in("d/.git", nil), target: files{"d": "1"}, left: []string{"d/.git: " + whyNew, "d: " + whyHolds}, becomes: git.in("d/.git", nil)},
	"one that is a file now":                      {now: files{".git": "gitdir: x"}, target: git.in(".git", nil), left: []string{".git: " + whyGit}, becomes: files{".git": "gitdir: x"}},
	"one that was a file":                         {now: git.in(".git", nil), target: files{".git": "gitdir: x"}, left: []string{".git: " + whyGit}, becomes: git.in(".git", nil)},
	"one that is chosen":                          {now: git.in(".git", nil), target: git.but(files{"HEAD": "x"}).in(".git", nil), filter: Filter{Path: ".git"}, ops: []string{"write .git/HEAD"}},
	"one that is gone comes whole":                {now: files{"a": "1"}, target: files{".git/HEAD": "x", ".git/MERGE_HEAD": "x", ".git/index.lock": "x", ".git/info": "/", "a": "1"}, ops: []string{"mkdir .git", "write .git/HEAD", "write .git/MERGE_HEAD", "mkdir .git/info"}, becomes: files{".git/HEAD": "x", ".git/MERGE_HEAD": "x", ".git/info": "/", "a": "1"}},
	"one that is gone, a file":                    {now: files{"a": "1"}, target: files{".git": "gitdir: x", "a": "1"}, ops: []string{"write .git"}},
	"the same":                                    {now: git.in(".git", nil), target: git.in(".git", nil)},
	"commits are left":                            {now: git.but(files{"refs/heads/main": "def", "new": "1"}).in(".git", nil), target: git.in(".git", nil), left: []string{".git: " + whyGit}, becomes: git.but(files{"refs/heads/main": "def", "new": "1"}).in(".git", nil)},
	"more in it":                                  {now: git.but(files{"new": "1"}).in(".git", nil), target: git.in(".git", nil), left: []string{".git: " + whyGit}, becomes: git.but(files{"new": "1"}).in(".git", nil)},
	"a configuration":                             {now: git.in(".git", nil), target: git.but(files{"config": "x"}).in(".git", nil), left: []string{".git: " + whyHooks}, becomes: git.in(".git", nil)},
	"a configuration, and more":                   {now: git.but(files{"description": "1"}).in(".git", nil), target: git.but(files{"config": "x", "description": "2"}).in(".git", nil), left: []string{".git: " + whyHooks}, becomes: git.but(files{"description": "1"}).in(".git", nil)},
	"one in another, which is none of its":        {now: git.but(files{"HEAD": "2"}).in(".git/x", git.in(".git", nil)), target: git.in(".git/x", git.in(".git", nil)), left: []string{".git: " + whyGit}, becomes: git.but(files{"HEAD": "2"}).in(".git/x", git.in(".git", nil))},
	"one without a directory that it needs":       {now: files{".git/HEAD": "1", ".git/info/x": "1", ".git/objects": "/"}, target: files{".git/HEAD": "1", ".git/MERGE_HEAD": "1", ".git/info/x": "1", ".git/objects": "/"}, ops: []string{"write .git/MERGE_HEAD"}},
	"a hook":                                      {now: git.but(files{"hooks/a": "x"}).in(".git", nil), target: git.but(files{"hooks/a": "y"}).in(".git", nil), left: []string{".git: " + whyHooks}, becomes: git.but(files{"hooks/a": "x"}).in(".git", nil)},
	"a directory of hooks that is a file":         {now: git.but(files{"x/config": "1"}).in(".git", nil), target: git.but(files{"x": "1"}).in(".git", nil), left: []string{".git: " + whyGit}, becomes: git.but(files{"x/config": "1"}).in(".git", nil)},
	"a branch and an object that are gone":        {now: git.but(files{"refs/tags/x": "1"}).in(".git", nil), target: git.but(files{"refs/tags/x": "1", "refs/heads/b": "1", "refs/tags/v": "1", "refs/notes/n": "1", "MERGE_HEAD": "1", "index": "i", "objects/12/" + strings.Repeat("3", 38): "o"}).in(".git", nil), ops: []string{"write .git/index", "mkdir .git/objects/12", "write .git/objects/12/" + strings.Repeat("3", 38), "write .git/refs/heads/b", "write .git/refs/tags/v"}, becomes: git.but(files{"refs/tags/x": "1", "refs/heads/b": "1", "refs/tags/v": "1", "index": "i", "objects/12/" + strings.Repeat("3", 38): "o"}).in(".git", nil)},
	"a branch that is packed":                     {now: git.but(files{"packed-refs": "1 refs/heads/b\n", "zz": "1"}).in(".git", nil), target: git.but(files{"refs/heads/b": "1", "refs/heads/c": "1"}).in(".git", nil), ops: []string{"write .git/refs/heads/c"}, left: []string{".git: " + whyGit}, becomes: git.but(files{"packed-refs": "1 refs/heads/b\n", "refs/heads/c": "1", "zz": "1"}).in(".git", nil)},
	"what is packed cannot be read":               {now: git.but(files{"packed-refs": "->x"}).in(".git", nil), target: git.but(files{"refs/heads/b": "1"}).in(".git", nil), left: []string{".git: " + whyGit}, becomes: git.but(files{"packed-refs": "->x"}).in(".git", nil)},
	"a directory with nothing that returns":       {now: git.in(".git", nil), target: git.but(files{"x/y": "1"}).in(".git", nil), becomes: git.in(".git", nil)},
	"one that does not work":                      {now: files{".git/objects": "/", ".git/refs": "/"}, target: git.but(files{"x/y": "1"}).in(".git", nil), ops: []string{"write .git/HEAD", "write .git/config", "mkdir .git/objects/ab", "write .git/objects/ab/" + strings.Repeat("c", 38), "mkdir .git/refs/heads", "write .git/refs/heads/main", "mkdir .git/x", "write .git/x/y"}, becomes: git.but(files{"x/y": "1"}).in(".git", nil)},
	"one in which a directory is a file":          {now: git.but(files{"refs/heads/main": "", "refs": "1"}).in(".git", nil), target: git.but(files{"MERGE_HEAD": "1"}).in(".git", nil), ops: []string{"write .git/MERGE_HEAD"}, left: []string{".git: " + whyGit}, becomes: git.but(files{"refs/heads/main": "", "refs": "1", "MERGE_HEAD": "1"}).in(".git", nil)},
	"a worktree that is gone":                     {now: git.but(files{"worktrees/v/HEAD": "1"}).in(".git", nil), target: git.but(files{"worktrees/v/HEAD": "1", "worktrees/v/gitdir": "1", "worktrees/w/HEAD": "1", "worktrees/w/x/y": "1"}).in(".git", nil), ops: []string{"mkdir .git/worktrees/w", "write .git/worktrees/w/HEAD", "mkdir .git/worktrees/w/x", "write .git/worktrees/w/x/y"}, becomes: git.but(files{"worktrees/v/HEAD": "1", "worktrees/w/HEAD": "1", "worktrees/w/x/y": "1"}).in(".git", nil)},
	"a submodule that is gone":                    {now: git.in(".git", nil), target: files{"HEAD": "1", "x": "1"}.in(".git/modules/m", git.in(".git", nil)), ops: []string{"mkdir .git/modules", "mkdir .git/modules/m", "write .git/modules/m/HEAD", "write .git/modules/m/x"}},
	"a submodule is a repository of its own":      {now: git.but(files{"HEAD": "2"}).in(".git/modules/m", git.in(".git", nil)), target: git.but(files{"index": "i"}).in(".git/modules/m", git.in(".git", nil)), ops: []string{"write .git/modules/m/index"}, left: []string{".git/modules/m: " + whyGit}, becomes: git.but(files{"HEAD": "2", "index": "i"}).in(".git/modules/m", git.in(".git", nil))},
	"one that does not work is mended, as it was": {now: git.but(files{"HEAD": ""}).in(".git/modules/m", git.in(".git", nil)), target: git.but(files{"MERGE_HEAD": "1"}).in(".git/modules/m", git.in(".git", nil)), ops: []string{"write .git/modules/m/HEAD", "write .git/modules/m/MERGE_HEAD"}},
	"a submodule that never was one":              {now: files{".git/modules/m/HEAD": "1"}.but(files{}).with().but(git.in(".git", nil)), target: files{".git/modules/m/HEAD": "1", ".git/modules/m/index": "1", ".git/modules/m/MERGE_HEAD": "1"}.but(git.in(".git", nil)), becomes: files{".git/modules/m/HEAD": "1"}.but(git.in(".git", nil))},
}

// A plan has the fewest operations that make one directory of the other, in an order in
// which they can be done, and what git does is left. They are done, and nothing of a Run
// stays behind.
func TestPlan(t *testing.T) {
	for name, x := range plans {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			now, target := put(t, store, x.now), put(t, store, x.target)
			ops, left, err := Plan(t.Context(), store, now, target, x.filter)
			must(t, err)
			var did, stays []string
			for _, o := range ops {
				did = append(did, fmt.Sprintf("%s %s", o.Action, o.Path))
			}
			for _, l := range left {
				stays = append(stays, l.Path+": "+l.Why)
			}
			if d := cmp.Diff(x.ops, did) + cmp.Diff(x.left, stays); d != "" {
				t.Fatal(d)
			}
			if x.filter.Path == "" && x.filter.Spare == nil {
				if moves, err := Moves(t.Context(), store, now, target); err != nil || moves != (len(ops) > 0) {
					t.Errorf("there are operations: %v, %v", moves, err)
				}
			}
			want := x.becomes
			if want == nil {
				want = x.target
			}
			c := place(t, x.now)
			result, begun, err := Run(t.Context(), c, store, ops)
			if err != nil || !begun || len(result.Kept) > 0 {
				t.Fatalf("%+v, %v, %v", result, begun, err)
			}
			if d := cmp.Diff(want.with(), there(t, c.Dir)); d != "" {
				t.Error(d)
			}
			must(t, Done(c))
			isClean(t, c)
		})
	}
}

// place is a directory for a Run.
func place(t testing.TB, now files) Config {
	t.Helper()
	home := t.TempDir()
	c := Config{Dir: filepath.Join(home, "dir"), Staging: filepath.Join(home, "staging"), Journal: filepath.Join(home, "journal"), Note: []byte("note")}
	must(t, os.Mkdir(c.Dir, 0o755))
	lay(t, c.Dir, now)
	return c
}

func isClean(t testing.TB, c Config) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(c.Dir))
	if must(t, err); len(entries) != 1 {
		t.Errorf("%v are left", entries)
	}
}

// death ends a Run at a stage.
type death struct{ at string }

// dies runs until a stage, as if the process died there, and reports whether it came to it.
func dies(c Config, at string, do func(Config)) (died bool) {
	defer func() {
		if d := recover(); d != nil {
			if d != (death{at}) {
				panic(d)
			}
			died = true
		}
	}()
	c.Stage = func(name string) {
		if name == at {
			panic(death{at})
		}
	}
	do(c)
	return false
}

// A Run that dies happens whole or not at all, wherever it dies, and wherever its recovery
// dies too. It is told of until it is Done.
func TestRecover(t *testing.T) {
	now := files{"a": "1", "b": "->x", "c": "|", "d/e": "1", "f": "1", "z": "1"}
	target := files{"a": "2", "b": "->y", "c": "600 |", "d": "1", "g/h": "755 1", "g/l": "->y", "g/p": "600 |", "z": "755 1"}
	stages := []string{"journal", "contents", "staged"}
	store := newStore(t)
	ops, _, err := Plan(t.Context(), store, put(t, store, now), put(t, store, target), Filter{})
	must(t, err)
	for i := range ops {
		stages = append(stages, fmt.Sprintf("applied %d", i))
	}
	stages = append(stages, "applied", "marked")
	for i, first := range stages {
		for _, second := range []string{"applied 1", "applied 7", "applied", "marked", "never"} {
			c := place(t, now)
			if !dies(c, first, func(c Config) { _, _, _ = Run(t.Context(), c, store, ops) }) {
				t.Fatalf("it does not come to %q", first)
			}
			begun := i >= 2
			if is, finishes, err := Pending(c); !is || finishes != begun || err != nil {
				t.Errorf("%s: pending: %v, %v, %v", first, is, finishes, err)
			}
			dies(c, second, func(c Config) { _, _ = Recover(c) })
			want := now
			if begun {
				want = target
			}
			for range 2 {
				r, err := Recover(c)
				must(t, err)
				if (r != nil) != begun || r != nil && (string(r.Note) != "note" || len(r.Result.Kept) > 0) {
					t.Errorf("%s, %s: %+v", first, second, r)
				}
				if d := cmp.Diff(want.with(), there(t, c.Dir)); d != "" {
					t.Errorf("%s, %s: %s", first, second, d)
				}
			}
			if !dies(c, "dropped", func(c Config) { must(t, Done(c)) }) {
				t.Error("Done has no stage")
			}
			isClean(t, c)
			if is, finishes, err := Pending(c); is || finishes || err != nil {
				t.Errorf("%s: pending when it is done: %v, %v, %v", first, is, finishes, err)
			}
		}
	}
}

// What is done is not done again: who wrote to the directory since may go on.
func TestRecover_doneIsDone(t *testing.T) {
	store := newStore(t)
	now, target := files{"a": "1", "d/x": "1"}, files{"a": "2"}
	ops, _, err := Plan(t.Context(), store, put(t, store, now), put(t, store, target), Filter{})
	must(t, err)
	c := place(t, now.but(files{"d/mine": "1"}))
	result, begun, err := Run(t.Context(), c, store, ops)
	if must(t, err); !begun || !slices.Equal(result.Kept, []string{"d"}) {
		t.Fatalf("%+v, %v", result, begun)
	}
	after := files{"a": "later", "d": "1"}
	must(t, os.RemoveAll(c.Dir))
	must(t, os.Mkdir(c.Dir, 0o755))
	lay(t, c.Dir, after)
	open := descriptors(t)
	r, err := Recover(c)
	must(t, err)
	if now := descriptors(t); now != open {
		t.Errorf("%d descriptors are open, and were %d", now, open)
	}
	if d := cmp.Diff(&Recovered{Note: []byte("note"), Result: result}, r); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(after, there(t, c.Dir)); d != "" {
		t.Error(d)
	}
}

// What others did meanwhile is kept, and does not stop the rest.
func TestRun_kept(t *testing.T) {
	for name, x := range map[string]struct {
		planned, target, is files
		kept                []string
		becomes             files
	}{
		"a directory with more in it":       {files{"d/a": "1"}, files{"z": "1"}, files{"d/a": "1", "d/new": "1"}, []string{"d"}, files{"d/new": "1", "z": "1"}},
		"a file in its place":               {files{"d/a": "1"}, files{"d": "1", "z": "1"}, files{"d/a": "1", "d/new": "1"}, []string{"d"}, files{"d/new": "1", "z": "1"}},
		"gone before":                       {files{"a": "1", "d/e/f": "1"}, files{"z": "1"}, files{}, nil, files{"z": "1"}},
		"a file that became a directory":    {files{"a": "1"}, files{"z": "1"}, files{"a/b": "1"}, nil, files{"a/b": "1", "z": "1"}},
		"a directory that became a file":    {files{"d": "/"}, files{"z": "1"}, files{"d": "1"}, nil, files{"d": "1", "z": "1"}},
		"a file in the way of a new one":    {files{}, files{"a": "1", "z": "1"}, files{"a": "mine"}, []string{"a"}, files{"a": "mine", "z": "1"}},
		"a link in the way of a new link":   {files{}, files{"a": "->x", "z": "1"}, files{"a": "->y"}, []string{"a"}, files{"a": "->y", "z": "1"}},
		"a directory in the way of a file":  {files{"a": "1"}, files{"a": "2", "z": "1"}, files{"a/b": "1"}, []string{"a"}, files{"a/b": "1", "z": "1"}},
		"a directory is there":              {files{}, files{"d": "700 /", "z": "1"}, files{"d": "/"}, nil, files{"d": "700 /", "z": "1"}},
		"a file in the way of a directory":  {files{}, files{"d/a": "1", "z": "1"}, files{"d": "1"}, []string{"d", "d/a"}, files{"d": "1", "z": "1"}},
		"a link in the way of a directory":  {files{}, files{"d/a": "1", "z": "1"}, files{"d": "->e", "e": "/"}, []string{"d", "d/a"}, files{"d": "->e", "e": "/", "z": "1"}},
		"a link where a mode is set":        {files{"a": "1"}, files{"a": "755 1", "z": "1"}, files{"a": "->b", "b": "1"}, []string{"a"}, files{"a": "->b", "b": "1", "z": "1"}},
		"nothing where a mode is set":       {files{"a": "1"}, files{"a": "755 1", "z": "1"}, files{}, []string{"a"}, files{"z": "1"}},
		"a fifo where a mode is set":        {files{"a": "1"}, files{"a": "755 1", "z": "1"}, files{"a": "|"}, []string{"a"}, files{"a": "|", "z": "1"}},
		"a parent that is a link":           {files{"d/a": "1", "d/b": "1"}, files{"d/b": "2", "z": "1"}, files{"d": "->e", "e/a": "1", "e/b": "1"}, []string{"d/b"}, files{"d": "->e", "e/a": "1", "e/b": "1", "z": "1"}},
		"a parent that is gone":             {files{"d/b": "1"}, files{"d/b": "2", "z": "1"}, files{}, []string{"d/b"}, files{"z": "1"}},
		"a link that another file replaced": {files{"a": "->x"}, files{"a": "->y", "z": "1"}, files{"a": "mine"}, nil, files{"a": "->y", "z": "1"}},
		"a fifo with another mode":          {files{"a": "->x"}, files{"a": "600 |", "z": "1"}, files{"a": "|"}, nil, files{"a": "600 |", "z": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			ops, _, err := Plan(t.Context(), store, put(t, store, x.planned), put(t, store, x.target), Filter{})
			must(t, err)
			c := place(t, x.is)
			result, _, err := Run(t.Context(), c, store, ops)
			must(t, err)
			if d := cmp.Diff(x.kept, result.Kept) + cmp.Diff(x.becomes.with(), there(t, c.Dir)); d != "" {
				t.Error(d)
			}
		})
	}
}

// A Run that cannot begin changes nothing and leaves nothing.
func TestRun_doesNotBegin(t *testing.T) {
	now, target := files{"a": "1", "b": "1"}, files{"b": "2"}
	gone, stop := context.WithCancel(t.Context())
	stop()
	for name, x := range map[string]struct {
		ctx   context.Context
		spoil func(c *Config, ops []Op)
		says  errs.Class
	}{
		"a content that is lost":     {t.Context(), func(_ *Config, ops []Op) { ops[1].After.Hash = object.Hash{1} }, errs.NotFound},
		"no room":                    {t.Context(), func(_ *Config, ops []Op) { ops[1].After.Size = 1 << 50 }, errs.Limit},
		"a list that is lost":        {t.Context(), func(_ *Config, ops []Op) { ops[1].After.Listed = true }, errs.NotFound},
		"the caller is gone":         {gone, func(*Config, []Op) {}, ""},
		"a path that is none":        {t.Context(), func(_ *Config, ops []Op) { ops[1].After.Name = "a/b" }, errs.Invalid},
		"no directory":               {t.Context(), func(c *Config, _ []Op) { c.Dir += "/none" }, ""},
		"a place that is not ours":   {t.Context(), func(c *Config, _ []Op) { c.Staging += "/none/x" }, ""},
		"a journal in no directory":  {t.Context(), func(c *Config, _ []Op) { c.Journal += "/none" }, ""},
		"a content that is too long": {t.Context(), func(_ *Config, ops []Op) { ops[1].After.Size = 0 }, errs.Corrupt},
	} {
		store := newStore(t)
		ops, _, err := Plan(t.Context(), store, put(t, store, now), put(t, store, target), Filter{})
		must(t, err)
		c := place(t, now)
		was := c
		x.spoil(&c, ops)
		_, begun, err := Run(x.ctx, c, store, ops)
		if begun || err == nil || x.says != "" && !errs.Is(err, x.says) {
			t.Errorf("%s: %v, %v", name, begun, err)
		}
		if d := cmp.Diff(now, there(t, was.Dir)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		isClean(t, was)
		if r, err := Recover(was); r != nil || err != nil {
			t.Errorf("%s: then %+v, %v", name, r, err)
		}
	}
}

// The attributes of a file are those that the history has, but for those that are not the
// user's; its holes stay holes.
func TestRun_attributes(t *testing.T) {
	store := newStore(t)
	blob, err := store.Put(object.Blob, []byte("12345"))
	must(t, err)
	list, err := tree.EncodeList([]tree.Chunk{{Offset: 1 << 20, Length: 5, Hash: blob}})
	must(t, err)
	listed, err := store.Put(object.List, list)
	must(t, err)
	c := place(t, files{"a": "12345"})
	a := filepath.Join(c.Dir, "a")
	if err := unix.Setxattr(a, "user.old", []byte("1"), 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("skipped: the file system has no attributes of the user's")
	}
	now, _ := entryOf("a", "12345")
	now.Hash = blob
	after := now
	after.Mode, after.Xattrs = 0o4711, []tree.Xattr{{Name: "user.more", Value: "3"}, {Name: "user.new", Value: "2"}}
	theirs := unix.Setxattr(a, "trusted.theirs", []byte("1"), 0) == nil // root alone may
	hole := now
	hole.Name, hole.Size, hole.Listed, hole.Hash, hole.Xattrs = "h", 1<<30, true, listed, after.Xattrs
	result, _, err := Run(t.Context(), c, store, []Op{{Action: Attrs, Path: []byte("a"), Before: now, After: after}, {Action: Write, Path: []byte("h"), After: hole}})
	if must(t, err); len(result.Kept) > 0 {
		t.Fatalf("%+v", result)
	}
	for _, name := range []string{"a", "h"} {
		buf := make([]byte, 100)
		n, err := unix.Getxattr(filepath.Join(c.Dir, name), "user.new", buf)
		if err != nil || string(buf[:n]) != "2" {
			t.Errorf("%s has %q, %v", name, buf[:max(n, 0)], err)
		}
	}
	if _, err := unix.Getxattr(a, "trusted.theirs", nil); theirs && err != nil {
		t.Errorf("an attribute that is not the user's: %v", err)
	}
	f, err := os.Open(filepath.Join(c.Dir, "h"))
	must(t, err)
	defer f.Close()
	data := make([]byte, 5)
	if _, err := f.ReadAt(data, 1<<20); err != nil || string(data) != "12345" {
		t.Errorf("behind the hole there is %q, %v", data, err)
	}
	if _, err := unix.Getxattr(a, "user.old", nil); !errors.Is(err, unix.ENODATA) {
		t.Errorf("an attribute that the history has not: %v", err)
	}
	var st unix.Stat_t
	must(t, unix.Stat(a, &st))
	if st.Mode&0o7777 != 0o4711 {
		t.Errorf("the mode is %o", st.Mode)
	}
	must(t, unix.Stat(filepath.Join(c.Dir, "h"), &st))
	if st.Size != 1<<30 || st.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes, %d on disk", st.Size, st.Blocks*512)
	}
}

// Of a file with holes only what is none counts, in whole blocks.
func TestDataBytes(t *testing.T) {
	store := newStore(t)
	list, err := tree.EncodeList([]tree.Chunk{{Length: 1}, {Offset: 1 << 30, Length: 4096}, {Offset: 1 << 31, Length: 4097}})
	must(t, err)
	h, err := store.Put(object.List, list)
	must(t, err)
	for e, want := range map[*tree.Entry]int64{{Size: 0}: 0, {Size: 1}: 4096, {Size: 4096}: 4096, {Size: 4097}: 8192, {Size: 1 << 40, Listed: true, Hash: h}: 4 * 4096} {
		if n, err := dataBytes(store, *e); n != want || err != nil {
			t.Errorf("%+v: %d, %v, not %d", e, n, err, want)
		}
	}
}

// A path is cut between two names, and nothing of it is lost.
func TestCutPath(t *testing.T) {
	for _, name := range []int{1, 7, 250} {
		for n := range 40 {
			dir := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", name)+"/", n*pathStep/10/name), "/")
			var parts []string
			for rest := dir; rest != ""; {
				var part string
				if part, rest = cutPath(rest); part == "" || len(part) > pathStep {
					t.Fatalf("%d of %d: a part of %d", n, name, len(part))
				}
				parts = append(parts, part)
			}
			if strings.Join(parts, "/") != dir {
				t.Errorf("%d of %d: %d parts", n, name, len(parts))
			}
		}
	}
	if part, rest := cutPath(""); part != "." || rest != "" {
		t.Errorf("%q, %q", part, rest)
	}
}

// What is in a repository comes back, or does not.
func TestRepository_returns(t *testing.T) {
	object38 := strings.Repeat("a", 38)
	for rel, want := range map[string]struct{ whole, part bool }{
		"index": {true, true}, "sharedindex.1": {true, true}, "config": {true, true}, "packed-refs": {true, true}, "HEAD": {true, false}, "MERGE_HEAD": {true, false}, "x/index": {true, false},
		"index.lock": {}, "refs/heads/a.lock": {}, "objects/ab/" + object38 + ".lock": {},
		"refs/heads/a": {true, true}, "refs/tags/a": {true, true}, "refs/notes/a": {true, false}, "refs/heads/packed": {}, "refs/tags/packed": {}, "refs/notes/packed": {},
		"objects/pack/pack-1.pack": {true, true}, "objects/pack/tmp_1": {true, false}, "objects/ab/" + object38: {true, true}, "objects/ab/" + object38[1:]: {true, false}, "objects/abc/" + object38: {true, false},
		"objects/info/alternates": {true, true}, "objects/info/packs": {true, false}, "info/alternates": {true, false}, "ab/" + object38: {true, false},
	} {
		r := repository{packed: []string{"refs/heads/packed", "refs/notes/packed", "refs/tags/packed"}}
		part := r.returns(rel)
		r.whole = true
		if whole := r.returns(rel); part != want.part || whole != want.whole {
			t.Errorf("%s: %v, and %v where all does", rel, part, whole)
		}
	}
}

// What a plan leaves is counted on, and listed to a bound.
func TestLeave(t *testing.T) {
	var p planner
	for range leftMax + 5 {
		p.leave("a", whyGit)
	}
	if len(p.left) != leftMax || p.leaves != leftMax+5 {
		t.Errorf("%d of %d", len(p.left), p.leaves)
	}
}

// What is of other owners is theirs again.
func TestRun_owners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root gives files to others")
	}
	store := newStore(t)
	blob, err := store.Put(object.Blob, []byte("1"))
	must(t, err)
	c := place(t, files{"f2": "1", "g2": "1", "l2": "->x", "p2": "|", "u2": "1"})
	var ops []Op
	for _, p := range []string{"d1", "f1", "g1", "l1", "p1", "u1", "f2", "g2", "l2", "p2", "u2"} {
		what := map[byte]string{'d': "/", 'f': "1", 'g': "1", 'l': "->x", 'p': "|", 'u': "1"}[p[0]]
		before, _ := entryOf(p, what)
		before.Hash = object.Hash{}
		if before.Type == tree.File {
			before.Hash = blob
		}
		o := Op{Action: Write, Path: []byte(p), After: before}
		o.After.UID, o.After.GID = 1234, 1235
		switch p[0] {
		case 'f':
			o.After.Mode = 0o4711 // which a change of owner drops
		case 'g':
			o.After.UID = before.UID
		case 'u':
			o.After.GID = before.GID
		}
		switch {
		case p[1] == '2':
			o.Action, o.Before = Attrs, before
		case p[0] == 'd':
			o.Action = Mkdir
		}
		ops = append(ops, o)
	}
	for again := range 2 { // what is done is found done
		result, err := c.again(t, store, ops)
		if must(t, err); again == 0 && len(result.Kept) > 0 {
			t.Fatalf("%+v", result)
		}
		for _, o := range ops {
			var st unix.Stat_t
			must(t, unix.Lstat(filepath.Join(c.Dir, string(o.Path)), &st))
			if st.Uid != o.After.UID || st.Gid != o.After.GID || st.Mode&0o7777 != o.After.Mode {
				t.Errorf("%s is of %d and %d, with the mode %o", o.Path, st.Uid, st.Gid, st.Mode)
			}
		}
	}
	must(t, unix.Lchown(filepath.Join(c.Dir, "l1"), 1234, 0))
	must(t, unix.Lchown(filepath.Join(c.Dir, "p1"), 0, 1235))
	for i := range ops {
		ops[i].Before = ops[i].After
	}
	_, err = c.again(t, store, ops)
	must(t, err)
	for _, p := range []string{"l1", "p1"} {
		var st unix.Stat_t
		if must(t, unix.Lstat(filepath.Join(c.Dir, p), &st)); st.Uid != 1234 || st.Gid != 1235 {
			t.Errorf("%s is of %d and %d, of others since", p, st.Uid, st.Gid)
		}
	}
}

// again is a Run that is done.
func (c Config) again(t testing.TB, store *object.Store, ops []Op) (Result, error) {
	result, _, err := Run(t.Context(), c, store, ops)
	return result, errors.Join(err, Done(c))
}

// The flags by which a file stops even root are no obstacle.
func TestRun_fixed(t *testing.T) {
	store := newStore(t)
	now, target := files{"d/a": "1", "d/b": "1", "e": "/"}, files{"d/a": "2", "e": "700 /", "z": "1"}
	c := place(t, now)
	for _, p := range []string{"d/a", "d/b", "d", "e"} {
		f, err := os.Open(filepath.Join(c.Dir, p))
		must(t, err)
		flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err == nil {
			err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|0x10))
		}
		f.Close()
		if err != nil {
			t.Skip("skipped: no file can be made immutable here: ", err)
		}
		t.Cleanup(func() {
			if f, err := os.Open(filepath.Join(c.Dir, p)); err == nil {
				unfix(int(f.Fd()))
				f.Close()
			}
		})
	}
	ops, _, err := Plan(t.Context(), store, put(t, store, now), put(t, store, target), Filter{})
	must(t, err)
	open := descriptors(t)
	if result, err := c.again(t, store, ops); err != nil || len(result.Kept) > 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if now := descriptors(t); now != open {
		t.Errorf("%d descriptors are open, and were %d", now, open)
	}
	if d := cmp.Diff(target.with(), there(t, c.Dir)); d != "" {
		t.Error(d)
	}
}

// A path may be longer than a system call takes, and no descriptor stays open.
func TestRun_deep(t *testing.T) {
	store := newStore(t)
	deep := strings.Repeat(strings.Repeat("d", 250)+"/", 40) + "a"
	nothing, all := put(t, store, files{"z": "1"}), put(t, store, files{"z": "1", deep: "1", "l": "->x"})
	c := place(t, files{"z": "1"})
	open := descriptors(t)
	for _, x := range [][2]object.Hash{{nothing, all}, {all, nothing}} {
		ops, _, err := Plan(t.Context(), store, x[0], x[1], Filter{})
		must(t, err)
		if result, err := c.again(t, store, ops); err != nil || len(result.Kept) > 0 {
			t.Fatalf("%.200v, %v", result, err)
		}
	}
	if d := cmp.Diff(files{"z": "1"}, there(t, c.Dir)); d != "" {
		t.Error(d)
	}
	if now := descriptors(t); now != open {
		t.Errorf("%d descriptors are open, and were %d", now, open)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(all)
}

// To set a mode needs no content, and no room for one.
func TestRun_modesNeedNoContent(t *testing.T) {
	c := place(t, files{"a": "1"})
	e, _ := entryOf("a", "755 1")
	e.Size, e.Hash = 1<<50, object.Hash{1}
	if result, err := c.again(t, newStore(t), []Op{{Action: Attrs, Path: []byte("a"), Before: e, After: e}}); err != nil || len(result.Kept) > 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

// A path that is none is refused, though no plan has it.
func TestRun_noPath(t *testing.T) {
	c := place(t, files{"a/b": "1"})
	for _, p := range []string{"a/..", "..", "", "a/"} {
		if err := (&executor{c: c, root: unix.AT_FDCWD}).do(0, Op{Action: Remove, Path: []byte(p)}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// A plan that parts of the history are missing for is none.
func TestPlan_missing(t *testing.T) {
	store := newStore(t)
	lost := func(path string, here files) object.Hash {
		h := object.Hash{1}
		names := strings.Split(path, "/")
		for i, name := range slices.Backward(names) {
			e, _ := entryOf(name, "/")
			e.Hash = h
			entries := []tree.Entry{e}
			if i == len(names)-1 && here != nil {
				for _, name := range slices.Sorted(maps.Keys(here)) { // behind the lost one
					f, _ := entryOf(name, "|")
					entries = append(entries, f)
				}
			}
			data, err := tree.Encode(entries)
			must(t, err)
			h, err = store.Put(object.Tree, data)
			must(t, err)
		}
		return h
	}
	nothing, there := put(t, store, files{"x": "1"}), put(t, store, files{"d/e": "1", ".git/objects": "/", ".git/modules/m/x": "1"})
	for name, x := range map[string][2]object.Hash{
		"now": {{1}, nothing}, "the target": {nothing, {1}}, "beneath, that goes": {lost("d/e", nil), nothing}, "beneath, that comes": {nothing, lost("d/e", nil)}, "beneath, that differs": {there, lost("d", nil)},
		"a repository": {there, lost(".git", nil)}, "a repository that was": {lost(".git", nil), there}, "a repository that comes": {nothing, lost(".git", nil)},
		"in a repository": {there, lost(".git/objects", nil)}, "in one that was": {lost(".git/objects", nil), there}, "in one that comes": {nothing, lost(".git/a", files{"b": ""})},
		"in a module": {there, lost(".git/modules/m", nil)},
	} {
		if ops, _, err := Plan(t.Context(), store, x[0], x[1], Filter{}); err == nil {
			t.Errorf("%s: %d operations", name, len(ops))
		}
		if moves, err := Moves(t.Context(), store, x[0], x[1]); err == nil && !moves {
			t.Errorf("%s: there are no operations", name)
		}
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	for _, to := range []object.Hash{nothing, put(t, store, files{".git/x": "1"})} {
		if _, _, err := Plan(gone, store, there, to, Filter{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}

// A part that is beneath a file touches nothing else.
func TestPlan_beneathAFile(t *testing.T) {
	store := newStore(t)
	ops, left, err := Plan(t.Context(), store, put(t, store, files{"d": "1"}), put(t, store, files{"d/a": "1", "d/b": "1"}), Filter{Path: "d/a"})
	if must(t, err); len(ops) != 1 || string(ops[0].Path) != "d/a" || len(left) > 0 {
		t.Errorf("%+v, %+v", ops, left)
	}
}

// A journal that is damaged, and a directory that is gone, end a recovery, and not for good.
func TestRecover_cannot(t *testing.T) {
	store := newStore(t)
	now, target := files{"a": "1"}, files{"a": "2"}
	ops, _, err := Plan(t.Context(), store, put(t, store, now), put(t, store, target), Filter{})
	must(t, err)
	c := place(t, now)
	dies(c, "staged", func(c Config) { _, _, _ = Run(t.Context(), c, store, ops) })
	good, err := os.ReadFile(c.Journal)
	must(t, err)
	must(t, os.WriteFile(c.Journal, good[1:], 0o600))
	if r, err := Recover(c); r != nil || !errs.Is(err, errs.Corrupt) {
		t.Errorf("a damaged journal: %+v, %v", r, err)
	}
	if _, _, err := Pending(c); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a damaged journal is pending: %v", err)
	}
	must(t, os.WriteFile(c.Journal, good, 0o600))
	must(t, os.Rename(c.Dir, c.Dir+".away"))
	if r, err := Recover(c); r != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %+v, %v", r, err)
	}
	must(t, os.Rename(c.Dir+".away", c.Dir))
	if r, err := Recover(c); r == nil || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if d := cmp.Diff(target, there(t, c.Dir)); d != "" {
		t.Error(d)
	}
}

// A disk that is full is the caller's to know.
func TestFull(t *testing.T) {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT} {
		if err := full(fmt.Errorf("write: %w", e)); !errs.Is(err, errs.Limit) {
			t.Errorf("%v: %v", e, err)
		}
	}
	if err := full(unix.EIO); !errors.Is(err, unix.EIO) || errs.Is(err, errs.Limit) {
		t.Errorf("%v", err)
	}
}

// A list of what is packed that is no plain file, or is lost, is not read, and known not to be.
func TestRepository_readPacked(t *testing.T) {
	store := newStore(t)
	const text = "1 refs/heads/a\n"
	blob, err := store.Put(object.Blob, []byte(text))
	must(t, err)
	for name, x := range map[string]struct {
		e    tree.Entry
		want bool
	}{
		"a file": {tree.Entry{Type: tree.File, Size: int64(len(text)), Hash: blob}, true}, "a link": {tree.Entry{Type: tree.Link, Size: int64(len(text)), Hash: blob}, false},
		"parts": {tree.Entry{Type: tree.File, Listed: true, Size: int64(len(text)), Hash: blob}, false}, "lost": {tree.Entry{Type: tree.File, Size: 1, Hash: object.Hash{1}}, false},
	} {
		r := repository{planner: &planner{store: store}}
		if r.readPacked(x.e); r.unreadable == x.want || (len(r.packed) == 1) != x.want {
			t.Errorf("%s: %+v, %v", name, r.packed, r.unreadable)
		}
	}
}
