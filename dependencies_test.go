package skete

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite cmd/skete-guest/dependencies.txt")

const (
	guestDependencies = "cmd/skete-guest/dependencies.txt"
	dependenciesHead  = `# Modules that are linked into the guest program, which is PID 1 of every machine, with
# their licences: each is one more thing inside. After a change that is meant:
#
#	go test . -run TestGuestDependencies -args -update
#
# and say behind # why it is needed. TestGuestDependencies keeps this true.

`
)

// TestGuestDependencies pins what is linked into every machine's PID 1: of ours the packages
// below, of others the modules in a list.
func TestGuestDependencies(t *testing.T) {
	own := []string{
		"guest", "guest/*", "errs", "internal/*", "cmd/skete-guest",
		"workspace", "workspace/*", // the history of a workspace that only the machine can see
	}
	licences := map[string][]string{} // by module
	for _, arch := range []string{"amd64", "arm64"} {
		for _, p := range linked(t, "./cmd/skete-guest", arch) {
			if rel, ours := strings.CutPrefix(p.path, module+"/"); ours {
				if !matchAny(own, rel) {
					t.Errorf("skete-guest depends on %s; every dependency there is one more thing inside each machine", rel)
				}
				continue
			}
			for _, l := range licencesOf(t, p.dir, p.moduleDir) {
				if !slices.Contains(licences[p.module], l) {
					licences[p.module] = append(licences[p.module], l)
				}
			}
			if len(licences[p.module]) == 0 {
				t.Errorf("%s: no licence is found", p.module)
			}
		}
	}
	kept, err := os.ReadFile(guestDependencies)
	if err != nil && !*update {
		t.Fatal(err)
	}
	want := dependencies(licences, reasons(string(kept)))
	if *update {
		if err := os.WriteFile(guestDependencies, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(kept) != want {
		t.Errorf("%s is not what is linked (-args -update writes it: read the diff):\n%s\nis linked:\n%s", guestDependencies, kept, want)
	}
	if strings.Contains(want, noReason) {
		t.Errorf("%s: say why each module is needed", guestDependencies)
	}
}

// linkedPackage is one that a program is made of, outside of the standard library.
type linkedPackage struct{ path, dir, module, moduleDir string }

// linked returns the packages of a program as `make build` makes it.
func linked(t *testing.T, program, arch string) (list []linkedPackage) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{$.ImportPath}}\t{{$.Dir}}\t{{.Path}}\t{{.Dir}}{{end}}", program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 4 {
			t.Fatalf("go list: %q", line)
		}
		list = append(list, linkedPackage{f[0], f[1], f[2], f[3]})
	}
	if len(list) == 0 {
		t.Fatalf("go list: %s has no packages", program)
	}
	return list
}

// marks are words of licences by which they are known.
var marks = []struct{ name, words string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"BSD-3-Clause", "Neither the name of"},
	{"CC0-1.0", "CC0 1.0"},
	{"MIT", "Permission is hereby granted, free of charge"},
	{"MPL-2.0", "Mozilla Public License, version 2.0"},
}

// licencesOf returns the licences that lie in a package's directory and in those above it
// in its module.
func licencesOf(t *testing.T, dir, moduleDir string) (names []string) {
	t.Helper()
	for ; ; dir = filepath.Dir(dir) {
		files, err := filepath.Glob(filepath.Join(dir, "LICEN[CS]E*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			names = append(names, licenceIn(t, file)...)
		}
		if len(dir) <= len(moduleDir) {
			return names
		}
	}
}

// licenceIn returns the licences whose words are in a file.
func licenceIn(t *testing.T, file string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	for _, m := range marks {
		if strings.Contains(words, m.words) {
			names = append(names, m.name)
		}
	}
	if len(names) == 0 {
		t.Errorf("%s: its licence is none that is known here", file)
	}
	return names
}

const noReason = "# why?"

// dependencies is the list of modules with their licences and reasons.
func dependencies(licences map[string][]string, why map[string]string) string {
	var b bytes.Buffer
	b.WriteString(dependenciesHead)
	var names []string
	for name := range licences {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		slices.Sort(licences[name])
		reason := noReason
		if why[name] != "" {
			reason = "# " + why[name]
		}
		fmt.Fprintf(&b, "%-32s %-28s %s\n", name, strings.Join(licences[name], ","), reason)
	}
	return b.String()
}

// reasons are those that a list gives, by module.
func reasons(list string) map[string]string {
	why := map[string]string{}
	for line := range strings.Lines(list) {
		facts, reason, _ := strings.Cut(line, "#")
		if f := strings.Fields(facts); len(f) > 0 {
			if r := strings.TrimSpace(reason); r != strings.TrimPrefix(noReason, "# ") {
				why[f[0]] = r
			}
		}
	}
	return why
}
