package file_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
	"github.com/skete-dev/skete/tool/backend/guest"
	"github.com/skete-dev/skete/tool/tooltest/machine"
)

// document is a PDF whose pages have these lines.
func document(pages ...[]string) string {
	var b bytes.Buffer
	var at []int
	object := func(format string, args ...any) {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n", len(at))
		fmt.Fprintf(&b, format, args...)
		b.WriteString("\nendobj\n")
	}
	b.WriteString("%PDF-1.4\n")
	var kids strings.Builder
	for i := range pages {
		fmt.Fprintf(&kids, "%d 0 R ", 4+2*i)
	}
	object("<< /Type /Catalog /Pages 2 0 R >>")
	object("<< /Type /Pages /Count %d /Kids [ %s] >>", len(pages), kids.String())
	object("<< /Type /Font /Subtype /Type1 /BaseFont /Courier >>")
	for i, lines := range pages {
		var s strings.Builder
		for n, line := range lines {
			fmt.Fprintf(&s, "BT /F1 10 Tf 72 %d Td (%s) Tj ET\n", 720-14*n, line)
		}
		object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>", 5+2*i)
		object("<< /Length %d >>\nstream\n%sendstream", s.Len(), s.String())
	}
	table := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, off := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", off)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, table)
	return b.String()
}

