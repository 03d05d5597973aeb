package escape

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/process"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Where nothing isolates, attacks succeed: a list that could not fail would
// prove nothing. Those that would harm the host are left out.
func TestAttacksSucceedWhereNothingIsolates(t *testing.T) {
	p, err := process.New(process.Config{Dir: t.TempDir(), Allow: true})
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	workspace := filepath.Join(t.TempDir(), "workspace")
	must(t, os.Mkdir(workspace, 0o755))
	w := World{
		Boot: func(t *testing.T) sandbox.Boot {
			return sandbox.Boot{ID: sandbox.NewID(), Rootfs: sandboxtest.Rootfs(t), Workspace: workspace, Guest: guesttest.Binary(t), Spec: sandbox.Spec{PidsMax: 64, Workdir: sandbox.WorkspaceDir}}
		},
		Create: func(t *testing.T, b sandbox.Boot) sandbox.Machine {
			m, err := p.Create(t.Context(), b)
			must(t, err)
			t.Cleanup(func() { must(t, m.Destroy(context.Background())) })
			return m
		},
	}
	loot := newPrize(t)
	g := w.machine(t, false)
	open := 0
	for _, a := range ofEveryone(loot) {
		if !a.Open {
			continue
		}
		open++
		if err := try(t.Context(), g, "", loot, a); !errors.Is(err, errTaken) && !errors.Is(err, errSucceeded) {
			t.Errorf("%s: %q does not succeed: %v", a.Name, a.Line, err)
		}
	}
	// The search of disks finds what is there.
	found := Attack{Line: "./tool search " + loot.token[:12] + " /no/such " + loot.file}
	if err := try(t.Context(), g, "", loot, found); !errors.Is(err, errSucceeded) {
		t.Errorf("the search of a file that has it: %v", err)
	}
	found.Line = "./tool search no-such-text " + loot.file
	if err := try(t.Context(), g, "", loot, found); err != nil {
		t.Errorf("the search of a file that does not have it: %v", err)
	}
	if open < 10 {
		t.Errorf("%d attacks were tried", open)
	}
}

func TestJudge(t *testing.T) {
	loot := prize{token: "prize-x"}
	for _, c := range []struct {
		name string
		a    Attack
		res  sandboxtest.Result
		want error
	}{
		{"it fails", Attack{}, sandboxtest.Result{Code: 1, Stdout: "x"}, nil},
		{"it succeeds", Attack{}, sandboxtest.Result{}, errSucceeded},
		{"it fails with the prize", Attack{}, sandboxtest.Result{Code: 1, Stdout: "a prize-x"}, errTaken},
		{"it may succeed", Attack{Free: true}, sandboxtest.Result{}, nil},
		{"it may succeed, without the prize", Attack{Free: true}, sandboxtest.Result{Stdout: "prize-x"}, errTaken},
		{"what must not be said", Attack{Free: true, Never: "0"}, sandboxtest.Result{Stderr: "a 0"}, errSaid},
		{"something else is said", Attack{Free: true, Want: "lo\n"}, sandboxtest.Result{Stdout: "lo\neth0\n"}, errSaid},
		{"what is wanted is said", Attack{Free: true, Want: "lo\n"}, sandboxtest.Result{Stdout: "lo\n"}, nil},
	} {
		if got := c.a.judge(loot, c.res); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
