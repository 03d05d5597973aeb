package declared_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/tool/declared"
)

const good = `
description: Scans.
input:
  type: object
  properties: {path: {type: string}}
command: [python3, "it's.py"]
effect: once
requires_sandbox: true
sandbox: {scope: "x-{run}", template: debian, cpus: 0.5, memory_mb: 256, network: none, timeout: 1m, env: {A: b}}
agents: [auditor]
approval: ask
rate: {calls: 3, per: 1m}
result: {bytes_max: 1000}
files: [path]
artifacts: ["**/*.html"]
`

func TestParse(t *testing.T) {
	m, err := declared.Parse("tools/scan/tool.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "scan" || m.Rate.Calls != 3 || m.Sandbox.Env["A"] != "b" {
		t.Errorf("%+v", m)
	}
}

// Each mistake is told with its line and its key.
func TestParse_refuses(t *testing.T) {
	const start = "description: d\ncommand: c\n"
	for name, tt := range map[string]struct{ file, want string }{
		"nothing":                    {"", "description: a tool needs one"},
		"no YAML":                    {"{", "t.yaml"},
		"a list":                     {"- a\n", "t.yaml:1"},
		"a key that there is not":    {start + "comand: x\n", "t.yaml:3:1: \"comand\" is not a key here"},
		"a key of the sandbox":       {start + "sandbox: {scop: x}\n", "t.yaml:3:"},
		"no command":                 {"description: d\n", "command: a tool needs a command"},
		"an empty command":           {"description: d\ncommand: ' '\n", "t.yaml:2:"},
		"a number as a command":      {"description: d\ncommand: 7\n", "a line for the shell, or a list"},
		"a number among arguments":   {"description: d\ncommand: [a, 7]\n", "argument 1 is no text"},
		"NUL":                        {"description: d\ncommand: \"a\\0\"\n", "none of them NUL"},
		"on the host":                {start + "requires_sandbox: false\n", "t.yaml:3:1: requires_sandbox: commands never run on the host"},
		"a name with a blank":        {start + "name: a b\n", "is no name"},
		"a long name":                {start + "name: " + strings.Repeat("a", 65) + "\n", "is no name"},
		"a long description":         {"description: " + strings.Repeat("a", 5000) + "\ncommand: c\n", "at most 4096"},
		"arguments that are a list":  {start + "input: {type: array}\n", "t.yaml:3:"},
		"a schema that is none":      {start + "input: {type: object, properties: 7}\n", "input: "},
		"a schema from elsewhere":    {start + "input: {$ref: 'file:///etc/passwd'}\n", "input: "},
		"an output that is none":     {start + "output: {type: 7}\n", "output: it is no JSON Schema"},
		"an effect":                  {start + "effect: reads\n", "did you mean \"read\""},
		"an approval":                {start + "approval: never\n", "approval: "},
		"half a rate":                {start + "rate: {calls: 3}\n", "rate: both keys"},
		"a rate below 0":             {start + "rate: {calls: -3, per: 1m}\n", "rate: "},
		"a large result":             {start + "result: {bytes_max: 10000000}\n", "result.bytes_max"},
		"a scope without who":        {start + "sandbox: {scope: all}\n", "name who shares the sandbox"},
		"a scope that goes up":       {start + "sandbox: {scope: '../{run}'}\n", "sandbox.scope"},
		"a placeholder that is none": {start + "sandbox: {scope: '{host}'}\n", "sandbox.scope"},
		"a long timeout":             {start + "sandbox: {timeout: 2h}\n", "sandbox.timeout"},
		"a short time to keep":       {start + "sandbox: {scope: '{user}', keep: 1s}\n", "sandbox.keep: a time from"},
		"a long time to keep":        {start + "sandbox: {scope: '{user}', keep: 10000h}\n", "sandbox.keep: a time from"},
		"a run's, kept":              {start + "sandbox: {scope: '{user}-{run}', keep: 1h}\n", "sandbox.keep: it is for"},
		"the run's, kept":            {start + "sandbox: {keep: 1h}\n", "sandbox.keep: it is for"},
		"the run's with a network":   {start + "sandbox: {network: open}\n", "without a scope"},
		"a network that is none":     {start + "sandbox: {scope: '{call}', network: all}\n", "sandbox.network"},
		"a file of no argument":      {start + "sandbox: {scope: '{call}'}\nfiles: [x]\n", "files[0]"},
		"files of the run's":         {start + "input: {properties: {x: {}}}\nfiles: [x]\n", "files: the run's sandbox has them"},
		"artifacts above":            {start + "artifacts: ['../x']\n", "artifacts[0]"},
		"artifacts of the root":      {start + "artifacts: [/etc/passwd]\n", "artifacts[0]"},
		"too much":                   {start + "# " + strings.Repeat("x", declared.FileBytesMax) + "\n", "larger than"},
	} {
		_, err := declared.Parse("t.yaml", []byte(tt.file))
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// What is read is a manifest that can be written down and read again, or an error that says
// where the mistake is.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("description: d\ncommand: c\noutput: {type: object}\n"))
	f.Add([]byte("description: d\ninput: {required: [a], properties: {a: {}}}\nhttp: {method: POST, url: 'https://a.example.com/{a}', query: {q: '{a}'}, body: ['{*}'], headers: {X: y}, secrets: [s], timeout: 1s}\nsandbox: {keep: 1h}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := declared.Parse("t.yaml", data)
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatalf("%v", err)
			}
			return
		}
		if _, err := json.Marshal(m); err != nil {
			t.Fatal(err)
		}
	})
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A folder is read as it is; a file that is broken breaks its tool alone.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	f := declared.NewFolder(filepath.Join(dir, "tools"))
	if l := f.List(); len(l) != 0 {
		t.Errorf("before there is a folder: %+v", l)
	}
	dir = filepath.Join(dir, "tools")
	write(t, dir, "a.yaml", "description: d\ncommand: c\n")
	write(t, dir, "b/tool.yaml", "description: d\ncommand: c\n")
	write(t, dir, "b/x/run.py", "print(1)\n")
	write(t, dir, "c.yaml", "description: d\n")
	write(t, dir, "d.yaml", "name: a\ndescription: d\ncommand: c\n")
	write(t, dir, "e/tool.yaml", "description: d\ncommand: c\n")
	write(t, dir, "e/large", strings.Repeat("x", 300<<10))
	write(t, dir, "f/tool.yaml", "description: d\ncommand: c\n")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "f/passwd")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "README.md", "x")
	write(t, dir, "_off.yaml", "x")
	var got []string
	for _, e := range f.List() {
		line := e.File
		if e.Err != nil {
			line += " " + errs.Public(e.Err)
		}
		for _, b := range e.Files {
			line += " " + b.Path
		}
		got = append(got, line)
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{"a.yaml\n", "b/tool.yaml x/run.py\n", "command: a tool needs", "d.yaml: the tool a is in a.yaml too", "at most 262144", "f/tool.yaml f/tool.yaml: passwd: a link"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d tools:\n%s", len(got), text)
	}
	before := f.Version()
	write(t, dir, "b/x/run.py", "print(22)\n")
	if f.Version() == before || !strings.Contains(string(f.List()[2].Files[0].Content), "22") {
		t.Errorf("a file that changed is not read: %+v", f.List()[2])
	}
}
