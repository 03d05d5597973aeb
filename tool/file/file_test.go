package file_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
	"github.com/skete-dev/skete/tool/file"
)

// bench is the tools over files in memory.
type bench struct {
	t     testing.TB
	files tool.Files
	tools map[string]tool.Tool
	ctx   context.Context
}

func newBench(t testing.TB, files tool.Files, env tool.Env) *bench {
	t.Helper()
	r := &tool.Registry{}
	file.Add(r)
	env.Files = files
	tools, err := r.Make(env, []string{"*", "list_files", "apply_patch"})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, files: files, tools: map[string]tool.Tool{}, ctx: tool.WithRecorder(t.Context(), func(thread.FileChange) {})}
	for _, tl := range tools {
		b.tools[tl.Spec().Name] = tl
	}
	return b
}

func memory(t testing.TB, files map[string]string) *bench {
	t.Helper()
	b := newBench(t, backend.NewMap(thread.NewMemory()), tool.Env{Dir: "/w"})
	for p, content := range files {
		b.put(p, content)
	}
	return b
}

func (b *bench) put(p, content string) {
	b.t.Helper()
	if _, err := b.files.Write(b.ctx, p, []byte(content), ""); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) get(p string) string {
	b.t.Helper()
	content, _, err := b.files.Read(b.ctx, p, 64<<20)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(content)
}

func args(kv ...any) json.RawMessage {
	m := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i].(string)] = kv[i+1]
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

// call runs a tool as the agent does: plan, then run.
func (b *bench) call(name string, kv ...any) tool.Result {
	b.t.Helper()
	req := tool.Request{Key: "k", Args: args(kv...)}
	plan, done, err := b.tools[name].(tool.Planner).Plan(b.ctx, req)
	if err != nil {
		b.t.Errorf("%s: plan: %v", name, err)
	}
	if done != nil {
		return *done
	}
	req.Plan = plan
	r, err := b.tools[name].Run(b.ctx, req)
	if err != nil {
		b.t.Errorf("%s: %v", name, err)
	}
	return r
}

