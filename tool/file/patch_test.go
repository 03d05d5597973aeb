package file_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skete-dev/skete/tool"
)

func patchOf(lines ...string) string {
	return "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch"
}

const source = "package sum\n\nfunc add(a, b int) int {\n\treturn a - b\n}\n\nfunc sub(a, b int) int {\n\treturn a - b\n}\n"

func TestApplyPatch(t *testing.T) {
	for name, c := range map[string]struct {
		patch string
		want  string // of /w/sum.go; "" = it is gone
		says  string
	}{
		"a hunk":            {patchOf("*** Update File: sum.go", "@@", " func add(a, b int) int {", "-\treturn a - b", "+\treturn a + b", " }"), strings.Replace(source, "a - b", "a + b", 1), "Updated /w/sum.go"},
		"an absolute path":  {patchOf("*** Update File: /w/sum.go", "-package sum", "+package sums"), strings.Replace(source, "sum", "sums", 1), ""},
		"behind a line":     {patchOf("*** Update File: sum.go", "@@ func sub(a, b int) int {", "-\treturn a - b", "+\treturn b - a"), strings.Replace(source, "int {\n\treturn a - b\n}\n\nfunc sub(a, b int) int {\n\treturn a - b", "int {\n\treturn a - b\n}\n\nfunc sub(a, b int) int {\n\treturn b - a", 1), ""},
		"two hunks":         {patchOf("*** Update File: sum.go", "@@", "-package sum", "+package x", "@@ func sub(a, b int) int {", "-\treturn a - b", "+\treturn 0"), "package x\n\nfunc add(a, b int) int {\n\treturn a - b\n}\n\nfunc sub(a, b int) int {\n\treturn 0\n}\n", ""},
		"white space":       {patchOf("*** Update File: sum.go", "-package sum  ", "+package y"), strings.Replace(source, "package sum", "package y", 1), ""},
		"at the end":        {patchOf("*** Update File: sum.go", "@@", "-}", "+} // end", "*** End of File"), strings.TrimSuffix(source, "}\n") + "} // end\n", ""},
		"an addition":       {patchOf("*** Update File: sum.go", "@@ package sum", "+", "+import \"fmt\""), strings.Replace(source, "package sum\n", "package sum\n\nimport \"fmt\"\n", 1), ""},
		"added at the end":  {patchOf("*** Update File: sum.go", "@@", "+// end"), source + "// end\n", ""},
		"deleted":           {patchOf("*** Delete File: sum.go"), "", "Deleted /w/sum.go"},
		"white space round": {"\n\n" + patchOf("*** Delete File: sum.go") + "\n", "", "Deleted"},
	} {
		b := memory(t, map[string]string{"/w/sum.go": source})
		r := b.call("apply_patch", "patch", c.patch)
		if r.Failed || !strings.Contains(text(r), c.says) {
			t.Errorf("%s: %v", name, r)
			continue
		}
		if c.want == "" {
			if _, err := b.files.Stat(b.ctx, "/w/sum.go"); err == nil {
				t.Errorf("%s: it is still there", name)
			}
			continue
		}
		if d := cmp.Diff(c.want, b.get("/w/sum.go")); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestApplyPatch_severalFiles(t *testing.T) {
	b := memory(t, map[string]string{"/w/a": "1\r\n2\r\n", "/w/b": "x", "/w/c": "y\n"})
	r := b.call("apply_patch", "patch", patchOf("*** Update File: a", "-2", "+3", "*** Update File: b", "*** Move to: d/e", "-x", "+z", "*** Add File: new", "+hello", "+", "*** Delete File: c"))
	if r.Failed {
		t.Fatal(r)
	}
	for p, want := range map[string]string{"/w/a": "1\r\n3\r\n", "/w/d/e": "z", "/w/new": "hello\n\n"} {
		if got := b.get(p); got != want {
			t.Errorf("%s: %q", p, got)
		}
	}
	for _, p := range []string{"/w/b", "/w/c"} {
		if _, err := b.files.Stat(b.ctx, p); err == nil {
			t.Errorf("%s is still there", p)
		}
	}
}

// What is wrong with one file keeps all others as they are.
func TestApplyPatch_refuses(t *testing.T) {
	good := "*** Update File: a\n-1\n+2"
	for name, c := range map[string]struct{ patch, says string }{
		"no marks":           {"*** Update File: a\n-1\n+2", "begins with the line"},
		"no end":             {"*** Begin Patch\n*** Update File: a\n-1\n+2", "ends with the line"},
		"empty":              {patchOf(""), "the patch is empty"},
		"no operation":       {patchOf("hello"), `line 2: expected *** Add File`},
		"no hunk":            {patchOf("*** Update File: a"), "has no hunk"},
		"a hunk of nothing":  {patchOf("*** Update File: a", " 1"), "changes nothing"},
		"a line of no kind":  {patchOf("*** Update File: a", "1"), "begins with a space, - or +"},
		"an added line":      {patchOf("*** Add File: n", "hello"), "each line of an added file begins with +"},
		"lines not there":    {patchOf(good, "*** Update File: b", "-nope", "+x"), "hunk 1 of /w/b: these lines are not in the file"},
		"a head not there":   {patchOf(good, "*** Update File: b", "@@ nope", "-x", "+y"), `there is no line "nope"`},
		"out of order":       {patchOf("*** Update File: c", "@@", "-2", "+x", "@@", "-1", "+y"), "hunk 2"},
		"no such file":       {patchOf(good, "*** Update File: nope", "-x", "+y"), "file_not_found"},
		"nothing to delete":  {patchOf(good, "*** Delete File: nope"), "file_not_found"},
		"there already":      {patchOf(good, "*** Add File: b", "+x"), "is there already"},
		"moved on another":   {patchOf(good, "*** Update File: b", "*** Move to: c", "-x", "+y"), "is there already"},
		"twice":              {patchOf(good, good), "twice"},
		"twice by spelling":  {patchOf(good, "*** Update File: /w/a", "-1", "+2"), "twice"},
		"out of the tree":    {patchOf(good, "*** Add File: ../../etc/x\x00", "+y"), "invalid_path"},
		"many files":         {patchOf(strings.TrimSuffix(strings.Repeat("*** Delete File: b\n", 51), "\n")), "at most 50 files"},
		"many hunks":         {patchOf("*** Update File: a\n" + strings.TrimSuffix(strings.Repeat("@@\n-1\n+2\n", 501), "\n")), "at most 500 hunks"},
		"end without a file": {patchOf("*** End of File"), "expected"},
	} {
		b := memory(t, map[string]string{"/w/a": "1\n", "/w/b": "x\n", "/w/c": "1\n2\n"})
		if r := b.call("apply_patch", "patch", c.patch); !r.Failed || !strings.Contains(text(r), c.says) {
			t.Errorf("%s: %v", name, r)
		}
		if b.get("/w/a") != "1\n" || b.get("/w/b") != "x\n" || b.get("/w/c") != "1\n2\n" {
			t.Errorf("%s: something was changed", name)
		}
	}
}

// dying is a backend whose n-th change is the last: before it, or after it.
type dying struct {
	tool.Files
	left  int
	after bool
}

var errDead = errors.New("dead")

func (d *dying) change(do func() error) error {
	d.left--
	if d.left < 0 || d.left == 0 && !d.after {
		return errDead
	}
	if err := do(); err != nil {
		return err
	}
	if d.left == 0 {
		return errDead
	}
	return nil
}

func (d *dying) Write(ctx context.Context, p string, content []byte, ifHash string) (hash string, err error) {
	err = d.change(func() error {
		hash, err = d.Files.Write(ctx, p, content, ifHash)
		return err
	})
	return hash, err
}

func (d *dying) Delete(ctx context.Context, p string) error {
	return d.change(func() error { return d.Files.Delete(ctx, p) })
}

// A patch that was cut short at any change is gone on with, and what is done is not
// done again. What others changed meanwhile is left alone.
func TestApplyPatch_again(t *testing.T) {
	patch := patchOf("*** Update File: a", "-1", "+2", "*** Update File: b", "*** Move to: d", "-x", "+z", "*** Add File: new", "+hello", "*** Delete File: c")
	for left := 1; left <= 5; left++ {
		for _, after := range []bool{false, true} {
			for _, meddled := range []bool{false, true} {
				b := memory(t, map[string]string{"/w/a": "1\n1\n", "/w/b": "x", "/w/c": "y"})
				weak := newBench(t, &dying{Files: b.files, left: left, after: after}, tool.Env{Dir: "/w"})
				req := tool.Request{Key: "k", Args: args("patch", patch)}
				tl := weak.tools["apply_patch"]
				var err error
				if req.Plan, _, err = tl.(tool.Planner).Plan(b.ctx, req); err != nil {
					t.Fatal(err)
				}
				if _, err = tl.Run(b.ctx, req); !errors.Is(err, errDead) {
					t.Fatalf("%d: %v", left, err)
				}
				if meddled {
					b.put("/w/c", "theirs")
				}
				req.Again = true
				r, err := b.tools["apply_patch"].Run(b.ctx, req)
				if err != nil || r.Failed != meddled {
					t.Errorf("%d, %v, %v: %v, %v", left, after, meddled, r, err)
				}
				if got := b.get("/w/a") + b.get("/w/d") + b.get("/w/new"); got != "2\n1\nzhello\n" {
					t.Errorf("%d, %v: %q", left, after, got)
				}
				if _, err := b.files.Stat(b.ctx, "/w/c"); (err == nil) != meddled {
					t.Errorf("%d, %v, %v: what is with c? %v", left, after, meddled, err)
				}
				settled, err := b.tools["apply_patch"].(tool.Settler).Settle(b.ctx, req)
				if err != nil || (settled != nil) == meddled {
					t.Errorf("%d, %v, %v: settled %v, %v", left, after, meddled, settled, err)
				}
			}
		}
	}
}

// A patch made of two texts makes the second of the first.
func TestApplyPatch_makesTheOther(t *testing.T) {
	line := rapid.StringMatching(`[a-c ]{0,3}`)
	rapid.Check(t, func(rt *rapid.T) {
		before := rapid.SliceOfN(line, 1, 12).Draw(rt, "before")
		at := rapid.IntRange(0, len(before)).Draw(rt, "at")
		drop := rapid.IntRange(0, len(before)-at).Draw(rt, "drop")
		add := rapid.SliceOfN(line, 0, 4).Draw(rt, "add")
		var patch, after []string
		for _, l := range before[:at] {
			patch = append(patch, " "+l)
		}
		for _, l := range before[at : at+drop] {
			patch = append(patch, "-"+l)
		}
		for _, l := range add {
			patch = append(patch, "+"+l)
		}
		for _, l := range before[at+drop:] {
			patch = append(patch, " "+l)
		}
		after = append(append(append(after, before[:at]...), add...), before[at+drop:]...)
		if cmp.Equal(before, after) || len(after) == 0 {
			rt.Skip("nothing changes")
		}
		b := memory(t, map[string]string{"/w/f": strings.Join(before, "\n") + "\n"})
		r := b.call("apply_patch", "patch", patchOf(append([]string{"*** Update File: f"}, patch...)...))
		if want := strings.Join(after, "\n") + "\n"; r.Failed || b.get("/w/f") != want {
			rt.Fatalf("%v: %q, want %q", r, b.get("/w/f"), want)
		}
	})
}

func FuzzApplyPatch(f *testing.F) {
	f.Add(source, patchOf("*** Update File: f", "@@ func add(a, b int) int {", "-\treturn a - b", "+\treturn a + b", "*** End of File"))
	f.Add("a\r\nb", patchOf("*** Update File: f", "*** Move to: g", " a", "-b", "+c"))
	f.Add("", patchOf("*** Add File: g", "+x", "*** Delete File: f"))
	f.Fuzz(func(t *testing.T, content, patch string) {
		if len(content) > 10_000 || len(patch) > 10_000 {
			t.Skip()
		}
		b := memory(t, map[string]string{"/w/f": content})
		r := b.call("apply_patch", "patch", patch)
		if r.Failed && strings.Contains(text(r), "Before that was done") {
			t.Errorf("a patch that was planned was made in part: %v", r)
		}
		if _, err := b.files.Stat(b.ctx, "/w/f"); r.Failed && err != nil {
			t.Errorf("it is gone: %v", fmt.Sprint(r))
		}
	})
}
