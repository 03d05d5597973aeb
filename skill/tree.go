package skill

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
)

// Bounds of a skill.
const (
	FileBytesMax = 10 << 20 // of one file
	TreeBytesMax = 16 << 20 // of all
	FilesMax     = 1000
	pathBytesMax = 240
	depthMax     = 12
	// File is what makes a folder a skill.
	File = "SKILL.md"
)

// Tree is a folder: its files by path, sorted. Folder is its name, "" = not known.
type Tree struct {
	Folder string
	Files  []Entry
}

// Entry is a file of a Tree.
type Entry struct {
	Path       string // relative, clean
	Executable bool
	Content    []byte
}

// Version is the hash of all that the tree holds; the folder's own name is no part of it.
func (t Tree) Version() string {
	h := sha256.New()
	for _, f := range t.Files {
		fmt.Fprintf(h, "%q %t %x\n", f.Path, f.Executable, sha256.Sum256(f.Content))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Bytes is the size of all files.
func (t Tree) Bytes() (sum int64) {
	for _, f := range t.Files {
		sum += int64(len(f.Content))
	}
	return sum
}

// File returns the content of a file.
func (t Tree) File(name string) ([]byte, bool) {
	for _, f := range t.Files {
		if f.Path == name {
			return f.Content, true
		}
	}
	return nil, false
}

// Paths lists the files.
func (t Tree) Paths() []string {
	paths := make([]string, len(t.Files))
	for i, f := range t.Files {
		paths[i] = f.Path
	}
	return paths
}

// Tar is the tree as an archive: the same tree is the same bytes. Nothing in it may be
// written by its owner, not even by root unless root means to. SKILL.md is the last file:
// where it is, the others are.
func (t Tree) Tar() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	stamp := time.Unix(0, 0)
	made := map[string]bool{}
	files := slices.Clone(t.Files)
	if i := slices.IndexFunc(files, func(f Entry) bool { return f.Path == File }); i >= 0 {
		files = append(slices.Delete(files, i, i+1), t.Files[i])
	}
	for _, f := range files {
		for _, dir := range parents(f.Path) {
			if !made[dir] {
				made[dir] = true
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o555, ModTime: stamp, Format: tar.FormatPAX}); err != nil {
					return nil, err
				}
			}
		}
		mode := int64(0o444)
		if f.Executable {
			mode = 0o555
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: mode, Size: int64(len(f.Content)), ModTime: stamp, Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// parents are the directories above a file, the outermost first.
func parents(name string) []string {
	var dirs []string
	for i, c := range name {
		if c == '/' {
			dirs = append(dirs, name[:i])
		}
	}
	return dirs
}

// builder collects a Tree within its bounds.
type builder struct {
	files map[string]Entry
	dirs  map[string]bool // that files lie in
	bytes int64
}

func newBuilder() *builder { return &builder{files: map[string]Entry{}, dirs: map[string]bool{}} }

// room says how much the next file may have.
func (b *builder) room() int64 { return min(FileBytesMax, TreeBytesMax-b.bytes) }

// add takes in a file. Its content is not larger than room said.
func (b *builder) add(name string, executable bool, content []byte) error {
	name, err := cleanPath(name)
	if err != nil {
		return err
	}
	if _, twice := b.files[name]; twice || b.dirs[name] {
		return errs.New(errs.Invalid, "%s: it is there twice", quoted(name))
	}
	for _, dir := range parents(name) {
		if _, file := b.files[dir]; file {
			return errs.New(errs.Invalid, "%s: it is a file and a folder", quoted(dir))
		}
		b.dirs[dir] = true
	}
	if len(b.files) == FilesMax {
		return errs.New(errs.Limit, "a skill has at most %d files", FilesMax).WithHint("keep data that is fetched or made out of the folder")
	}
	b.bytes += int64(len(content))
	b.files[name] = Entry{Path: name, Executable: executable || bytes.HasPrefix(content, []byte("#!")), Content: content}
	return nil
}

// tooLarge says that a file is over its bound, or all of them are.
func (b *builder) tooLarge(name string) error {
	if b.room() < FileBytesMax {
		return errs.New(errs.Limit, "%s: all files together are larger than %d MiB", quoted(name), TreeBytesMax>>20)
	}
	return errs.New(errs.Limit, "%s: larger than %d MiB", quoted(name), FileBytesMax>>20).WithHint("let a script fetch or make it")
}

// trees are the skills that were collected, each in the folder that SKILL.md lies in.
// Files beside them are left out.
func (b *builder) trees(folder string) []Tree {
	var roots []string
	for name := range b.files {
		if path.Base(name) == File {
			roots = append(roots, path.Dir(name))
		}
	}
	slices.Sort(roots)
	var trees []Tree
	for i, root := range roots {
		if i > 0 && slices.ContainsFunc(roots[:i], func(above string) bool { return above == "." || strings.HasPrefix(root, above+"/") }) {
			continue // a part of another skill
		}
		trees = append(trees, b.tree(root, folder))
	}
	return trees
}

func (b *builder) tree(root, folder string) Tree {
	t := Tree{Folder: folder}
	prefix := ""
	if root != "." {
		t.Folder, prefix = path.Base(root), root+"/"
	}
	for name, f := range b.files {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			f.Path = rest
			t.Files = append(t.Files, f)
		}
	}
	slices.SortFunc(t.Files, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return t
}

// cleanPath checks the name of a file that others wrote.
func cleanPath(name string) (string, error) {
	bad := func(why string) (string, error) {
		return "", errs.New(errs.Invalid, "%s: the path %s", quoted(name), why)
	}
	parts := strings.Split(strings.TrimPrefix(name, "./"), "/")
	switch {
	case !utf8.ValidString(name):
		return bad("is no text")
	case len(name) > pathBytesMax:
		return bad(fmt.Sprintf("is longer than %d bytes", pathBytesMax))
	case len(parts) > depthMax:
		return bad(fmt.Sprintf("is deeper than %d folders", depthMax))
	case strings.HasPrefix(name, "/"):
		return bad("is absolute")
	case slices.Contains(parts, ".."):
		return bad("leaves the folder")
	case strings.ContainsFunc(name, unicode.IsControl) || strings.Contains(name, `\`):
		return bad("has characters that names should not have")
	}
	clean := path.Clean(name)
	if clean == "." || clean != strings.Join(parts, "/") {
		return bad("names no file")
	}
	return clean, nil
}

// quoted shows a path that others wrote.
func quoted(name string) string {
	if len(name) > 80 {
		name = name[:80]
	}
	plain := strings.IndexFunc(name, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) || r == ' ' }) < 0
	if plain && name != "" {
		return name
	}
	return fmt.Sprintf("%q", name)
}
