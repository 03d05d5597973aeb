package apt

import (
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// readFile reads a regular file of bounded size.
func readFile(r *os.Root, name string) ([]byte, error) {
	return readUpTo(r, name, fileBytesMax)
}

func readUpTo(r *os.Root, name string, bytesMax int64) ([]byte, error) {
	info, err := r.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fs.ErrInvalid // a fifo would hold us for ever
	}
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, bytesMax+1))
	if err == nil && int64(len(data)) > bytesMax {
		err = errs.New(errs.Limit, "%s has more than %d bytes", name, bytesMax)
	}
	return data, err
}

func readNames(r *os.Root, dir string) []string {
	f, err := r.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, _ := f.ReadDir(4 * filesMax)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names[:min(len(names), filesMax)]
}

// Release names a system's distribution ("debian", "ubuntu") and suite
// ("bookworm"), as its os-release says; both are "" where it does not say.
func Release(root string) (id, suite string) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return "", ""
	}
	defer r.Close()
	return release(r)
}

func release(r *os.Root) (id, suite string) {
	data, err := readFile(r, "etc/os-release")
	if err != nil {
		if data, err = readFile(r, "usr/lib/os-release"); err != nil {
			return "", ""
		}
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		if !suiteForm().MatchString(value) || len(value) > textBytesMax {
			continue
		}
		switch key {
		case "ID":
			id = value
		case "VERSION_CODENAME":
			suite = value
		}
	}
	return id, suite
}
