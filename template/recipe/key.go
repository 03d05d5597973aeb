package recipe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// form is a part of every key: it changes when the same step makes another tree.
const form = "skete-step-1"

// copiedTime is the time of files that a recipe copies, so that the same files
// are the same tree.
var copiedTime = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// Kinds of steps.
type kind string

const (
	kindPackages kind = "packages"
	kindFiles    kind = "files"
	kindRun      kind = "run"
	kindFinish   kind = "settings"
)

// step is one step of a build.
type step struct {
	kind  kind
	text  string // for people, one line
	place string // in the recipe
	run   string // of kindRun
	key   string // names the tree that it makes
}

// plan lists the steps of a recipe with their keys, from the tree's hash on.
func (f *Folder) plan(ctx context.Context, base string) ([]step, error) {
	r := f.Recipe
	var steps []step
	key := base
	add := func(s step, write func(hash.Hash) error) error {
		h := sha256.New()
		fmt.Fprintf(h, "%s\n%s\n%s\n", form, key, s.kind)
		if err := write(h); err != nil {
			return err
		}
		key = hex.EncodeToString(h.Sum(nil))
		s.key = key
		steps = append(steps, s)
		return nil
	}
	if len(r.Packages) > 0 {
		names := slices.Compact(slices.Sorted(slices.Values(r.Packages)))
		err := add(step{kind: kindPackages, text: "packages " + strings.Join(names, " "), place: r.Place("packages")}, func(h hash.Hash) error {
			return put(h, names...)
		})
		if err != nil {
			return nil, err
		}
	}
	if len(r.Files) > 0 {
		if err := add(step{kind: kindFiles, text: filesText(r.Files), place: r.Place("files")}, func(h hash.Hash) error { return f.hashFiles(ctx, h) }); err != nil {
			return nil, err
		}
	}
	for i, text := range r.Run {
		s := step{kind: kindRun, text: oneLine(text), place: r.Place(fmt.Sprintf("run[%d]", i)), run: text}
		if err := add(s, func(h hash.Hash) error {
			if r.Network == NetworkDefault {
				_ = put(h, "network", r.Network)
			}
			return put(h, append(pairs(r.Env), strings.TrimSpace(text))...)
		}); err != nil {
			return nil, err
		}
	}
	if s, ok := r.settings(); ok {
		err := add(step{kind: kindFinish, text: "settings", place: r.Place("")}, func(h hash.Hash) error {
			return put(h, string(s.encode()), r.ReadyTimeout.String())
		})
		if err != nil {
			return nil, err
		}
	}
	return steps, nil
}

func filesText(files []File) string {
	if len(files) == 1 {
		return "copy " + files[0].From + " to " + files[0].To
	}
	return fmt.Sprintf("copy %s and %d more", files[0].From, len(files)-1)
}

func oneLine(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if rest != "" || len(line) > 100 {
		return line[:min(len(line), 100)] + " …"
	}
	return line
}

// put writes texts so that no two lists are written alike.
func put(h hash.Hash, texts ...string) error {
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s\n", len(t), t)
	}
	return nil
}

func pairs(env map[string]string) []string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

func (f *Folder) hashFiles(ctx context.Context, h hash.Hash) error {
	for _, x := range f.Recipe.Files {
		if err := put(h, "file", x.To, x.Owner); err != nil {
			return err
		}
		err := walk(ctx, f.root, x.From, func(e entry) error {
			_ = put(h, e.rel, strconv.FormatUint(uint64(e.mode(x.mode())|e.info.Mode().Type()), 8))
			return e.hash(f.root, h)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (x File) mode() fs.FileMode {
	m, _ := strconv.ParseUint(x.Mode, 8, 16) // checked when it was read
	return fs.FileMode(m)
}

func (e entry) hash(root *os.Root, h hash.Hash) error {
	switch {
	case e.info.IsDir():
		return nil
	case e.info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(e.path)
		_ = put(h, target)
		return err
	}
	in, err := root.Open(e.path)
	if err != nil {
		return err
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return err
	}
	return put(h, hex.EncodeToString(sum.Sum(nil)))
}
