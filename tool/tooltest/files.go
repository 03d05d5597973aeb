// Package tooltest checks implementations of tool.Files and tool.Commands
// against what their interfaces promise.
//
//	tooltest.Files(t, tooltest.FilesOf{New: func(t *testing.T) (tool.Files, string) { … }})
//	tooltest.Commands(t, func(t *testing.T) tool.Commands { … })
//
// KV is a small store in memory for places that need one.
package tooltest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// FilesOf says how to make the backend under test.
type FilesOf struct {
	// New returns an empty backend, and the directory in it to work in, which
	// exists or is made by the first write.
	New func(t *testing.T) (files tool.Files, dir string)
}

// Files checks a backend. Every call has a recorder, as the agent's calls do.
func Files(t *testing.T, of FilesOf) {
	for name, check := range map[string]func(t *testing.T, p *backend){
		"content":     checkContent,
		"hashes":      checkHashes,
		"race":        checkRace,
		"whole":       checkWhole,
		"codes":       checkCodes,
		"windows":     checkWindows,
		"names":       checkNames,
		"list":        checkList,
		"delete":      checkDelete,
		"glob":        checkGlob,
		"grep":        checkGrep,
		"grep_limits": checkGrepLimits,
		"grep_regexp": checkGrepRegexp,
	} {
		t.Run(name, func(t *testing.T) {
			files, dir := of.New(t)
			ctx, cancel := context.WithTimeout(tool.WithRecorder(t.Context(), func(thread.FileChange) {}), 2*time.Minute)
			defer cancel()
			check(t, &backend{t: t, Files: files, dir: dir, ctx: ctx})
		})
	}
}

type backend struct {
	tool.Files
	t   *testing.T
	dir string
	ctx context.Context
}

func (p *backend) at(name string) string { return strings.TrimSuffix(p.dir, "/") + "/" + name }

func (p *backend) write(name, content string) string {
	p.t.Helper()
	hash, err := p.Write(p.ctx, p.at(name), []byte(content), "")
	if err != nil {
		p.t.Fatalf("write %q: %v", name, err)
	}
	return hash
}

