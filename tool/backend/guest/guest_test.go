package guest_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend/guest"
	"github.com/skete-dev/skete/tool/tooltest"
	"github.com/skete-dev/skete/tool/tooltest/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFiles(t *testing.T) {
	m := machine.Start(t)
	n := 0
	tooltest.Files(t, tooltest.FilesOf{New: func(t *testing.T) (tool.Files, string) {
		n++
		dir := filepath.Join(m.Workdir, "w"+string(rune('a'+n)))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		return guest.NewFiles(m.Client), dir
	}})
}

func TestCommands(t *testing.T) {
	m := machine.Start(t)
	tooltest.Commands(t, func(*testing.T) tool.Commands { return guest.NewCommands(m.Client) })
}
