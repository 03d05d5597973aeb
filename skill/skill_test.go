package skill

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

func whole(front string) []byte { return []byte("---\n" + front + "---\n\nDo it.\n") }

// Each rule of the standard, broken once: the place, the reason, and nothing else.
func TestParse_rules(t *testing.T) {
	const name, what = "name: pdf-forms\n", "description: Fills forms. Use it for PDFs.\n"
	for _, x := range []struct {
		name, file, want string
	}{
		{"good", string(whole(name + what)), ""},
		{"all fields", string(whole(name + what + "license: MIT\ncompatibility: Needs git\nmetadata:\n  author: a\n  version: \"1.0\"\nallowed-tools: Bash(git:*) Read\n")), ""},
		{"64 characters", string(whole("name: " + strings.Repeat("a", 64) + "\n" + what)), "is not the name of the folder, pdf-forms (rename"},
		{"no front matter", "# PDF\n", "SKILL.md:1:1: there is no front matter"},
		{"front matter without an end", "---\n" + name + what, "SKILL.md:1:1: there is no front matter"},
		{"no UTF-8", "---\n" + name + what + "---\n\xff", "SKILL.md: it is no UTF-8 text"},
		{"too large", "---\n" + name + what + "---\n" + strings.Repeat("x", FileBytesMax), "SKILL.md: larger than 10 MiB"},
		{"no YAML", string(whole("name: [\n")), "SKILL.md:2:"},
		{"a list", string(whole("- name\n")), "SKILL.md:2:1: the file should be a list of keys"},
		{"no name", string(whole(what)), "SKILL.md:1:1: name is missing"},
		{"empty name", string(whole("name: ''\n" + what)), "SKILL.md:2:1: name is empty"},
		{"name is a number in a list", string(whole("name: [1]\n" + what)), "SKILL.md:2:"},
		{"65 characters", string(whole("name: " + strings.Repeat("a", 65) + "\n" + what)), "SKILL.md:2:1: name has 65 characters, at most 64"},
		{"capitals", string(whole("name: PDF-forms\n" + what)), "SKILL.md:2:1: name: PDF-forms has capital letters"},
		{"underscore", string(whole("name: pdf_forms\n" + what)), "name: pdf_forms has characters"},
		{"letters of others", string(whole("name: pdf-förms\n" + what)), "has characters"},
		{"a space", string(whole("name: pdf forms\n" + what)), "has characters"},
		{"a path", string(whole("name: ../pdf\n" + what)), "has characters"},
		{"hyphen in front", string(whole("name: -pdf\n" + what)), "begins or ends with a hyphen"},
		{"hyphen behind", string(whole("name: pdf-\n" + what)), "begins or ends with a hyphen"},
		{"two hyphens", string(whole("name: pdf--forms\n" + what)), "two hyphens in a row"},
		{"not the folder", string(whole("name: pdf\n" + what)), "SKILL.md:2:1: name: pdf is not the name of the folder, pdf-forms (rename one of them)"},
		{"no description", string(whole(name)), "SKILL.md:1:1: description is missing (say what"},
		{"empty description", string(whole(name + "description: \"\"\n")), "SKILL.md:3:1: description is empty"},
		{"blank description", string(whole(name + "description: \"  \"\n")), "SKILL.md:3:1: description is empty"},
		{"1,024 characters", string(whole(name + "description: " + strings.Repeat("ä", 1024) + "\n")), ""},
		{"1,025 characters", string(whole(name + "description: " + strings.Repeat("a", 1025) + "\n")), "SKILL.md:3:1: description has 1025 characters, at most 1024"},
		{"description is a map", string(whole(name + "description:\n  a: b\n")), "SKILL.md:"},
		{"a colon in the description", string(whole(name + "description: Use it when: a PDF comes\n")), "SKILL.md:3:"},
		{"license is a list", string(whole(name + what + "license: [MIT]\n")), "SKILL.md:4:"},
		{"empty license", string(whole(name + what + "license: ''\n")), "SKILL.md:4:1: license is empty (leave it out)"},
		{"empty compatibility", string(whole(name + what + "compatibility: ''\n")), "SKILL.md:4:1: compatibility is empty"},
		{"500 characters", string(whole(name + what + "compatibility: " + strings.Repeat("a", 500) + "\n")), ""},
		{"501 characters", string(whole(name + what + "compatibility: " + strings.Repeat("a", 501) + "\n")), "SKILL.md:4:1: compatibility has 501 characters"},
		{"compatibility is a list", string(whole(name + what + "compatibility: [git]\n")), "SKILL.md:4:"},
		{"metadata is text", string(whole(name + what + "metadata: x\n")), "SKILL.md:4:"},
		{"metadata holds a list", string(whole(name + what + "metadata:\n  a: [1]\n")), "SKILL.md:5:"},
		{"metadata with an empty key", string(whole(name + what + "metadata:\n  '': x\n")), "a key of metadata is empty"},
		{"tools are a list", string(whole(name + what + "allowed-tools:\n  - Bash(git add:*)\n  - Read\n")), ""},
		{"tools are numbers", string(whole(name + what + "allowed-tools: [1, 2]\n")), "SKILL.md:4:1: allowed-tools is neither text nor a list"},
		{"tools are a map", string(whole(name + what + "allowed-tools:\n  Read: yes\n")), "SKILL.md:4:1: allowed-tools is neither"},
		{"a list of no tools", string(whole(name + what + "allowed-tools: []\n")), "SKILL.md:4:1: allowed-tools is empty"},
		{"no tools", string(whole(name + what + "allowed-tools: ''\n")), "SKILL.md:4:1: allowed-tools is empty"},
		{"a key of others", string(whole(name + what + "model: opus\n")), `SKILL.md:4:1: "model" is not a key here (what the standard does not know`},
		{"a key twice", string(whole(name + what + name)), `SKILL.md:4:1: mapping key "name" already defined`},
		{"a reference", string(whole(name + what + "license: &a MIT\n")), "SKILL.md:4:"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, problems := Parse("pdf-forms", []byte(x.file))
			switch {
			case x.want == "" && len(problems) > 0:
				t.Fatalf("refused: %v", problems)
			case x.want != "" && len(problems) != 1:
				t.Fatalf("%d problems: %v", len(problems), problems)
			case x.want != "" && !strings.Contains(problems[0].String(), x.want):
				t.Fatalf("%q lacks %q", problems[0], x.want)
			}
		})
	}
}

