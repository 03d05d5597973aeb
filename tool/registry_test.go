package tool_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/tool"
)

func registry() *tool.Registry {
	r := &tool.Registry{}
	maker := func(name string) tool.Maker {
		return func(tool.Env) (tool.Tool, error) { return echo{name, `{"type":"object"}`}, nil }
	}
	for _, n := range []string{"ls", "read_file", "write_file"} {
		r.Add(n, maker(n))
	}
	r.Add("execute", func(e tool.Env) (tool.Tool, error) {
		if e.Commands == nil {
			return nil, errs.New(errs.Unsupported, "execute needs a machine")
		}
		return nil, nil
	})
	r.AddHidden("run_command", maker("run_command"))
	return r
}

func TestRegistry_makesByNameAndGlob(t *testing.T) {
	for _, c := range []struct{ names, want []string }{
		{nil, []string{"ls", "read_file", "write_file"}}, // execute has no machine, run_command is hidden
		{[]string{"*"}, []string{"ls", "read_file", "write_file"}},
		{[]string{"write_file", "ls"}, []string{"ls", "write_file"}},
		{[]string{"*_file", "ls", "ls"}, []string{"ls", "read_file", "write_file"}},
		{[]string{"ex*", "run_command"}, []string{"run_command"}},
		{[]string{"!ls"}, []string{"read_file", "write_file"}},
		{[]string{"!*_file", "!run_command"}, []string{"ls"}},
		{[]string{"*", "!*_file", "read_file"}, []string{"ls", "read_file"}},
		{[]string{"run_command", "*"}, []string{"ls", "read_file", "write_file", "run_command"}},
	} {
		tools, err := registry().Make(tool.Env{}, c.names)
		if err != nil {
			t.Errorf("%v: %v", c.names, err)
		}
		var got []string
		for _, tl := range tools {
			got = append(got, tl.Spec().Name)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%v: %s", c.names, d)
		}
	}
}

func TestRegistry_saysWhatIsMissing(t *testing.T) {
	for name, want := range map[string]string{
		"read_fil":  `no tool "read_fil"; did you mean read_file?`,
		"shell":     `no tool "shell"`,
		"web_*":     `no tool "web_*"`,
		"[":         `no tool "["`,
		"!read_fil": `no tool "read_fil"; did you mean read_file?`,
		"run_*":     `no tool "run_*"`, // hidden ones have no glob
	} {
		_, err := registry().Make(tool.Env{}, []string{"ls", name})
		if !errs.Is(err, errs.NotFound) || errs.Public(err) != want || !strings.Contains(errs.Hint(err), "ls, read_file") {
			t.Errorf("%s: %v (%s)", name, err, errs.Hint(err))
		}
	}
	if _, err := registry().Make(tool.Env{}, []string{"execute"}); !errs.Is(err, errs.Unsupported) {
		t.Errorf("a named tool without its machine: %v", err)
	}
	if tools, err := registry().Fitting(tool.Env{}, []string{"execute", "ls"}); err != nil || len(tools) != 1 {
		t.Errorf("what fits: %d, %v", len(tools), err)
	}
}

func TestCleanPath(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "//a///b/./c/": "/a/b/c", "/ü/名": "/ü/名", "/a b": "/a b", "/a/...": "/a/...", "/..a": "/..a", "/a\nb": "/a\nb",
		"": "", "a": "", "./a": "", "~/a": "", "~": "", "/a/../b": "", "/..": "", "..": "", "/a/..": "", "/a\x00b": "", "/\xff": "",
		"/" + strings.Repeat("a", tool.PathBytesMax): "", `C:\x`: "",
	} {
		got, err := tool.CleanPath(in)
		if (err == nil) != (want != "") || got != want {
			t.Errorf("%.40q became %q, %v; want %q", in, got, err, want)
		}
		if fe, ok := err.(*tool.FileError); err != nil && (!ok || fe.Code != tool.CodeInvalidPath || fe.Hint == "") { //nolint:errorlint // the very type is promised
			t.Errorf("%.40q: %v", in, err)
		}
	}
}
