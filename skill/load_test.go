package skill

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

const good = "---\nname: pdf-forms\ndescription: Fills forms.\n---\nRun scripts/fill.py.\n"

// file is one entry of an archive that a test makes.
type file struct {
	name, content string
	mode          fs.FileMode
}

func zipOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) { return flate.NewWriter(out, flate.BestSpeed) })
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		h.SetMode(f.mode)
		e, err := w.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(e, f.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tarOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode.Perm()), Size: int64(len(f.content))}
		switch {
		case f.mode&fs.ModeSymlink != 0:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, f.content, 0
		case f.mode&fs.ModeDevice != 0:
			h.Typeflag, h.Size = tar.TypeChar, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, f.content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(data)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func folderOf(t testing.TB, name string, files ...file) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	for _, f := range files {
		at := filepath.Join(dir, f.name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err == nil && f.mode&fs.ModeSymlink != 0 {
			err = os.Symlink(f.content, at)
		} else if err == nil {
			err = os.WriteFile(at, []byte(f.content), f.mode.Perm())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The same skill is the same version, by whatever way it comes.
func TestLoad_ways(t *testing.T) {
	files := []file{{"SKILL.md", good, 0o644}, {"scripts/fill.py", "print(1)\n", 0o755}, {"references/a.md", "# A\n", 0o644}}
	within := func(dir string) (list []file) {
		for _, f := range files {
			list = append(list, file{dir + "/" + f.name, f.content, f.mode})
		}
		return list
	}
	want, err := Folder(folderOf(t, "pdf-forms", files...))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"SKILL.md", "references/a.md", "scripts/fill.py"}, want.Paths()); d != "" || !want.Files[2].Executable || want.Files[1].Executable {
		t.Fatal(d, want.Files)
	}
	if problems := Validate(want); len(problems) > 0 {
		t.Fatal(problems)
	}
	for name, data := range map[string][]byte{
		"zip": zipOf(t, files...), "zip of a folder": zipOf(t, within("pdf-forms")...), "tar": tarOf(t, within("x/pdf-forms")...), "tar.gz": gzipOf(t, tarOf(t, files...)),
		"zip of a Mac":  zipOf(t, append(within("pdf-forms"), file{"__MACOSX/pdf-forms/._SKILL.md", "x", 0o644}, file{"pdf-forms/.DS_Store", "x", 0o644})...),
		"beside others": tarOf(t, append(within("pdf-forms"), file{"README.md", "x", 0o644})...),
	} {
		got, err := Archive(data, "")
		if err != nil || got.Version() != want.Version() {
			t.Errorf("%s: %v, %v", name, got.Paths(), err)
		}
	}
	two := tarOf(t, append(within("skills/pdf-forms"), file{"skills/other/SKILL.md", good, 0o644})...)
	if _, err := Archive(two, ""); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Hint(err), "other, pdf-forms") {
		t.Errorf("two skills: %v, %q", err, errs.Hint(err))
	}
	if got, err := Archive(two, "skills/pdf-forms/"); err != nil || got.Version() != want.Version() || got.Folder != "pdf-forms" {
		t.Errorf("one of two: %v", err)
	}
}

// Nothing leaves the folder, and nothing grows beyond its bounds.
func TestLoad_hostile(t *testing.T) {
	md := file{"SKILL.md", good, 0o644}
	many := []file{md}
	for i := range FilesMax {
		many = append(many, file{"f/" + strings.Repeat("a", i%200+1) + string(rune('a'+i/200)), "", 0o644})
	}
	big := strings.Repeat("\x00", FileBytesMax+1)
	half := big[:FileBytesMax]
	for name, x := range map[string]struct {
		data []byte
		want errs.Class
		says string
	}{
		"zip that escapes":         {zipOf(t, md, file{"../../etc/cron.d/x", "x", 0o644}), errs.Invalid, "leaves the folder"},
		"zip that escapes within":  {zipOf(t, md, file{"a/../../x", "x", 0o644}), errs.Invalid, "leaves the folder"},
		"zip of another system":    {zipOf(t, md, file{`..\..\x`, "x", 0o644}), errs.Invalid, "characters"},
		"zip with an absolute one": {zipOf(t, md, file{"/etc/passwd", "x", 0o644}), errs.Invalid, "absolute"},
		"zip with a link":          {zipOf(t, md, file{"a", "/etc/passwd", fs.ModeSymlink | 0o777}), errs.Invalid, "no file"},
		"tar that escapes":         {tarOf(t, md, file{"../x", "x", 0o644}), errs.Invalid, "leaves the folder"},
		"tar with a link":          {tarOf(t, md, file{"a", "/etc/passwd", fs.ModeSymlink | 0o777}), errs.Invalid, "no file"},
		"tar with a device":        {tarOf(t, md, file{"a", "", fs.ModeDevice | 0o777}), errs.Invalid, "no file"},
		"twice":                    {tarOf(t, md, md), errs.Invalid, "there twice"},
		"file and folder":          {tarOf(t, md, file{"a", "x", 0o644}, file{"a/b", "x", 0o644}), errs.Invalid, "a file and a folder"},
		"folder and file":          {tarOf(t, md, file{"a/b", "x", 0o644}, file{"a", "x", 0o644}), errs.Invalid, "there twice"},
		"a name of control":        {tarOf(t, md, file{"a\x1b[2J", "x", 0o644}), errs.Invalid, "characters"},
		"a long name":              {tarOf(t, md, file{strings.Repeat("a", 300), "x", 0o644}), errs.Invalid, "longer than"},
		"a deep one":               {tarOf(t, md, file{strings.Repeat("a/", 20) + "b", "x", 0o644}), errs.Invalid, "deeper than"},
		"too many":                 {zipOf(t, many...), errs.Limit, "at most 1000 files"},
		"zip bomb":                 {zipOf(t, md, file{"bomb", big, 0o644}), errs.Limit, "bomb: larger than 10 MiB"},
		"gzip bomb":                {gzipOf(t, tarOf(t, md, file{"bomb", big, 0o644})), errs.Limit, "bomb: larger than 10 MiB"},
		"many halves":              {zipOf(t, md, file{"a", half, 0o644}, file{"b", half, 0o644}), errs.Limit, "b: all files together"},
		"gzip of nothing but gzip": {gzipOf(t, make([]byte, 3*TreeBytesMax)), errs.Invalid, "there is none"}, // two blocks of zeros end a tar
		"what is skipped":          {gzipOf(t, tarOf(t, file{".git/a", strings.Repeat("x", 2*TreeBytesMax), 0o644}, md)), errs.Limit, "unpacks to more"},
		"no SKILL.md":              {zipOf(t, file{"README.md", "x", 0o644}), errs.Invalid, "there is none"},
		"small letters":            {zipOf(t, file{"skill.md", good, 0o644}), errs.Invalid, "there is none"},
		"no archive":               {[]byte("hello"), errs.Invalid, "no zip, tar"},
		"nothing":                  {nil, errs.Invalid, "there is none"},
		"cut off":                  {zipOf(t, md)[:100], errs.Invalid, "no zip, tar"},
		"too large itself":         {make([]byte, ArchiveBytesMax+1), errs.Limit, "archive is larger"},
	} {
		t.Run(name, func(t *testing.T) {
			tree, err := Archive(x.data, "")
			if !errs.Is(err, x.want) || !strings.Contains(errs.Public(err), x.says) {
				t.Fatalf("%v, %v", tree.Paths(), err)
			}
		})
	}
}

func TestFolder_hostile(t *testing.T) {
	md := file{"SKILL.md", good, 0o644}
	link := func(to string) file { return file{"scripts/a", to, fs.ModeSymlink} }
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		files []file
		says  string
	}{
		"an absolute link":     {[]file{md, link(outside)}, "out of the folder"},
		"a link upwards":       {[]file{md, link("../../../etc/passwd")}, "out of the folder"},
		"a link to nothing":    {[]file{md, link("b")}, "leads nowhere"},
		"a link to a folder":   {[]file{md, {"refs/b", "x", 0o644}, link("../refs")}, "no file"},
		"SKILL.md is one":      {[]file{{"SKILL.md", outside, fs.ModeSymlink}}, "out of the folder"},
		"no SKILL.md":          {[]file{{"a", "x", 0o644}}, "there is none"},
		"SKILL.md lies deeper": {[]file{{"a/SKILL.md", good, 0o644}}, "there is none"},
		"too large":            {[]file{md, {"a", strings.Repeat("x", FileBytesMax+1), 0o644}}, "larger than 10 MiB"},
	} {
		if _, err := Folder(folderOf(t, "pdf-forms", x.files...)); !errs.Is(err, errs.Invalid) && !errs.Is(err, errs.Limit) || !strings.Contains(errs.Public(err), x.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	tree, err := Folder(folderOf(t, "pdf-forms", md, file{"refs/b", "x", 0o644}, link("../refs/b"), file{".git/config", "x", 0o644}))
	if err != nil || !slices.Equal(tree.Paths(), []string{"SKILL.md", "refs/b", "scripts/a"}) || string(tree.Files[2].Content) != "x" {
		t.Errorf("a link within the folder: %v, %v", tree.Paths(), err)
	}
	if _, err := Folder(filepath.Join(t.TempDir(), "gone")); !errs.Is(err, errs.NotFound) {
		t.Errorf("no folder: %v", err)
	}
}

func TestGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("skipped: there is no git")
	}
	dir := folderOf(t, "repository", file{"skills/pdf-forms/SKILL.md", good, 0o644}, file{"skills/pdf-forms/scripts/fill.py", "print(1)\n", 0o755}, file{"skills/other/SKILL.md", good, 0o644})
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "x"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	tree, err := Git(t.Context(), "file://"+dir, "skills/pdf-forms")
	if err != nil || tree.Folder != "pdf-forms" || len(Validate(tree)) > 0 || len(tree.Files) != 2 || !tree.Files[1].Executable {
		t.Fatalf("%+v, %v", tree, err)
	}
	for name, x := range map[string]struct {
		url, within string
		want        errs.Class
	}{
		"two skills":      {"file://" + dir, "", errs.Invalid},
		"no such folder":  {"file://" + dir, "skills/gone", errs.Unavailable},
		"no repository":   {"file://" + t.TempDir(), "", errs.Unavailable},
		"a command":       {"ext::sh -c id", "", errs.Invalid},
		"another way":     {"ssh://git@example.com/x", "", errs.Invalid},
		"an option":       {"--upload-pack=id", "", errs.Invalid},
		"a folder's name": {dir, "", errs.Invalid},
	} {
		if _, err := Git(t.Context(), x.url, x.within); !errs.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever an archive holds, what is loaded of it lies beneath the folder and within bounds.
func FuzzArchive(f *testing.F) {
	md := file{"SKILL.md", good, 0o644}
	f.Add(zipOf(f, md, file{"../x", "x", 0o644}))
	f.Add(tarOf(f, md, file{"a/b", "x", 0o755}))
	f.Add(gzipOf(f, tarOf(f, md)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := Archive(data, "")
		if err != nil {
			return
		}
		if _, ok := tree.File(File); !ok || tree.Bytes() > TreeBytesMax || len(tree.Files) > FilesMax {
			t.Fatalf("%d files, %d bytes", len(tree.Files), tree.Bytes())
		}
		for _, e := range tree.Files {
			if !filepath.IsLocal(e.Path) || len(e.Content) > FileBytesMax {
				t.Fatalf("%q", e.Path)
			}
		}
	})
}