func TestParse_whole(t *testing.T) {
	got, problems := Parse("a", whole("name: a\ndescription: >-\n  Two\n  lines.\nlicense: MIT\ncompatibility: git\nmetadata:\n  k: v\nallowed-tools: Bash(git:*) Read\n"))
	want := Skill{Name: "a", Description: "Two lines.", License: "MIT", Compatibility: "git", Metadata: map[string]string{"k": "v"}, AllowedTools: []string{"Bash(git:*)", "Read"}, Instructions: "Do it."}
	if d := cmp.Diff(want, got); d != "" || len(problems) > 0 {
		t.Fatal(d, problems)
	}
}

// What other clients take is loaded, with a warning.
func TestLoad_lenient(t *testing.T) {
	for _, x := range []struct {
		name, folder, file string
		want               Skill
		warns              string
	}{
		{"a colon", "a", "name: a\ndescription: Use it when: a PDF comes\n", Skill{Name: "a", Description: "Use it when: a PDF comes", AllowedTools: []string{}}, "SKILL.md:3"},
		{"another name than the folder's", "b", "name: a\ndescription: x\n", Skill{Name: "a", Description: "x", AllowedTools: []string{}}, "rename"},
		{"a bad name", "pdf-forms", "name: PDF Forms\ndescription: x\n", Skill{Name: "pdf-forms", Description: "x", AllowedTools: []string{}}, "capital"},
		{"no name", "pdf-forms", "description: x\n", Skill{Name: "pdf-forms", Description: "x", AllowedTools: []string{}}, "missing"},
		{"keys of others", "a", "name: a\ndescription: x\nmodel: opus\nhooks:\n  - a: [1, 2]\n", Skill{Name: "a", Description: "x", AllowedTools: []string{}}, `"model"`},
		{"tools of others", "a", "name: a\ndescription: x\nallowed-tools: Read, Bash(git (\n", Skill{Name: "a", Description: "x", AllowedTools: []string{"Read", "Bash(git ("}}, "approves nothing"},
		{"numbers beneath metadata", "a", "name: a\ndescription: x\nmetadata:\n  v: [1]\n", Skill{Name: "a", Description: "x", AllowedTools: []string{}}, "SKILL.md:5"},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.want.Instructions = "Do it."
			got, warnings, err := Load(Tree{Folder: x.folder, Files: []Entry{{Path: File, Content: whole(x.file)}}})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(x.want, got); d != "" {
				t.Error(d)
			}
			if len(warnings) == 0 || !strings.Contains(warnings[0].String(), x.warns) {
				t.Errorf("warnings %v lack %q", warnings, x.warns)
			}
		})
	}
	for name, file := range map[string]string{
		"no description": "name: a\n", "nothing": "", "no YAML": "{{{\n", "a name that is none, in a folder that is none": "name: A B\ndescription: x\n",
	} {
		folder := "a"
		if strings.Contains(name, "folder") {
			folder = "A B"
		}
		if s, _, err := Load(Tree{Folder: folder, Files: []Entry{{Path: File, Content: whole(file)}}}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func TestLoad_advice(t *testing.T) {
	for name, body := range map[string]string{"no instructions": "", "501 lines": strings.Repeat("x\n", 501), "many tokens": strings.Repeat("word ", 5000)} {
		_, warnings, err := Load(Tree{Folder: "a", Files: []Entry{{Path: File, Content: []byte("---\nname: a\ndescription: x\n---\n" + body)}}})
		if err != nil || len(warnings) != 1 {
			t.Errorf("%s: %v, %v", name, warnings, err)
		}
	}
}

// A version says of every path, mode and byte; not of the folder's own name.
func TestTree_version(t *testing.T) {
	tree := func(folder, path, content string, x bool) Tree {
		return Tree{Folder: folder, Files: []Entry{{Path: File, Content: whole("")}, {Path: path, Content: []byte(content), Executable: x}}}
	}
	first := tree("a", "x", "1", false)
	if first.Version() != tree("b", "x", "1", false).Version() {
		t.Error("the folder's name changes the version")
	}
	for name, other := range map[string]Tree{"path": tree("a", "y", "1", false), "content": tree("a", "x", "2", false), "mode": tree("a", "x", "1", true)} {
		if first.Version() == other.Version() {
			t.Errorf("the %s does not change the version", name)
		}
	}
	data, err := first.Tar()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Archive(data, "")
	if err != nil || again.Version() != first.Version() {
		t.Errorf("its archive is another version: %v", err)
	}
	if x, md := bytes.Index(data, []byte("x\x00")), bytes.Index(data, []byte(File)); x < 0 || md < x {
		t.Errorf("SKILL.md is at %d, before a file at %d: half of a skill would be taken for one", md, x)
	}
}

// Whatever a file holds, reading it ends, and a skill that loads has a name and says what it is.
func FuzzRead(f *testing.F) {
	f.Add("a", whole("name: a\ndescription: x\n"))
	f.Add("a", whole("name: &a [*a]\ndescription: 'x\n"))
	f.Add("", []byte("---\n---\n"))
	f.Fuzz(func(t *testing.T, folder string, data []byte) {
		s, problems, err := Read(folder, data)
		if err != nil {
			if len(problems) == 0 || !errs.Is(err, errs.Invalid) {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		if !NameOK(s.Name) || s.Description == "" || len(s.Description) > 4*DescriptionMax {
			t.Fatalf("%+v", s)
		}
		strict, broken := Parse(folder, data)
		if len(broken) == 0 && !cmp.Equal(strict, s) {
			t.Fatal(cmp.Diff(strict, s))
		}
	})
}
