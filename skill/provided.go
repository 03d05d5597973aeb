package skill

import (
	"embed"
	"io/fs"
	"path"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// provided are the skills that skete brings along.
//
//go:embed all:provided
var provided embed.FS

// ProvidedNames lists the skills that come with the program.
func ProvidedNames() []string {
	entries, err := provided.ReadDir("provided")
	if err != nil {
		panic(err) // they are inside
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// Provided returns one of them. NotFound: there is none of that name.
func Provided(name string) (Tree, error) {
	root := path.Join("provided", name)
	if info, err := fs.Stat(provided, root); !NameOK(name) || err != nil || !info.IsDir() {
		return Tree{}, errs.New(errs.NotFound, "no skill %.64q comes with skete", name).
			WithHint("there are %s", strings.Join(ProvidedNames(), ", "))
	}
	b := newBuilder()
	err := fs.WalkDir(provided, root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := provided.ReadFile(at)
		if err != nil {
			return err
		}
		return b.add(strings.TrimPrefix(at, root+"/"), false, data) // scripts begin with #!
	})
	if err != nil {
		return Tree{}, err
	}
	return b.tree(".", name), nil
}
