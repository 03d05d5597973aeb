package binary_test

import (
	"debug/elf"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/binary"
)

// The programs come out whole, also the one that is packed against the other.
func TestInstall(t *testing.T) {
	for name, install := range map[string]func(string) (string, error){"guest": binary.Install, "agent": binary.Agent} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, err := install(dir)
			if errs.Is(err, errs.Unsupported) {
				t.Skip("skipped: no `make build` has put the programs into the tree")
			}
			if err != nil {
				t.Fatal(err)
			}
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Type != elf.ET_EXEC || f.Section(".text") == nil {
				t.Errorf("%s is no program: %v", path, f.FileHeader)
			}
			if again, err := install(dir); again != path || err != nil {
				t.Errorf("the second time it is %s, %v", again, err)
			}
		})
	}
}
