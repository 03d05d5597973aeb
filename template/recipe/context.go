package recipe

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/untar"
	"github.com/skete-dev/skete/internal/yamlfile"
)

// Bounds of the files that a recipe copies.
const (
	contextBytesMax   = 8 << 30
	contextEntriesMax = 200_000
)

// Folder is a recipe with the directory that it stands in.
type Folder struct {
	Recipe Recipe
	text   []byte
	root   *os.Root
}

// Open reads the recipe at place: a file, or a directory that has one.
func Open(place string) (*Folder, error) {
	dir, name := place, FileName
	if info, err := os.Stat(place); err == nil && !info.IsDir() {
		dir, name = filepath.Split(place)
		if dir == "" {
			dir = "."
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "there is no directory %s", place)
	}
	f, err := read(root, name, path.Join(filepath.ToSlash(dir), name))
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return f, nil
}

func read(root *os.Root, name, shown string) (*Folder, error) {
	in, err := root.Open(name)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "there is no recipe %s", shown).WithHint("`skete help templates` says how to write one")
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, yamlfile.BytesMax+1))
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the recipe %s cannot be read", shown)
	}
	r, err := Parse(shown, text)
	if err != nil {
		return nil, err
	}
	f := &Folder{Recipe: r, text: text, root: root}
	for _, x := range r.Files {
		if _, err := root.Lstat(x.From); err != nil {
			return nil, errs.Wrap(errs.Invalid, err, "there is no %s beside %s", x.From, shown)
		}
	}
	return f, nil
}

// Close lets go of the directory.
func (f *Folder) Close() error { return f.root.Close() }

// Tar streams the recipe, as FileName, and what it copies. It must be closed.
func (f *Folder) Tar(ctx context.Context) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(f.pack(ctx, w)) }()
	return r
}

func (f *Folder) pack(ctx context.Context, w io.Writer) error {
	tw := tar.NewWriter(w)
	if err := tw.WriteHeader(&tar.Header{Name: FileName, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.text))}); err != nil {
		return err
	}
	if _, err := tw.Write(f.text); err != nil {
		return err
	}
	packed := map[string]bool{FileName: true}
	for _, x := range f.Recipe.Files {
		err := walk(ctx, f.root, x.From, func(e entry) error {
			if packed[e.path] {
				return nil
			}
			packed[e.path] = true
			return e.pack(f.root, tw, e.path, e.mode(0))
		})
		if err != nil {
			return err
		}
	}
	return tw.Close()
}

// Unpack reads what Tar wrote into an empty directory.
func Unpack(ctx context.Context, dir string, r io.Reader) (*Folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	_, err = untar.Unpack(ctx, root, r, untar.Options{BytesMax: contextBytesMax, EntriesMax: contextEntriesMax})
	if err == nil {
		_, err = io.Copy(io.Discard, r) // padding
	}
	var f *Folder
	if err == nil {
		f, err = read(root, FileName, FileName)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return f, nil
}

// entry is a file, directory or link of the context.
type entry struct {
	path string // beneath the context
	rel  string // beneath what was asked for; "." = that itself
	info fs.FileInfo
}

// walk visits a path and what is beneath it, in a fixed order. Links are not
// followed.
func walk(ctx context.Context, root *os.Root, from string, visit func(entry) error) error {
	count := 0
	return fs.WalkDir(root.FS(), from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return errs.Wrap(errs.Invalid, err, "%s cannot be read", p)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if count++; count > contextEntriesMax {
			return errs.New(errs.Limit, "%s has more than %d entries", from, contextEntriesMax)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(p, from), "/")
		if from == "." {
			rel = p
		}
		if rel == "" {
			rel = "."
		}
		switch info.Mode().Type() {
		case 0, fs.ModeDir, fs.ModeSymlink:
			return visit(entry{path: p, rel: rel, info: info})
		}
		return errs.New(errs.Invalid, "%s is neither a file nor a directory nor a link", p)
	})
}

// mode is what a file or directory gets inside. Of the one outside only
// whether it may be executed counts, so that the same files are the same
// template under whatever umask they were checked out.
func (e entry) mode(asked fs.FileMode) fs.FileMode {
	switch {
	case e.info.IsDir():
		return 0o755
	case asked != 0:
		return asked
	case e.info.Mode()&0o111 != 0:
		return 0o755
	}
	return 0o644
}

func (e entry) pack(root *os.Root, tw *tar.Writer, name string, mode fs.FileMode) error {
	h := &tar.Header{Name: name, Mode: int64(mode), ModTime: copiedTime}
	switch {
	case e.info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return tw.WriteHeader(h)
	case e.info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(e.path)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return tw.WriteHeader(h)
	}
	in, err := root.Open(e.path)
	if err != nil {
		return err
	}
	defer in.Close()
	h.Typeflag, h.Size = tar.TypeReg, e.info.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(in, h.Size))
	if err == nil && n < h.Size {
		err = errs.New(errs.Conflict, "%s became shorter while it was read", e.path)
	}
	return err
}
