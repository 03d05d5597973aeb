package acp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// This file reads and writes the editor's directory. Names come from a sandbox too, which
// is hostile: each is opened beneath the directory, and nothing goes through a link.

// Bounds of what is copied.
const (
	filesMax     = 20_000
	bytesMax     = 128 << 20
	fileBytesMax = 32 << 20
)

// found is a file of the directory.
type found struct {
	size, mtime int64
	exec        bool
}

// scanDir lists the files of a directory that git would not ignore. Links are left out.
func scanDir(root *os.Root) (map[string]found, error) {
	all, total := map[string]found{}, int64(0)
	ignored := newIgnores(root)
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if name == "." {
				return err
			}
			return fs.SkipDir // what may not be read is not copied
		}
		if name == "." {
			return nil
		}
		if ignored.entry(name, d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return nil // gone, a directory, or nothing to copy
		}
		all[name] = found{info.Size(), info.ModTime().UnixNano(), info.Mode()&0o100 != 0}
		total += info.Size()
		if len(all) > filesMax || total > bytesMax || info.Size() > fileBytesMax {
			return errTooMuch(name, info.Size())
		}
		return nil
	})
	return all, err
}

func errTooMuch(name string, size int64) error {
	e := errs.New(errs.Limit, "the directory has more than %d files or %d MB", filesMax, bytesMax>>20)
	if size > fileBytesMax {
		e = errs.New(errs.Limit, "%s has %d MB, more than %d", name, size>>20, fileBytesMax>>20)
	}
	return e.WithHint("what .gitignore names is left out; open a smaller directory, or start skete acp with --no-files")
}

// hostile says why a path that a sandbox names is not used; "" = it is.
func hostile(name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, "\x00\\") || !filepath.IsLocal(name) || path.Clean(name) != name:
		return "it leaves the directory"
	case len(name) > 4096:
		return "it is too long"
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, ".git") {
			return "it is git's"
		}
	}
	return ""
}

// errLink: there is a link, or something else that is no file or directory, in the way.
var errLink = errs.New(errs.Denied, "a link, a device or a directory stands in the way")

// plainFile reports whether name is a file, or nothing, in directories that are no links.
func plainFile(root *os.Root, name string) (info fs.FileInfo, err error) {
	parts := strings.Split(name, "/")
	for i := 1; i <= len(parts); i++ {
		info, err = root.Lstat(strings.Join(parts[:i], "/"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil:
			return nil, err
		case i < len(parts) && !info.IsDir(), i == len(parts) && !info.Mode().IsRegular():
			return nil, errLink
		}
	}
	return info, nil
}

// readFile returns a file's content; nil: there is none.
func readFile(root *os.Root, name string) ([]byte, error) {
	info, err := plainFile(root, name)
	if err != nil || info == nil {
		return nil, err
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err == nil && len(data) > fileBytesMax {
		return nil, errTooMuch(name, int64(len(data)))
	}
	if data == nil {
		data = []byte{}
	}
	return data, err
}

// writeFile puts a file in place whole.
func writeFile(root *os.Root, name string, data []byte, exec bool) error {
	info, err := plainFile(root, name)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	switch {
	case info != nil:
		mode = info.Mode().Perm()
	case exec:
		mode = 0o755
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	temp := path.Join(path.Dir(name), fmt.Sprintf(".skete-%s", rand.Text()))
	if err := root.WriteFile(temp, data, mode); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	if err := root.Rename(temp, name); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return nil
}

// removeFile removes a file; one that is not there is no error.
func removeFile(root *os.Root, name string) error {
	info, err := plainFile(root, name)
	if err != nil || info == nil {
		return err
	}
	return root.Remove(name)
}