func text(r tool.Result) string {
	if len(r.Blocks) == 0 {
		return ""
	}
	return r.Blocks[0].Text
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

func TestReadFile_windows(t *testing.T) {
	long := strings.Repeat("ä", 5000) + strings.Repeat("b", 5000) + "c"
	b := memory(t, map[string]string{
		"/w/3": "a\nb\nc\n", "/w/nonl": "a\nb", "/w/crlf": "a\r\nb\r\n", "/w/empty": "", "/w/blank": " \n\n",
		"/w/250": lines(250), "/w/long": "x\n" + long + "\ny\n", "/w/ü": "grüße", "/w/bad": "a\xffb\n", "/w/1nl": "\na\n",
	})
	for _, c := range []struct {
		name string
		kv   []any
		want string
	}{
		{"3", nil, "     1  a\n     2  b\n     3  c"},
		{"nonl", nil, "     1  a\n     2  b"},
		{"crlf", nil, "     1  a\n     2  b"},
		{"ü", nil, "     1  grüße"},
		{"bad", nil, "     1  a\uFFFDb"},
		{"1nl", nil, "     1  \n     2  a"},
		{"empty", nil, "System reminder: File exists but has empty contents"},
		{"3", []any{"offset", 1}, "     2  b\n     3  c\n\n[lines 2-3 of 3, the end of the file]"},
		{"3", []any{"limit", 2}, "     1  a\n     2  b\n\n[lines 1-2 of 3; go on with offset=2]"},
		{"3", []any{"offset", 1, "limit", 1}, "     2  b\n\n[lines 2-2 of 3; go on with offset=2]"},
		{"3", []any{"limit", 3}, "     1  a\n     2  b\n     3  c"},
		{"3", []any{"offset", 2, "limit", 99}, "     3  c\n\n[lines 3-3 of 3, the end of the file]"},
		{"long", nil, "     1  x\n     2  " + strings.Repeat("ä", 5000) + "\n   2.1  " + strings.Repeat("b", 5000) + "\n   2.2  c\n     3  y"},
	} {
		r := b.call("read_file", append([]any{"file_path", "/w/" + c.name}, c.kv...)...)
		if d := cmp.Diff(c.want, text(r)); d != "" || r.Failed || !r.Whole {
			t.Errorf("%s %v: %s", c.name, c.kv, d)
		}
	}
	r := b.call("read_file", "file_path", "/w/250")
	if !strings.HasSuffix(text(r), "   100  line 100\n\n[lines 1-100 of 250; go on with offset=100]") || !strings.HasPrefix(text(r), "     1  line 1\n") {
		t.Errorf("the default window: %s", text(r))
	}
	r = b.call("read_file", "file_path", "/w/3", "offset", 3)
	if !r.Failed || r.Code != tool.CodeArgs || text(r) != "Error: offset 3 is beyond the end of /w/3, which has 3 lines" {
		t.Errorf("beyond the end: %v", r)
	}
}

// Paging by what each answer says shows every line once.
func TestReadFile_pagesGoOnWhereTheyStopped(t *testing.T) {
	b := newBench(t, backend.NewMap(thread.NewMemory()), tool.Env{ResultBytesMax: 1000})
	want := lines(500)
	b.put("/f", want)
	var got strings.Builder
	offset := 0
	for range 200 {
		r := b.call("read_file", "file_path", "/f", "offset", offset, "limit", 60)
		body, note, more := strings.Cut(text(r), "\n\n[")
		if len(body) > 1000 || r.Failed {
			t.Fatalf("a page of %d bytes: %v", len(body), r)
		}
		for line := range strings.SplitSeq(body, "\n") {
			got.WriteString(line[8:] + "\n")
		}
		_, next, found := strings.Cut(note, "offset=")
		if !more || !found {
			break
		}
		if _, err := fmt.Sscanf(next, "%d", &offset); err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != want {
		t.Errorf("pages make %d bytes, the file has %d", got.Len(), len(want))
	}
}

// huge is a file of any size whose lines are made when they are read.
type huge struct {
	tool.Files
	size int64
	read atomic.Int64
}

func (h *huge) ReadAt(_ context.Context, _ string, off int64, limit int) ([]byte, int64, error) {
	n := max(min(int64(limit), h.size-off), 0)
	content := make([]byte, n)
	for i := range content {
		content[i] = 'x'
		if (off+int64(i)+1)%100 == 0 {
			content[i] = '\n'
		}
	}
	h.read.Add(n)
	return content, h.size, nil
}

func TestReadFile_ofTenGigabytes(t *testing.T) {
	h := &huge{size: 10 << 30}
	b := newBench(t, h, tool.Env{})
	r := b.call("read_file", "file_path", "/f")
	if r.Failed || h.read.Load() > 2<<20 || !strings.HasSuffix(text(r), "[lines 1-100 of a file of 10737418240 bytes; go on with offset=100]") {
		t.Errorf("%d bytes were read for: %.200s", h.read.Load(), text(r))
	}
	if r = b.call("read_file", "file_path", "/f", "offset", 500_000, "limit", 2); r.Failed || !strings.HasPrefix(text(r), "500001  xxx") {
		t.Errorf("a window in the middle: %.200s", text(r))
	}
	h.read.Store(0)
	r = b.call("read_file", "file_path", "/f", "offset", 90_000_000)
	if r.Code != tool.CodeTooLarge || h.read.Load() > 300<<20 {
		t.Errorf("a window far away read %d bytes: %.200s", h.read.Load(), text(r))
	}
}

func TestReadFile_oneEndlessLine(t *testing.T) {
	b := memory(t, map[string]string{"/w/min.js": strings.Repeat("x", 3<<20) + "\nlast\n"})
	r := b.call("read_file", "file_path", "/w/min.js")
	if r.Failed || len(text(r)) > 90_000 || !strings.Contains(text(r), fmt.Sprintf("[line 1 goes on for %d more bytes", 3<<20-80_000)) || !strings.Contains(text(r), "offset=1") {
		t.Errorf("%d bytes: …%s", len(text(r)), text(r)[len(text(r))-300:])
	}
	if r = b.call("read_file", "file_path", "/w/min.js", "offset", 1); !strings.HasPrefix(text(r), "     2  last") {
		t.Errorf("%s", text(r))
	}
}

func TestReadFile_mediaAndBinary(t *testing.T) {
	var out bytes.Buffer
	if err := png.Encode(&out, image.NewGray(image.Rect(0, 0, 2, 1))); err != nil {
		t.Fatal(err)
	}
	dot := out.String()
	files := map[string]string{"/w/a.png": dot, "/w/a.txt": "text", "/w/bin": "a\x00b", "/w/big.png": dot + strings.Repeat("x", 6<<20), "/w/cut.png": dot[:20], "/w/a.pdf": "%PDF-1.7\n"}
	blind := memory(t, files)
	b := newBench(t, blind.files, tool.Env{Dir: "/w", Media: true, Documents: true})
	r := b.call("read_file", "file_path", "/w/a.png")
	want := []llm.Block{llm.Text(fmt.Sprintf("/w/a.png: image/png, %d bytes", len(dot))), {Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Hash: thread.Hash([]byte(dot)), Data: []byte(dot)}}}
	if d := cmp.Diff(want, r.Blocks); d != "" {
		t.Error(d)
	}
	if r = b.call("read_file", "file_path", "/w/a.pdf"); len(r.Blocks) != 2 || r.Blocks[1].Media.Type != "application/pdf" {
		t.Errorf("%v", r)
	}
	if r = b.call("read_file", "file_path", "/w/big.png"); r.Code != tool.CodeTooLarge {
		t.Errorf("%v", r)
	}
	if r = b.call("read_file", "file_path", "/w/cut.png"); !r.Failed || !strings.Contains(text(r), "damaged") {
		t.Errorf("%v", r)
	}
	if r = b.call("read_file", "file_path", "/w/bin"); !r.Failed || !strings.Contains(text(r), "binary file of 3 bytes") {
		t.Errorf("%v", r)
	}
	for file, says := range map[string]string{"/w/a.png": "You cannot look at it", "/w/big.png": "You cannot look at it", "/w/a.pdf": "pdftotext"} {
		if r = blind.call("read_file", "file_path", file); r.Failed || len(r.Blocks) != 1 || !strings.Contains(text(r), says) {
			t.Errorf("%s, for a model that sees nothing: %v", file, r)
		}
	}
}

func TestPaths_badOnesAreExplained(t *testing.T) {
	b := memory(t, map[string]string{"/w/f": "x"})
	for p, want := range map[string]string{
		"":        `Error: invalid_path: : the path cannot be used (the path is empty)`,
		"f":       `Error: invalid_path: f: the path cannot be used (paths are absolute: they begin with "/"); did you mean /w/f?`,
		"~/f":     `Error: invalid_path: ~/f: the path cannot be used ("~" is not expanded; write the absolute path); did you mean /w/f?`,
		"/w/../f": `Error: invalid_path: /w/../f: the path cannot be used (".." is not allowed in a path)`,
		"/a\x00b": `Error: invalid_path: "/a\x00b": the path cannot be used (the path has bytes in it that are no text)`,
	} {
		for _, name := range []string{"ls", "read_file", "write_file", "edit_file", "delete", "glob", "grep"} {
			kv := map[string][]any{
				"ls": {"path", p}, "read_file": {"file_path", p}, "write_file": {"file_path", p, "content", "x"}, "edit_file": {"file_path", p, "old_string", "x", "new_string", "y"},
				"delete": {"file_path", p}, "glob": {"path", p, "pattern", "*"}, "grep": {"path", p, "pattern", "x"},
			}[name]
			if p == "" && (name == "glob" || name == "grep") {
				continue // the default
			}
			r := b.call(name, kv...)
			if text(r) != want || r.Code != tool.CodeInvalidPath || !r.Failed {
				t.Errorf("%s %q: %s, want %s", name, p, text(r), want)
			}
		}
	}
	for _, c := range []struct {
		name string
		kv   []any
		code string
	}{
		{"read_file", []any{"file_path", "/w/none"}, tool.CodeNotFound},
		{"read_file", []any{"file_path", "/w"}, tool.CodeIsDirectory},
		{"write_file", []any{"file_path", "/w", "content", ""}, tool.CodeIsDirectory},
		{"edit_file", []any{"file_path", "/w/none", "old_string", "a", "new_string", "b"}, tool.CodeNotFound},
		{"delete", []any{"file_path", "/w/none"}, tool.CodeNotFound},
		{"delete", []any{"file_path", "/w"}, tool.CodeDenied},
		{"delete", []any{"file_path", "/"}, tool.CodeDenied},
		{"ls", []any{"path", "/w/none"}, tool.CodeNotFound},
		{"glob", []any{"pattern", "["}, tool.CodeArgs},
		{"grep", []any{"pattern", "x", "path", "/none"}, tool.CodeNotFound},
	} {
		if r := b.call(c.name, c.kv...); r.Code != c.code || !strings.HasPrefix(text(r), "Error: "+c.code) {
			t.Errorf("%s %v: %s: %s, want %s", c.name, c.kv, r.Code, text(r), c.code)
		}
	}
}

func TestLs(t *testing.T) {
	b := memory(t, map[string]string{"/w/b.txt": "12", "/w/a/c": "", "/w/new\nline": ""})
	if r := b.call("ls", "path", "/w/"); text(r) != "/w/a/\n/w/b.txt  (2 bytes)\n\"/w/new\\nline\"  (0 bytes)" {
		t.Errorf("%s", text(r))
	}
	if r := b.call("list_files"); text(r) != text(b.call("ls", "path", "/w")) {
		t.Errorf("%s", text(r))
	}
	if r := b.call("ls", "path", "/"); text(r) != "/w/" {
		t.Errorf("%s", text(r))
	}
	if r := memory(t, nil).call("ls", "path", "/"); text(r) != "No files found in /" {
		t.Errorf("%s", text(r))
	}
}

func TestGlobAndGrep(t *testing.T) {
	b := memory(t, map[string]string{"/w/a.go": "hit\nhit me\n", "/w/s/b.go": "x hit\n", "/w/c.txt": "hit", "/m/d.go": "hit"})
	for _, c := range []struct {
		name string
		kv   []any
		want string
	}{
		{"glob", []any{"pattern", "*.go"}, "/w/a.go\n/w/s/b.go"},
		{"glob", []any{"pattern", "/w/s/*.go"}, "/w/s/b.go"}, // absolute, as models write it
		{"glob", []any{"pattern", "/m/*.go"}, "/m/d.go"},
		{"glob", []any{"pattern", "/w/*.go", "path", "/w"}, "/w/a.go"},
		{"glob", []any{"pattern", "*.go", "path", "/"}, "/m/d.go\n/w/a.go\n/w/s/b.go"},
		{"glob", []any{"pattern", "*.rs"}, `No files found for "*.rs" in /w`},
		{"grep", []any{"pattern", "hit"}, "/w/a.go\n/w/c.txt\n/w/s/b.go"},
		{"grep", []any{"pattern", "hit", "glob", "*.go", "output_mode", "content"}, "/w/a.go:\n  1: hit\n  2: hit me\n/w/s/b.go:\n  1: x hit"},
		{"grep", []any{"pattern", "hit", "output_mode", "count"}, "/w/a.go: 2\n/w/c.txt: 1\n/w/s/b.go: 1"},
		{"grep", []any{"pattern", "hit", "output_mode", "count", "max_count", 1}, "/w/a.go: 1\n\n[results truncated: there are more; use a narrower pattern, path or glob]"},
		{"grep", []any{"pattern", "h.t"}, `No matches found for "h.t" in /w`},
		{"grep", []any{"pattern", "hit", "path", "/m/d.go", "output_mode", "content"}, "/m/d.go:\n  1: hit"},
	} {
		if r := b.call(c.name, c.kv...); text(r) != c.want || r.Failed {
			t.Errorf("%s %v: %s, want %s", c.name, c.kv, text(r), c.want)
		}
	}
	b.put("/w/many", strings.Repeat("needle\n", 1500))
	r := b.call("grep", "pattern", "needle", "output_mode", "count")
	if !strings.HasPrefix(text(r), "/w/many: 1000\n\n[results truncated") {
		t.Errorf("the cap: %s", text(r))
	}
	small := newBench(t, b.files, tool.Env{ResultBytesMax: 200})
	r = small.call("grep", "pattern", "needle", "output_mode", "content")
	if len(text(r)) > 350 || !strings.Contains(text(r), "more lines are not shown") {
		t.Errorf("a bounded result: %d %s", len(text(r)), text(r))
	}
}

// hanging is a backend whose searches do not end.
type hanging struct{ tool.Files }

func (hanging) Glob(ctx context.Context, _, _ string, _ int) ([]tool.FileInfo, bool, error) {
	<-ctx.Done()
	return nil, false, ctx.Err()
}

func TestGlob_endsAfterItsTime(t *testing.T) {
	b := newBench(t, hanging{}, tool.Env{})
	ctx, cancel := context.WithTimeout(b.ctx, time.Millisecond)
	defer cancel()
	r, err := b.tools["glob"].Run(ctx, tool.Request{Args: args("pattern", "*")})
	if err != nil || r.Code != tool.CodeTimeout {
		t.Errorf("%v, %v", r, err)
	}
}

func TestWriteFile(t *testing.T) {
	b := memory(t, nil)
	if r := b.call("write_file", "file_path", "/w/d/f", "content", "größe"); text(r) != "Created file /w/d/f (7 bytes)" || r.Failed {
		t.Errorf("%v", r)
	}
	if r := b.call("write_file", "file_path", "/w/d/f", "content", ""); text(r) != "Updated file /w/d/f (0 bytes)" || b.get("/w/d/f") != "" {
		t.Errorf("%v", r)
	}
	if r := b.call("write_file", "file_path", "/w/d/f"); r.Code != tool.CodeArgs || !strings.Contains(text(r), "content: missing") {
		t.Errorf("%v", r)
	}
}

func TestEditFile(t *testing.T) {
	for _, c := range []struct {
		name, before, old, with string
		all                     bool
		after, want             string
	}{
		{"once", "a b c", "b", "x", false, "a x c", "Successfully replaced 1 instance(s) of the string in '/w/f'"},
		{"literal", "a.c abc", "a.c", "$1", false, "$1 abc", "Successfully replaced 1 instance(s) of the string in '/w/f'"},
		{"not unique", "b b", "b", "x", false, "b b", "Error: String 'b' appears 2 times in file. Use replace_all=true to replace all instances, or provide a more specific string with surrounding context"},
		{"all", "b b", "b", "bb", true, "bb bb", "Successfully replaced 2 instance(s) of the string in '/w/f'"},
		{"none", "a", "b", "x", true, "a", "Error: String not found in file: 'b'"},
		{"delete", "a\nb\nc\n", "b\n", "", false, "a\nc\n", "Successfully replaced 1 instance(s) of the string in '/w/f'"},
		{"empty old", "a", "", "x", false, "a", "Error: old_string is empty; use write_file to make a file"},
		{"same", "a", "a", "a", false, "a", "Error: old_string and new_string are the same; nothing would change"},
		{"unicode", "naïve 名前", "名前", "🙂", false, "naïve 🙂", "Successfully replaced 1 instance(s) of the string in '/w/f'"},
		{"crlf", "a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", false, "x\r\ny\r\nz\r\nc\r\n", "Successfully replaced 1 instance(s) of the string in '/w/f'"},
		{"no newline at the end", "a\nb", "b", "c", false, "a\nc", "Successfully replaced 1 instance(s) of the string in '/w/f'"},
		{"not utf-8", "\xff b", "b", "c", false, "\xff c", "Successfully replaced 1 instance(s) of the string in '/w/f'"},
	} {
		b := memory(t, map[string]string{"/w/f": c.before})
		r := b.call("edit_file", "file_path", "/w/f", "old_string", c.old, "new_string", c.with, "replace_all", c.all)
		if text(r) != c.want || b.get("/w/f") != c.after || r.Failed != strings.HasPrefix(c.want, "Error") {
			t.Errorf("%s: %q, %s", c.name, b.get("/w/f"), text(r))
		}
	}
}

// Several edits are made in their order, all or none.
func TestEditFile_several(t *testing.T) {
	one := func(old, with string) map[string]any { return map[string]any{"old_string": old, "new_string": with} }
	all := one("b", "x")
	all["replace_all"] = true
	for _, c := range []struct {
		name        string
		args        []any
		after, want string
	}{
		{"two", []any{"edits", []any{one("a", "x"), one("c", "y")}}, "x b b y", "Successfully made 2 edits with 2 replacements in '/w/f'"},
		{"on each other", []any{"edits", []any{one("a", "x"), one("x b", "y")}}, "y b c", "Successfully made 2 edits with 2 replacements in '/w/f'"},
		{"everywhere", []any{"edits", []any{all, one("c", "y")}}, "a x x y", "Successfully made 2 edits with 3 replacements in '/w/f'"},
		{"one", []any{"edits", []any{one("a", "x")}}, "x b b c", "Successfully replaced 1 instance(s) of the string in '/w/f'"},
		{"the second is not there", []any{"edits", []any{one("a", "x"), one("z", "y")}}, "a b b c", "Error: edit 2 of 2: String not found in file: 'z'"},
		{"the second is not unique", []any{"edits", []any{one("a", "x"), one("b", "y")}}, "a b b c", "Error: edit 2 of 2: String 'b' appears 2 times in file. Use replace_all=true to replace all instances, or provide a more specific string with surrounding context"},
		{"an empty one", []any{"edits", []any{one("a", "x"), one("", "y")}}, "a b b c", "Error: edit 2 of 2: old_string is empty; use write_file to make a file"},
		{"to and fro", []any{"edits", []any{one("a", "x"), one("x", "a")}}, "a b b c", "Error: together the edits change nothing"},
		{"both forms", []any{"old_string", "a", "new_string", "x", "edits", []any{one("c", "y")}}, "a b b c", "Error: either edits, or old_string and new_string"},
		{"neither", nil, "a b b c", "Error: old_string is empty; use write_file to make a file"},
		{"none", []any{"edits", []any{}}, "a b b c", "Error: old_string is empty; use write_file to make a file"},
	} {
		b := memory(t, map[string]string{"/w/f": "a b b c"})
		r := b.call("edit_file", append([]any{"file_path", "/w/f"}, c.args...)...)
		if text(r) != c.want || b.get("/w/f") != c.after || r.Failed != strings.HasPrefix(c.want, "Error") {
			t.Errorf("%s: %q, %s", c.name, b.get("/w/f"), text(r))
		}
	}
}

func TestEffects_lockWhatTheyTouch(t *testing.T) {
	b := memory(t, nil)
	for _, c := range []struct {
		name string
		kv   []any
		want tool.Effect
	}{
		{"read_file", []any{"file_path", "/w//f"}, tool.Effect{Class: tool.Read, Touches: []tool.Touch{{Path: "/w/f"}}}},
		{"write_file", []any{"file_path", "/w/f", "content", ""}, tool.Effect{Class: tool.Keyed, Touches: []tool.Touch{{Path: "/w/f", Write: true}}}},
		{"edit_file", []any{"file_path", "/w/f"}, tool.Effect{Class: tool.Keyed, Touches: []tool.Touch{{Path: "/w/f", Write: true}}}},
		{"delete", []any{"file_path", "relative"}, tool.Effect{Class: tool.Keyed, Touches: []tool.Touch{{Path: "/", Write: true}}}}, // bad: the worst
		{"glob", []any{"pattern", "*"}, tool.Effect{Class: tool.Read, Touches: []tool.Touch{{Path: "/w"}}}},
		{"grep", []any{"pattern", "*", "path", "/m"}, tool.Effect{Class: tool.Read, Touches: []tool.Touch{{Path: "/m"}}}},
		{"list_files", nil, tool.Effect{Class: tool.Read, Touches: []tool.Touch{{Path: "/w"}}}},
	} {
		if d := cmp.Diff(c.want, b.tools[c.name].Effect(args(c.kv...))); d != "" {
			t.Errorf("%s %v: %s", c.name, c.kv, d)
		}
	}
}

// A crash may come before or after the write; what is run again ends in the
// same state, and does nothing twice.
func TestAgain_afterACrash(t *testing.T) {
	write := []any{"file_path", "/w/f", "content", "new"}
	edit := []any{"file_path", "/w/f", "old_string", "old", "new_string", "old new"} // twice would show
	for _, c := range []struct {
		name, tool string
		kv         []any
		before     string // of the first run, "" = no file
		meanwhile  string // "" = what the first run left
		ran        bool
		code       string
		after      string
	}{
		{"write, done", "write_file", write, "old", "", true, "", "new"},
		{"write, not done", "write_file", write, "old", "", false, "", "new"},
		{"create, done", "write_file", write, "", "", true, "", "new"},
		{"create, not done", "write_file", write, "", "", false, "", "new"},
		{"write, changed since", "write_file", write, "old", "other", true, tool.CodeInterrupted, "other"},
		{"edit, done", "edit_file", edit, "old", "", true, "", "old new"},
		{"edit, not done", "edit_file", edit, "old", "", false, "", "old new"},
		{"edit, changed since", "edit_file", edit, "old", "old other", false, tool.CodeInterrupted, "old other"},
	} {
		b := memory(t, map[string]string{"/w/other": ""})
		if c.before != "" {
			b.put("/w/f", c.before)
		}
		tl := b.tools[c.tool].(tool.Planner)
		req := tool.Request{Args: args(c.kv...)}
		var err error
		if req.Plan, _, err = tl.Plan(b.ctx, req); err != nil {
			t.Fatal(err)
		}
		if c.ran {
			if r, err := tl.Run(b.ctx, req); err != nil || r.Failed {
				t.Fatalf("%s: %v, %v", c.name, r, err)
			}
		}
		if c.meanwhile != "" {
			b.put("/w/f", c.meanwhile)
		}
		req.Again = true
		switch s, err := tl.(tool.Settler).Settle(b.ctx, req); {
		case err != nil:
			t.Errorf("%s, settled: %v", c.name, err)
		case c.before != "" && !c.ran && c.meanwhile == "" && b.get("/w/f") != c.before:
			t.Errorf("%s, settled, and it did it: %q", c.name, b.get("/w/f"))
		case (s == nil) != (!c.ran && c.code == "") || s != nil && s.Code != c.code:
			t.Errorf("%s, settled: %v", c.name, s)
		}
		r, err := tl.Run(b.ctx, req)
		if err != nil || r.Code != c.code || b.get("/w/f") != c.after {
			t.Errorf("%s: %q, %v, %v", c.name, b.get("/w/f"), r, err)
		}
	}
	b := memory(t, map[string]string{"/w/d/f": "x"})
	req := tool.Request{Args: args("file_path", "/w/d")}
	for range 2 {
		if r, err := b.tools["delete"].Run(b.ctx, req); err != nil || r.Failed || text(r) != "Deleted /w/d" {
			t.Errorf("%v, %v", r, err)
		}
		req.Again = true
	}
}

func TestWriteFile_neverOverwritesWhatItDidNotSee(t *testing.T) {
	b := memory(t, map[string]string{"/w/f": "old"})
	tl := b.tools["write_file"].(tool.Planner)
	req := tool.Request{Args: args("file_path", "/w/f", "content", "mine")}
	req.Plan, _, _ = tl.Plan(b.ctx, req)
	b.put("/w/f", "theirs")
	r, err := tl.Run(b.ctx, req)
	if err != nil || r.Code != tool.CodeConflict || b.get("/w/f") != "theirs" {
		t.Errorf("%v, %v: %q", r, err, b.get("/w/f"))
	}
}

// together lets the first reads of a file end only when all have begun, so
// that every editor has seen the same content.
type together struct {
	tool.Files
	left atomic.Int64
	all  chan struct{}
}

func (w *together) Read(ctx context.Context, p string, limit int64) ([]byte, string, error) {
	content, hash, err := w.Files.Read(ctx, p, limit)
	if w.left.Add(-1) == 0 {
		close(w.all)
	}
	<-w.all
	return content, hash, err
}

// Two threads edit different parts of one file without a common lock.
func TestEditFile_noEditIsLost(t *testing.T) {
	const edits = 50
	var before, after strings.Builder
	for i := range edits {
		fmt.Fprintf(&before, "slot %d: empty;\n", i)
		fmt.Fprintf(&after, "slot %d: done;\n", i)
	}
	b := memory(t, map[string]string{"/w/f": before.String()})
	files := &together{Files: b.files, all: make(chan struct{})}
	files.left.Store(edits)
	threads := []*bench{newBench(t, files, tool.Env{}), newBench(t, files, tool.Env{})}
	var wg sync.WaitGroup
	for i := range edits {
		edit := threads[i%2].tools["edit_file"]
		wg.Go(func() {
			// Without a plan: the first read of Run is the one that all wait for.
			r, err := edit.Run(b.ctx, tool.Request{Args: args("file_path", "/w/f", "old_string", fmt.Sprintf("slot %d: empty;", i), "new_string", fmt.Sprintf("slot %d: done;", i))})
			if err != nil || r.Failed {
				t.Errorf("edit %d: %v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
	if d := cmp.Diff(after.String(), b.get("/w/f")); d != "" {
		t.Errorf("edits were lost: %s", d)
	}
}

// broken is a backend whose machine is gone.
type broken struct{ tool.Files }

var errGone = errors.New("dial /host/secret.sock: gone")

func (broken) Stat(context.Context, string) (tool.FileInfo, error) { return tool.FileInfo{}, errGone }

func (broken) ReadAt(context.Context, string, int64, int) ([]byte, int64, error) {
	return nil, 0, errGone
}

func TestPlatformErrors_areNoResults(t *testing.T) {
	b := newBench(t, broken{}, tool.Env{})
	if r, err := b.tools["read_file"].Run(b.ctx, tool.Request{Args: args("file_path", "/f")}); !errors.Is(err, errGone) || len(r.Blocks) > 0 {
		t.Errorf("%v, %v", r, err)
	}
	if _, done, err := b.tools["write_file"].(tool.Planner).Plan(b.ctx, tool.Request{Args: args("file_path", "/f", "content", "x")}); !errors.Is(err, errGone) || done != nil && len(done.Blocks) > 0 {
		t.Errorf("%v, %v", done, err)
	}
}