func (p *backend) read(name string) string {
	p.t.Helper()
	content, _, err := p.Read(p.ctx, p.at(name), 64<<20)
	if err != nil {
		p.t.Fatalf("read %q: %v", name, err)
	}
	return string(content)
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// code is what the model would be told; "" = no error.
func code(err error) string {
	if err == nil {
		return ""
	}
	if fe, ok := errors.AsType[*tool.FileError](err); ok {
		return fe.Code
	}
	return err.Error()
}

func (p *backend) wantCode(what string, err error, want ...string) {
	p.t.Helper()
	for _, w := range want {
		if code(err) == w {
			return
		}
	}
	p.t.Errorf("%s: %v, want %v", what, err, want)
}

func contents() map[string][]byte {
	binary := make([]byte, 1<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(binary)
	return map[string][]byte{
		"empty": {}, "text": []byte("a\nb\n"), "no newline at the end": []byte("a\nb"), "crlf": []byte("a\r\nb\r\n"),
		"unicode": []byte("grüße\n名前 🙂\n"), "not utf-8": {0xff, 0xfe, 'a'}, "nul": {0, 1, 2, 0}, "binary": binary,
		"spaces": []byte("  \n\t\n"), "large": bytes.Repeat([]byte("0123456789abcde\n"), 200_000),
	}
}

func checkContent(t *testing.T, p *backend) {
	for name, content := range contents() {
		hash, err := p.Write(p.ctx, p.at(name), content, tool.Absent)
		if err != nil || hash != hashOf(content) {
			t.Errorf("write %s: %s, %v", name, hash, err)
			continue
		}
		got, hash, err := p.Read(p.ctx, p.at(name), int64(len(content)))
		if err != nil || !bytes.Equal(got, content) || hash != hashOf(content) {
			t.Errorf("read %s: %d bytes, %s, %v", name, len(got), hash, err)
		}
		info, err := p.Stat(p.ctx, p.at(name))
		if err != nil || info.Dir || info.Path != p.at(name) || info.Bytes != int64(len(content)) || info.Hash != "" && info.Hash != hashOf(content) {
			t.Errorf("stat %s: %+v, %v", name, info, err)
		}
	}
	p.write("text", "shorter")
	if got := p.read("text"); got != "shorter" {
		t.Errorf("a replaced file has %q", got)
	}
}

func checkHashes(t *testing.T, p *backend) {
	a, b := hashOf([]byte("a")), hashOf([]byte("b"))
	for _, c := range []struct{ before, ifHash, code string }{
		{"", "", ""},
		{"", tool.Absent, ""},
		{"", a, tool.CodeConflict},
		{"a", "", ""},
		{"a", tool.Absent, tool.CodeConflict},
		{"a", a, ""},
		{"a", b, tool.CodeConflict},
	} {
		_ = p.Delete(p.ctx, p.at("f"))
		if c.before != "" {
			p.write("f", c.before)
		}
		_, err := p.Write(p.ctx, p.at("f"), []byte("new"), c.ifHash)
		p.wantCode(fmt.Sprintf("%q replaced if %.8q", c.before, c.ifHash), err, c.code)
		want := "new"
		if c.code != "" {
			want = c.before
		}
		got, _, err := p.Read(p.ctx, p.at("f"), 10)
		if string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%q replaced if %.8q: it is %q, %v", c.before, c.ifHash, got, err)
		}
	}
}

// checkRace: of several writers that saw the same, one wins.
func checkRace(t *testing.T, p *backend) {
	const writers, rounds = 8, 10
	var wg sync.WaitGroup
	made := make(chan bool, writers)
	for range writers {
		wg.Go(func() {
			_, err := p.Write(p.ctx, p.at("once"), []byte(strconv.Itoa(rand.Int())), tool.Absent)
			made <- err == nil
		})
	}
	wg.Wait()
	close(made)
	won := 0
	for ok := range made {
		if ok {
			won++
		}
	}
	if won != 1 {
		t.Errorf("%d writers made the same file", won)
	}
	p.write("n", "0")
	for range writers {
		wg.Go(func() {
			for range rounds {
				p.increment("n")
			}
		})
	}
	wg.Wait()
	if got := p.read("n"); got != strconv.Itoa(writers*rounds) {
		t.Errorf("%d increments made %s", writers*rounds, got)
	}
}

func (p *backend) increment(name string) {
	for {
		content, hash, err := p.Read(p.ctx, p.at(name), 100)
		if err != nil {
			p.t.Errorf("read: %v", err)
			return
		}
		n, _ := strconv.Atoi(string(content))
		_, err = p.Write(p.ctx, p.at(name), []byte(strconv.Itoa(n+1)), hash)
		if err == nil {
			return
		}
		if code(err) != tool.CodeConflict {
			p.t.Errorf("write: %v", err)
			return
		}
	}
}

// checkWhole: a reader sees one write or another, never a part.
func checkWhole(t *testing.T, p *backend) {
	full := func(c string) string { return strings.Repeat(c, 300_000) }
	p.write("f", full("a"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
			p.write("f", full(string("ab"[i%2])))
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		got := p.read("f")
		if got != full("a") && got != full("b") {
			t.Fatalf("a torn file of %d bytes", len(got))
		}
	}
}

func checkCodes(t *testing.T, p *backend) {
	p.write("d/f", "x")
	ctx := p.ctx
	for _, c := range []struct {
		name string
		do   func(at string) error
		// codes by what is at the path
		missing, dir, file, beneath string
	}{
		{"read", func(at string) error { _, _, err := p.Read(ctx, at, 10); return err }, tool.CodeNotFound, tool.CodeIsDirectory, "", tool.CodeInvalidPath},
		{"read at", func(at string) error { _, _, err := p.ReadAt(ctx, at, 0, 10); return err }, tool.CodeNotFound, tool.CodeIsDirectory, "", tool.CodeInvalidPath},
		{"stat", func(at string) error { _, err := p.Stat(ctx, at); return err }, tool.CodeNotFound, "", "", tool.CodeInvalidPath},
		{"list", func(at string) error { _, err := p.List(ctx, at); return err }, tool.CodeNotFound, "", tool.CodeInvalidPath, tool.CodeInvalidPath},
		{"glob", func(at string) error { _, _, err := p.Glob(ctx, at, "*", 10); return err }, tool.CodeNotFound, "", tool.CodeInvalidPath, tool.CodeInvalidPath},
		{"bad glob", func(at string) error { _, _, err := p.Glob(ctx, p.dir, "[", 10); return err }, tool.CodeArgs, tool.CodeArgs, tool.CodeArgs, tool.CodeArgs},
		{"grep", func(at string) error { _, _, err := p.Grep(ctx, at, literal("x"), "", 10); return err }, tool.CodeNotFound, "", "", tool.CodeInvalidPath},
		{"bad expression", func(at string) error {
			_, _, err := p.Grep(ctx, p.dir, tool.Pattern{Text: "a(", Regexp: true}, "", 10)
			return err
		}, tool.CodeArgs, tool.CodeArgs, tool.CodeArgs, tool.CodeArgs},
		{"bad grep glob", func(at string) error { _, _, err := p.Grep(ctx, p.dir, literal("x"), "{", 10); return err }, tool.CodeArgs, tool.CodeArgs, tool.CodeArgs, tool.CodeArgs},
		{"write", func(at string) error { _, err := p.Write(ctx, at, []byte("x"), ""); return err }, "", tool.CodeIsDirectory, "", tool.CodeInvalidPath},
	} {
		_ = p.Delete(ctx, p.at("none"))
		for at, want := range map[string]string{"none": c.missing, "d": c.dir, "d/f": c.file, "d/f/g": c.beneath} {
			err := c.do(p.at(at))
			p.wantCode(c.name+" "+at, err, want)
			if fe := (*tool.FileError)(nil); want != "" && want != tool.CodeArgs && errors.As(err, &fe) && fe.Path != p.at(at) {
				t.Errorf("%s %s: the error names %s", c.name, at, fe.Path)
			}
		}
	}
	p.wantCode("delete nothing", p.Delete(ctx, p.at("none2")), tool.CodeNotFound)
	p.wantCode("delete beneath a file", p.Delete(ctx, p.at("d/f/g")), tool.CodeInvalidPath, tool.CodeNotFound)
}

func checkWindows(t *testing.T, p *backend) {
	p.write("f", "0123456789")
	for _, c := range []struct {
		off  int64
		max  int
		want string
	}{
		{0, 4, "0123"},
		{4, 4, "4567"},
		{8, 4, "89"},
		{10, 4, ""},
		{99, 4, ""},
		{0, 100, "0123456789"},
		{-1, 4, ""},
		{0, 0, ""},
	} {
		got, size, err := p.ReadAt(p.ctx, p.at("f"), c.off, c.max)
		if err != nil || string(got) != c.want || size != 10 {
			t.Errorf("%d bytes from %d: %q of %d, %v, want %q", c.max, c.off, got, size, err, c.want)
		}
	}
	_, _, err := p.Read(p.ctx, p.at("f"), 9)
	p.wantCode("read more than may be", err, tool.CodeTooLarge)
	p.write("empty", "")
	if got, size, err := p.ReadAt(p.ctx, p.at("empty"), 0, 9); err != nil || len(got) != 0 || size != 0 {
		t.Errorf("an empty file: %q, %d, %v", got, size, err)
	}
}

func checkNames(t *testing.T, p *backend) {
	names := []string{"a b", "-x", "...", ".hidden", "*", "[a]", "{b}", `back\slash`, "q\"uote'", "名前", "e\u0301", "tab\tname", "$(x)", "a:b", "%2e%2e", strings.Repeat("n", 150)}
	for _, n := range names {
		p.write("odd/"+n, n)
	}
	for _, n := range names {
		if got := p.read("odd/" + n); got != n {
			t.Errorf("%q has %q", n, got)
		}
	}
	list, err := p.List(p.ctx, p.at("odd"))
	if err != nil || len(list) != len(names) {
		t.Errorf("%d names are listed, want %d: %v", len(list), len(names), err)
	}
}

func (p *backend) paths(files []tool.FileInfo) []string {
	var list []string
	for _, f := range files {
		name := strings.TrimPrefix(f.Path, p.at(""))
		if f.Dir {
			name += "/"
		}
		list = append(list, name)
	}
	return list
}

func checkList(t *testing.T, p *backend) {
	for _, n := range []string{"l/b", "l/a/x", "l/a/y/z", "l/a-b", "l/.h", "l/c/d/e", "lx"} {
		p.write(n, n)
	}
	for dir, want := range map[string][]string{
		"l":   {"l/.h", "l/a/", "l/a-b", "l/b", "l/c/"},
		"l/a": {"l/a/x", "l/a/y/"},
		"l/c": {"l/c/d/"},
	} {
		list, err := p.List(p.ctx, p.at(dir))
		if d := cmp.Diff(want, p.paths(list)); d != "" || err != nil {
			t.Errorf("%s: %v %s", dir, err, d)
		}
	}
	info, err := p.Stat(p.ctx, p.at("l/c"))
	if err != nil || !info.Dir {
		t.Errorf("a directory: %+v, %v", info, err)
	}
}

func checkDelete(t *testing.T, p *backend) {
	for _, n := range []string{"e/k", "e/x/a", "e/x/b/c", "e/xy", "e/x!"} {
		p.write(n, n)
	}
	for _, n := range []string{"e/x/a", "e/x"} {
		if err := p.Delete(p.ctx, p.at(n)); err != nil {
			t.Errorf("delete %s: %v", n, err)
		}
	}
	list, err := p.List(p.ctx, p.at("e"))
	if d := cmp.Diff([]string{"e/k", "e/x!", "e/xy"}, p.paths(list)); err != nil || d != "" {
		t.Errorf("after the deletion: %v %s", err, d)
	}
	p.wantCode("delete again", p.Delete(p.ctx, p.at("e/x")), tool.CodeNotFound)
	p.write("e/x", "a file now")
}

func checkGlob(t *testing.T, p *backend) {
	for _, n := range []string{"g/a.go", "g/b.txt", "g/s/a.go", "g/s/t/c.go", "g/.git/a.go", "g/s/.a.go", "g/a.go2", "h.go"} {
		p.write(n, n)
	}
	for pattern, want := range map[string][]string{
		"*.go":           {"g/a.go", "g/s/a.go", "g/s/t/c.go"},
		"/*.go":          {"g/a.go"},
		"s/*.go":         {"g/s/a.go"},
		"s/**":           {"g/s/a.go", "g/s/t/c.go"},
		"**/t/*":         {"g/s/t/c.go"},
		"*.{txt,go2}":    {"g/a.go2", "g/b.txt"},
		".*":             {"g/s/.a.go"},
		".git/*":         {"g/.git/a.go"},
		"s":              nil, // a directory
		"A.GO":           nil,
		"a.go":           {"g/a.go", "g/s/a.go"},
		"{s/t/*,/b.txt}": {"g/b.txt", "g/s/t/c.go"},
	} {
		files, truncated, err := p.Glob(p.ctx, p.at("g"), pattern, 100)
		if d := cmp.Diff(want, p.paths(files)); err != nil || truncated || d != "" {
			t.Errorf("%s: %v %v %s", pattern, truncated, err, d)
		}
	}
	for limit, more := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		files, truncated, err := p.Glob(p.ctx, p.at("g"), "*.go", limit)
		if err != nil || truncated != more || len(files) != min(limit, 3) {
			t.Errorf("limit %d: %d files, truncated %v, %v", limit, len(files), truncated, err)
		}
	}
}

func checkGrep(t *testing.T, p *backend) {
	for n, text := range map[string]string{
		"s/a.txt": "one\nfind (me) here\r\nFind (me)\nfind (me) find (me)", "s/b.go": "// find (me)\n", "s/d/c.txt": "größe find (me)\n",
		"s/bin": "x\x00 find (me)", "s/no": "find me\nfind xmex", "s/.h.txt": "find (me)\n", "t": "find (me)",
	} {
		p.write(n, text)
	}
	for _, c := range []struct {
		base, glob string
		want       []string
	}{
		{"s", "*.txt", []string{"s/a.txt:2:find (me) here", "s/a.txt:4:find (me) find (me)", "s/d/c.txt:1:größe find (me)"}},
		{"s", "", []string{"s/.h.txt:1:find (me)", "s/a.txt:2:find (me) here", "s/a.txt:4:find (me) find (me)", "s/b.go:1:// find (me)", "s/d/c.txt:1:größe find (me)"}},
		{"s", "d/*", []string{"s/d/c.txt:1:größe find (me)"}},
		{"s", "/*.go", []string{"s/b.go:1:// find (me)"}},
		{"s", ".*", []string{"s/.h.txt:1:find (me)"}},
		{"t", "", []string{"t:1:find (me)"}},
		{"s", "*.none", nil},
	} {
		found, truncated, err := p.Grep(p.ctx, p.at(c.base), literal("find (me)"), c.glob, 100)
		var got []string
		for _, m := range found {
			got = append(got, fmt.Sprintf("%s:%d:%s", strings.TrimPrefix(m.Path, p.at("")), m.Line, m.Text))
		}
		if d := cmp.Diff(c.want, got); err != nil || truncated || d != "" {
			t.Errorf("%s in %s: %v %v %s", c.glob, c.base, truncated, err, d)
		}
	}
}

func literal(text string) tool.Pattern { return tool.Pattern{Text: text} }

func checkGrepRegexp(t *testing.T, p *backend) {
	p.write("e/a.go", "func main() {\r\n\tx := 1\n}\n\nfunc Other() {}")
	p.write("e/b.txt", "a func")
	for expr, want := range map[string][]string{
		`^func \w+\(`: {"e/a.go:1:func main() {", "e/a.go:5:func Other() {}"},
		`func$`:       {"e/b.txt:1:a func"},
		`(?i)OTHER`:   {"e/a.go:5:func Other() {}"},
		`x := [0-9]+`: {"e/a.go:2:\tx := 1"},
		`none+`:       nil,
	} {
		found, truncated, err := p.Grep(p.ctx, p.at("e"), tool.Pattern{Text: expr, Regexp: true}, "", 100)
		var got []string
		for _, m := range found {
			got = append(got, fmt.Sprintf("%s:%d:%s", strings.TrimPrefix(m.Path, p.at("")), m.Line, m.Text))
		}
		if d := cmp.Diff(want, got); err != nil || truncated || d != "" {
			t.Errorf("%s: %v %v %s", expr, truncated, err, d)
		}
	}
}

func checkGrepLimits(t *testing.T, p *backend) {
	p.write("r/f", strings.Repeat("hit\n", 5)+"hit"+strings.Repeat("x", 3*tool.LineBytesMax))
	p.write("r/g", "hit\xff\n")
	for limit, more := range map[int]bool{1: true, 6: true, 7: false, 8: false} {
		found, truncated, err := p.Grep(p.ctx, p.at("r"), literal("hit"), "", limit)
		if err != nil || truncated != more || len(found) != min(limit, 7) {
			t.Errorf("limit %d: %d lines, truncated %v, %v", limit, len(found), truncated, err)
		}
	}
	found, _, err := p.Grep(p.ctx, p.at("r"), literal("hit"), "", 7)
	if err != nil || len(found[5].Text) != tool.LineBytesMax || found[6].Text != "hit\uFFFD" {
		t.Errorf("a long line and an odd one: %v", err)
	}
}