// A model that cannot be shown a PDF reads the text of it, which a program in the
// machine extracts.
func TestReadFile_textOfADocument(t *testing.T) {
	if _, err := exec.LookPath("pdftotext"); err != nil {
		t.Skipf("pdftotext (poppler-utils) is not installed: %v", err)
	}
	m := machine.Start(t)
	b := newBench(t, guest.NewFiles(m.Client), tool.Env{Dir: m.Workdir, Commands: guest.NewCommands(m.Client)})
	at := func(name string) string { return filepath.Join(m.Workdir, name) }
	two := document([]string{"The first page", "goes on"}, []string{"The second"})
	many := make([][]string, 50)
	for i := range many {
		many[i] = []string{fmt.Sprintf("Page number %d of all", i+1)}
	}
	for name, content := range map[string]string{
		"two.pdf": two, "one.pdf": document([]string{"Alone"}), "many.pdf": document(many...), "none.pdf": document(nil, nil), "a b;$(id).pdf": two,
		"cut.pdf": two[:40], "fake.pdf": "%PDF-1.7\nno document",
	} {
		b.put(at(name), content)
	}
	for _, name := range []string{"two.pdf", "a b;$(id).pdf"} {
		want := fmt.Sprintf("%s: application/pdf, %d bytes, 2 pages; this is its text, not the file.\n", at(name), len(two)) +
			"     1  The first page\n     2  goes on\n     3  --- page 2 ---\n     4  The second"
		if d := cmp.Diff(want, text(b.call("read_file", "file_path", at(name)))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if got := text(b.call("read_file", "file_path", at("one.pdf"))); !strings.Contains(got, "bytes, 1 page; this is its text") {
		t.Errorf("one page: %s", got)
	}
	r := b.call("read_file", "file_path", at("many.pdf"), "offset", 3, "limit", 2)
	if got := text(r); r.Failed || !strings.Contains(got, "     4  --- page 3 ---\n     5  Page number 3 of all\n\n[lines 4-5 of 99; go on with offset=5]") || !strings.Contains(got, "50 pages") {
		t.Errorf("a window: %s", got)
	}
	if r = b.call("read_file", "file_path", at("many.pdf"), "offset", 500); r.Code != tool.CodeArgs {
		t.Errorf("behind its end: %s", text(r))
	}
	if r = b.call("read_file", "file_path", at("none.pdf")); r.Failed || !strings.HasSuffix(text(r), "2 pages, with no text in them: they may be pictures.") {
		t.Errorf("without text: %s", text(r))
	}
	for _, name := range []string{"cut.pdf", "fake.pdf"} {
		if r = b.call("read_file", "file_path", at(name)); !r.Failed || !strings.Contains(text(r), "its text cannot be extracted: pdftotext ended with 1: Syntax") || strings.Contains(text(r), "\n") {
			t.Errorf("%s, which is none: %s", name, text(r))
		}
	}
}

// within runs commands with other programs in reach.
type within struct {
	tool.Commands
	path string
}

func (w within) Start(ctx context.Context, key string, c tool.Command) (tool.Process, error) {
	c.Env["PATH"] = w.path
	return w.Commands.Start(ctx, key, c)
}

// What stands for pdftotext may be missing, or do anything.
func TestReadFile_textByOddPrograms(t *testing.T) {
	m := machine.Start(t)
	commands := guest.NewCommands(m.Client)
	var found [2]string
	for i, name := range []string{"bash", "yes"} {
		var err error
		found[i], err = exec.LookPath(name)
		must(t, err)
	}
	bash := found[0]
	for name, c := range map[string]struct{ script, want string }{
		"missing": {"", "this tool shows the text"},
		"endless": {"exec yes page", "[lines 1-3 of a file of"},
		"killed":  {"echo half; kill -9 $$", "pdftotext ended with 137: "},
		"noise":   {`printf '%0300d\n\033[31mred' 0 >&2; while [ ${#x} -lt 9000 ]; do x=$x.........; done; echo $x >&2; exit 3`, "pdftotext ended with 3: 0000"},
		"bytes":   {`printf 'a\377b\n\f\f\f'`, "3 pages; this is its text, not the file.\n     1  a\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) {
			programs := t.TempDir()
			for dir := programs; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
				must(t, os.Chmod(dir, 0o755)) // the machine has a user of its own
			}
			for _, p := range found {
				must(t, os.Symlink(p, filepath.Join(programs, filepath.Base(p))))
			}
			if c.script != "" {
				must(t, os.WriteFile(filepath.Join(programs, "pdftotext"), []byte("#!"+bash+"\n"+c.script+"\n"), 0o755))
			}
			b := newBench(t, guest.NewFiles(m.Client), tool.Env{Dir: m.Workdir, Commands: within{commands, programs}})
			b.put(filepath.Join(m.Workdir, "a.pdf"), "%PDF-1.7\n")
			r := b.call("read_file", "file_path", filepath.Join(m.Workdir, "a.pdf"), "limit", 3)
			if got := text(r); !strings.Contains(got, c.want) || len(got) > 1000 || strings.Contains(got, "\033") {
				t.Errorf("%.2000q, want %q", got, c.want)
			}
		})
	}
	list, err := commands.List(t.Context(), "text_")
	if err != nil || len(list) == 0 {
		t.Fatalf("%d commands, %v", len(list), err)
	}
	for _, p := range list {
		if p.Running {
			t.Errorf("%s goes on", p.Command)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadFile_documentWithoutAMachine(t *testing.T) {
	b := memory(t, map[string]string{"/w/a.pdf": document([]string{"x"})})
	if r := b.call("read_file", "file_path", "/w/a.pdf"); r.Failed || !strings.Contains(text(r), "poppler-utils") {
		t.Errorf("%v", r)
	}
}

// What a model is told about files that are no text is what it gets.
func TestReadFile_saysWhatItShows(t *testing.T) {
	commands := guest.NewCommands(nil)
	for want, env := range map[string]tool.Env{
		" Images and PDFs are shown to you.":                         {Media: true, Documents: true, Commands: commands},
		" Images are shown to you, and the text of PDFs.":            {Media: true, Commands: commands},
		" Images are shown to you.":                                  {Media: true},
		" Of PDFs you get the text.":                                 {Commands: commands},
		`{"file_path":"/workspace/main.go","offset":200,"limit":80}`: {},
	} {
		b := newBench(t, backend.NewMap(thread.NewMemory()), env)
		if about := b.tools["read_file"].Spec().Description; !strings.HasSuffix(about, want) {
			t.Errorf("%s, want …%s", about, want)
		}
	}
}
