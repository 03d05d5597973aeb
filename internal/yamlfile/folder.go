package yamlfile

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Folder visits the definitions in a folder: its *.yaml, *.yml and *.md files,
// but README.md and names that begin with "." or "_". A file that cannot be
// read is visited with its error. what names the things for people ("agents").
// Invalid: the folder cannot be read (errors.Is fs.ErrNotExist when it is not
// there), or has more than filesMax.
func Folder(fsys fs.FS, dir, what string, filesMax, bytesMax int, visit func(name string, data []byte, err error)) error {
	files, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "cannot read the folder of %s", what)
	}
	count := 0
	for _, f := range files {
		if f.IsDir() || !isDefinition(f.Name()) {
			continue
		}
		if count++; count > filesMax {
			return errs.New(errs.Invalid, "more than %d %s in one folder", filesMax, what)
		}
		data, err := readFile(fsys, path.Join(dir, f.Name()), bytesMax)
		if err != nil {
			err = errs.Wrap(errs.Invalid, err, "%s: cannot be read", f.Name())
		}
		visit(f.Name(), data, err)
	}
	return nil
}

func isDefinition(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || strings.EqualFold(name, "README.md") {
		return false
	}
	return slices.Contains([]string{".yaml", ".yml", ".md"}, strings.ToLower(path.Ext(name)))
}

// readFile returns one byte more than bytesMax of a file that is too long, so
// that its parser refuses it.
func readFile(fsys fs.FS, name string, bytesMax int) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(bytesMax)+1))
}
