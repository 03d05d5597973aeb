package guest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend/guest"
	"github.com/skete-dev/skete/tool/kit"
	"github.com/skete-dev/skete/tool/tooltest/machine"
)

func tools(t testing.TB, env tool.Env, names ...string) []tool.Planner {
	t.Helper()
	made, err := kit.New().Make(env, names)
	if err != nil {
		t.Fatal(err)
	}
	var planners []tool.Planner
	for _, tl := range made {
		planners = append(planners, tl.(tool.Planner))
	}
	return planners
}

// Two agents with a client each edit different parts of one file in one
// sandbox; neither knows of the other's locks.
func TestEdits_ofTwoThreadsAreNotLost(t *testing.T) {
	m := machine.Start(t)
	const edits = 50
	var before, after strings.Builder
	for i := range edits {
		fmt.Fprintf(&before, "slot %d: empty;\n", i)
		fmt.Fprintf(&after, "slot %d: done;\n", i)
	}
	file := filepath.Join(m.Workdir, "f")
	if _, err := guest.NewFiles(m.Client).Write(t.Context(), file, []byte(before.String()), ""); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range edits {
		edit := tools(t, tool.Env{Files: guest.NewFiles(m.Client)}, "edit_file")[0]
		wg.Go(func() {
			args, _ := json.Marshal(map[string]string{"file_path": file, "old_string": fmt.Sprintf("slot %d: empty;", i), "new_string": fmt.Sprintf("slot %d: done;", i)})
			req := tool.Request{Args: args}
			var err error
			if req.Plan, _, err = edit.Plan(t.Context(), req); err != nil {
				t.Errorf("edit %d: %v", i, err)
				return
			}
			if r, err := edit.Run(t.Context(), req); err != nil || r.Failed {
				t.Errorf("edit %d: %v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
	if got, _ := os.ReadFile(file); string(got) != after.String() {
		t.Errorf("edits were lost:\n%s", got)
	}
}

// What a link points to is edited, and the link stays.
func TestEdit_throughALink(t *testing.T) {
	m := machine.Start(t)
	files := guest.NewFiles(m.Client)
	file, link := filepath.Join(m.Workdir, "f"), filepath.Join(m.Workdir, "link")
	if _, err := files.Write(t.Context(), file, []byte("a"), ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	write := tools(t, tool.Env{Files: files}, "write_file")[0]
	args, _ := json.Marshal(map[string]string{"file_path": link, "content": "b"})
	req := tool.Request{Args: args}
	req.Plan, _, _ = write.Plan(t.Context(), req)
	if r, err := write.Run(t.Context(), req); err != nil || r.Failed {
		t.Errorf("%v, %v", r, err)
	}
	if got, _ := os.ReadFile(file); string(got) != "b" {
		t.Errorf("the file has %q", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v", info, err)
	}
}

func BenchmarkTools(b *testing.B) {
	m := machine.Start(b)
	files := guest.NewFiles(m.Client)
	file := filepath.Join(m.Workdir, "f")
	if _, err := files.Write(b.Context(), file, []byte(strings.Repeat("line\n", 1000)), ""); err != nil {
		b.Fatal(err)
	}
	env := tool.Env{Files: files, Commands: guest.NewCommands(m.Client), Dir: m.Workdir}
	for name, args := range map[string]string{
		"read_file": `{"file_path":"` + file + `"}`, "write_file": `{"file_path":"` + file + `2","content":"x"}`, "execute": `{"command":"true"}`, "glob": `{"pattern":"*"}`,
	} {
		t := tools(b, env, name)[0]
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				req := tool.Request{Key: fmt.Sprintf("%s-%d-%d", b.Name(), b.N, i), Args: json.RawMessage(args)}
				var err error
				if req.Plan, _, err = t.Plan(b.Context(), req); err != nil {
					b.Fatal(err)
				}
				if r, err := t.Run(b.Context(), req); err != nil || r.Failed {
					b.Fatal(r, err)
				}
			}
		})
	}
}
