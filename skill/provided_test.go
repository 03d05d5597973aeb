package skill_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/skill"
)

// The skills that come with skete keep to the standard, and to our own advice.
func TestProvided(t *testing.T) {
	names := skill.ProvidedNames()
	if len(names) < 3 {
		t.Errorf("there are %v", names)
	}
	for _, name := range names {
		tree, err := skill.Provided(name)
		if err != nil {
			t.Fatal(err)
		}
		if problems := skill.Validate(tree); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		if s, warnings, err := skill.Load(tree); err != nil || len(warnings) > 0 || s.Name != name {
			t.Errorf("%s: %q, %v, %v", name, s.Name, warnings, err)
		}
	}
	for _, bad := range []string{"", "..", "data-report/scripts", "none"} {
		if _, err := skill.Provided(bad); !errs.Is(err, errs.NotFound) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// python runs a script of a skill and returns what it prints, and its exit status.
func python(t *testing.T, name, script string, args ...string) (out string, code int) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("skipped: no python3 on this machine: `make need` installs it")
	}
	cmd := exec.Command("python3", append([]string{filepath.Join("provided", name, "scripts", script)}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	data, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(data), cmd.ProcessState.ExitCode()
}

// put writes a file into a new directory.
func put(t *testing.T, name, text string) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

// Each rule of the audit finds its flaw, and leaves what is written instead of it alone.
func TestProvided_audit(t *testing.T) {
	for rule, c := range map[string]struct{ bad, good string }{
		"eval":           {"eval(x)", "eval('1 + 1')"},
		"shell":          {"import subprocess as s\ns.run('ls ' + x, shell=True)", "import subprocess\nsubprocess.run(['ls', x])"},
		"pickle":         {"from pickle import loads\nloads(x)", "import json\njson.loads(x)"},
		"yaml-load":      {"import yaml\nyaml.load(x)", "import yaml\nyaml.load(x, Loader=yaml.SafeLoader)"},
		"sql":            {"db.execute(f'select {x}')", "db.execute('select ?', (x,))"},
		"secret":         {"password = 'hunter2hunter2'", "import os\npassword = os.environ['PASSWORD']"},
		"tls-off":        {"requests.get(x, verify=False)", "requests.get(x)"},
		"jwt-unverified": {"import jwt\njwt.decode(x, options={'verify_signature': False})", "import jwt\njwt.decode(x, key, algorithms=['RS256'])"},
		"extract":        {"t.extractall('d')", "t.extractall('d', filter='data')"},
		"weak-hash":      {"import hashlib\nhashlib.md5(x)", "import hashlib\nhashlib.md5(x, usedforsecurity=False)"},
		"weak-random":    {"import random\ntoken = random.choice('ab')", "import random\ndie = random.choice('ab')"},
		"temp-name":      {"import tempfile\ntempfile.mktemp()", "import tempfile\ntempfile.mkstemp()"},
		"debug":          {"app.run(debug=True)", "app.run()"},
		"permissions":    {"import os\nos.chmod(x, 0o777)", "import os\nos.chmod(x, 0o644)"},
		"xml":            {"import xml.etree.ElementTree as ET\nET.parse(x)", "ET.parse(x)"},
		"bind-all":       {"s.bind(('0.0.0.0', 80))", "s.bind(('127.0.0.1', 80))"},
		"assert":         {"assert x", "def test_it():\n    assert x"},
	} {
		if out, code := python(t, "python-security-audit", "audit.py", put(t, "a.py", c.bad)); code != 1 || !strings.Contains(out, ": "+rule+": ") {
			t.Errorf("%s: status %d, %s", rule, code, out)
		}
		if out, code := python(t, "python-security-audit", "audit.py", put(t, "a.py", c.good)); code != 0 {
			t.Errorf("%s finds what is right: status %d, %s", rule, code, out)
		}
	}
	if out, _ := python(t, "python-security-audit", "audit.py", put(t, "a.py", "password = 'hunter2hunter2'")); strings.Contains(out, "hunter2") {
		t.Errorf("the secret is repeated: %s", out)
	}
	if out, code := python(t, "python-security-audit", "audit.py", put(t, "a.py", "def (")); code != 2 || !strings.Contains(out, "not read") {
		t.Errorf("what is no Python: status %d, %s", code, out)
	}
}

// The report tells what is in a table, in whichever format.
func TestProvided_report(t *testing.T) {
	out := filepath.Join(t.TempDir(), "r.html")
	for name, text := range map[string]string{
		"a.csv":   "day,city,t\n2026-01-01,Oslo,1.5\n2026-01-02,<b>Rome,2.5\n2026-01-03,Oslo,\n",
		"a.tsv":   "day\tcity\tt\n2026-01-01\tOslo\t1.5\n2026-01-02\t<b>Rome\t2.5\n2026-01-03\tOslo\t\n",
		"a.json":  `[{"day":"2026-01-01","city":"Oslo","t":1.5},{"day":"2026-01-02","city":"<b>Rome","t":2.5},{"day":"2026-01-03","city":"Oslo","t":null}]`,
		"a.jsonl": "{\"day\":\"2026-01-01\",\"city\":\"Oslo\",\"t\":1.5}\n{\"day\":\"2026-01-02\",\"city\":\"<b>Rome\",\"t\":2.5}\n{\"day\":\"2026-01-03\",\"city\":\"Oslo\"}\n",
	} {
		text, code := python(t, "data-report", "report.py", put(t, name, text), "--out", out, "--by", "city", "--x", "day")
		var facts struct {
			Rows    int
			Columns []struct {
				Type    string
				Missing int
				Mean    float64
			}
		}
		if err := json.Unmarshal([]byte(text), &facts); err != nil || code != 0 {
			t.Fatalf("%s: status %d, %v: %s", name, code, err, text)
		}
		if c := facts.Columns; facts.Rows != 3 || c[0].Type != "time" || c[1].Type != "text" || c[2].Type != "number" || c[2].Missing != 1 || c[2].Mean != 2 {
			t.Errorf("%s: %+v", name, facts)
		}
		page, err := os.ReadFile(out)
		if err != nil || strings.Count(string(page), "<svg") != 4 || strings.Contains(string(page), "<b>") {
			t.Errorf("%s: %d pictures, %v; the data is shown as it is: %t", name, strings.Count(string(page), "<svg"), err, strings.Contains(string(page), "<b>"))
		}
	}
	for name, text := range map[string]string{"a.csv": "", "b.csv": "a,b\n", "a.json": "[1]", "b.json": "{"} {
		if said, code := python(t, "data-report", "report.py", put(t, name, text), "--out", out); code != 2 || strings.Contains(said, "Traceback") {
			t.Errorf("%s: status %d, %s", name, code, said)
		}
	}
}

// A page that is right passes, and what is wrong with one is named.
func TestProvided_page(t *testing.T) {
	if out, code := python(t, "live-web-page", "serve.py", "provided/live-web-page/assets", "--check"); code != 0 {
		t.Errorf("the template: status %d, %s", code, out)
	}
	at := put(t, "index.html", `<img src="x.png"><a href="#no">a</a><script src="https://cdn.example/x.js"></script>`)
	out, code := python(t, "live-web-page", "serve.py", filepath.Dir(at), "--check")
	for _, want := range []string{"no alt", "no title", "no lang", "x.png leads nowhere", "#no: no element", "of another host"} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("status %d; nothing says %q: %s", code, want, out)
		}
	}
}
