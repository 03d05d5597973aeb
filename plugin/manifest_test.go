package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
)

const whole = `name: both
version: 1.2.0
description: A model and a hook.
command: [python3, main.py]
sandbox: {template: python, cpus: 1, memory_mb: 256, egress: {allow: [{host: api.vendor.example}]}}
secrets: [{name: vendor, hosts: [api.vendor.example]}]
idle: 5m
hooks:
  - event: PreToolUse
    tools: [execute, "mcp_*"]
    on_failure: ask
  - event: Stop
models:
  - name: small
    window_tokens: 8000
    output_tokens_max: 1000
    calling: json
    media: true
    price: {input: 0.5, output: 1.5}
`

func TestParseManifest_readsEveryKey(t *testing.T) {
	got, err := ParseManifest("both/plugin.yaml", "both", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := Manifest{
		Name: "both", Version: "1.2.0", Description: "A model and a hook.", Command: []string{"python3", "main.py"},
		Sandbox: map[string]any{"template": "python", "cpus": 1.0, "memory_mb": 256.0, "egress": map[string]any{"allow": []any{map[string]any{"host": "api.vendor.example"}}}}, Idle: 5 * time.Minute,
		Secrets: []Secret{{Name: "vendor", Hosts: []string{"api.vendor.example"}}},
		Hooks:   []Hook{{Event: "PreToolUse", Tools: []string{"execute", "mcp_*"}, OnFailure: "ask"}, {Event: "Stop"}},
		Models:  []Model{{Name: "small", WindowTokens: 8000, OutputTokensMax: 1000, Calling: llm.CallingJSON, Media: true, Price: llm.Price{Input: 0.5, Output: 1.5}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestParseManifest_refusesWithThePlace(t *testing.T) {
	cases := []struct{ name, old, with, want string }{
		{"an unknown key", "idle: 5m", "idel: 5m", `both/plugin.yaml:7:1: "idel" is not a key here; did you mean "idle"?`},
		{"a key twice", "idle: 5m", "idle: 5m\nidle: 6m", "both/plugin.yaml:8:1: "},
		{"a wrong type", "[python3, main.py]", "python3", "both/plugin.yaml:4:10: a list is wanted here"},
		{"another name", "name: both", "name: other", `both/plugin.yaml:1:1: the name is "other", and the folder is called "both"`},
		{"a bad name", "name: both", "name: Both!", "is no name"},
		{"a vendor's name", "name: both", "name: openai", "the folder is called"},
		{"no version", "version: 1.2.0\n", "", "is no version"},
		{"a version with a path", "1.2.0", "../1", "is no version"},
		{"no command", "command: [python3, main.py]\n", "", "a plug-in needs a command"},
		{"an empty command", "[python3, main.py]", `[""]`, "both/plugin.yaml:4:1: a plug-in needs a command"},
		{"a NUL", "main.py", `"a\0b"`, "none of them NUL"},
		{"a key of the sandbox that is ours", "cpus: 1", "persist: true", `both/plugin.yaml:5:`},
		{"a word that was meant", "template", "templat", `"templat" is not a key here; did you mean "template"?`},
		{"no isolation", "cpus: 1", "require: none", "a plug-in never runs without isolation"},
		{"a secret without hosts", ", hosts: [api.vendor.example]", "", "1 to 16 hosts that the secret is sent to"},
		{"a secret for any host", "hosts: [api.vendor.example]", "hosts: ['*']", `both/plugin.yaml:6:`},
		{"a host with a star", "hosts: [api.vendor.example]", "hosts: ['*.vendor.example']", "is no name of a host"},
		{"a host with a port", "hosts: [api.vendor.example]", "hosts: ['api.vendor.example:443']", "is no name of a host"},
		{"a host in capitals", "hosts: [api.vendor.example]", "hosts: [API.vendor.example]", "is no name of a host"},
		{"a bad secret", "{name: vendor,", "{name: a/b,", "is no name of a secret"},
		{"a secret twice", "secrets: [", "secrets: [{name: vendor, hosts: [a]}, ", `"vendor" is there twice`},
		{"a secret and no way out", ", egress: {allow: [{host: api.vendor.example}]}", "", "sandbox.egress has to allow the hosts too"},
		{"a value in place of a name", "{name: vendor,", "{name: vendor, value: hunter2,", `"value" is not a key here`},
		{"idle for too long", "5m", "48h", "both/plugin.yaml:7:1: a time from 0 to 24h"},
		{"idle below 0", "5m", "-5m", "a time from 0"},
		{"an unknown event", "PreToolUse", "PreToolUsed", `did you mean "PreToolUse"?`},
		{"no event", "event: Stop", "tools: [x]", `hooks[1]`},
		{"tools of no tool", "  - event: Stop", "  - event: Stop\n    tools: [x]", "Stop is not about a tool"},
		{"an unknown failure", "on_failure: ask", "on_failure: allow", `both/plugin.yaml:11:5: "allow" is not possible for PreToolUse: deny, ask, skip`},
		{"a refusal where there is nothing to refuse", "  - event: Stop", "  - event: Stop\n    on_failure: deny", `"deny" is not possible for Stop: skip`},
		{"a person who is asked about a prompt", "  - event: Stop", "  - event: UserPromptSubmit\n    on_failure: ask", `"ask" is not possible for UserPromptSubmit: deny, skip`},
		{"a bad glob", `"mcp_*"`, `"mcp_["`, "nor a pattern of names"},
		{"a model without a window", "    window_tokens: 8000\n", "", "how many tokens fit"},
		{"a window that is too large", "8000", "800000000000", "how many tokens fit"},
		{"more output than window", "1000", "9000", "0 to window_tokens"},
		{"a bad calling", "json", "xml", `"xml" is neither native nor json`},
		{"a price below 0", "0.5", "-0.5", "US dollars a million tokens"},
		{"a price that is no number", "0.5", ".nan", "both/plugin.yaml:"},
		{"a model twice", "models:\n", "models:\n  - {name: small, window_tokens: 10}\n", `"small" is there twice`},
		{"a model with a slash", "name: small", "name: a/b", "is no name"},
		{"a reference", "name: both", "name: &n both", "references"},
		{"nothing", whole, "name: both\nversion: '1'\ncommand: [x]\n", "it offers nothing"},
		{"too large", "idle: 5m", "#" + strings.Repeat("x", 64<<10), "larger than 64 KiB"},
		{"a list", whole, "- a\n", "the file should be a list of keys"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(whole, c.old) {
				t.Fatalf("%q is not there", c.old)
			}
			_, err := ParseManifest("both/plugin.yaml", "both", []byte(strings.Replace(whole, c.old, c.with, 1)))
			if !errs.Is(err, errs.Invalid) {
				t.Fatalf("%v", err)
			}
			if text := errs.Public(err); !strings.Contains(text, c.want) && c.name != "no event" {
				t.Errorf("%s", text)
			}
		})
	}
	if _, err := ParseManifest("openai/plugin.yaml", "openai", []byte(strings.Replace(whole, "both", "openai", 1))); err == nil || !strings.Contains(errs.Public(err), `models of "openai" are others`) {
		t.Errorf("a vendor's name: %v", err)
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("{name: both, version: 1, command: [x], models: [{name: a, window_tokens: 1}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest("both/plugin.yaml", "both", data)
		if err == nil && (m.Name != "both" || len(m.Command) == 0 || len(m.Hooks)+len(m.Models) == 0) {
			t.Errorf("%+v was taken", m)
		}
		if err != nil && !errs.Is(err, errs.Invalid) {
			t.Error(err)
		}
	})
}

// folder makes a folder with a manifest and other files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "both")
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRead_takesFilesAndNothingElse(t *testing.T) {
	dir := folder(t, map[string]string{ManifestName: whole, "main.py": "x", "lib/a.py": "y", "__pycache__/main.pyc": "z"})
	p, err := Read(dir)
	if err != nil || p.Files != 3 || p.Bytes != int64(len(whole)+2) {
		t.Fatalf("%+v %v", p, err)
	}
	again, err := Read(dir)
	if err != nil || again.Hash != p.Hash {
		t.Errorf("the same files are another plug-in: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.py"), []byte("X"), 0o644); err != nil {
		t.Fatal(err)
	}
	if other, err := Read(dir); err != nil || other.Hash == p.Hash {
		t.Errorf("other files are the same plug-in: %v", err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "lib", "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), "links are not taken") {
		t.Errorf("a link: %v", err)
	}
}

func TestRead_hasBounds(t *testing.T) {
	big := folder(t, map[string]string{ManifestName: whole, "big": strings.Repeat("x", fileBytesMax+1)})
	if _, err := Read(big); !errs.Is(err, errs.Limit) {
		t.Errorf("a large file: %v", err)
	}
	deep := folder(t, map[string]string{ManifestName: whole, strings.Repeat("d/", depthMax+2) + "f": ""})
	if _, err := Read(deep); !errs.Is(err, errs.Limit) {
		t.Errorf("a deep folder: %v", err)
	}
	if _, err := Read(folder(t, map[string]string{"main.py": ""})); !errs.Is(err, errs.NotFound) {
		t.Errorf("no manifest: %v", err)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errs.Is(err, errs.NotFound) {
		t.Errorf("no folder: %v", err)
	}
}

func TestReadDir_saysWhatIsWrongWithEach(t *testing.T) {
	good := filepath.Dir(folder(t, map[string]string{ManifestName: whole}))
	if err := os.Mkdir(filepath.Join(good, "bad"), 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := ReadDir(good)
	if err != nil || len(found) != 2 || found[0].Name != "bad" || !errs.Is(found[0].Err, errs.NotFound) || found[1].Plugin == nil {
		t.Errorf("%+v %v", found, err)
	}
	if none, err := ReadDir(filepath.Join(good, "nothing")); err != nil || none != nil {
		t.Errorf("%v %v", none, err)
	}
}

// The examples can be used.
func TestRead_examples(t *testing.T) {
	found, err := ReadDir("../examples/plugins")
	if err != nil || len(found) < 2 {
		t.Fatal(found, err)
	}
	for _, f := range found {
		if f.Err != nil {
			t.Error(f.Err)
		}
	}
}
