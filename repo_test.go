package skete

// The house rules as tests: who may import whom (imports.txt), what a package
// must look like, which words exported names do not use (docs/glossary.md),
// what a change note looks like. Standard library only.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	module   = "github.com/skete-dev/skete"
	linesMax = 4000 // code lines of a package, tests and generated files left out; above it stands a question, not for room
)

// Bounds of the whole; see docs/adr/0035-fewer-rooms.md.
const (
	packagesMax = 202
	depthMax    = 10
	smallLines  = 150 // a package with less serves more than one other
)

// small are the packages that may be smaller, and why.
var small = map[string]string{
	"docs":         "embeds the files beneath it",
	"guest/binary": "embeds the files beneath it",
}

// overLong may only shrink: packages that are over linesMax, with the size
// they may not exceed.
var overLong = map[string]int{}

type goPackage struct {
	ImportPath   string
	Dir          string
	Name         string
	GoFiles      []string
	Imports      []string
	XTestImports []string
}

func (p goPackage) rel() string {
	r := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
	if r == "" {
		return "."
	}
	return r
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,GoFiles,Imports,XTestImports", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var ps []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

// arrows reads imports.txt: "package: allowed allowed/… (internal/* and errs
// are leaves that everyone may use)". "x/*" stands for any package below x,
// "!name" for a module outside that only the listed packages may import.
func arrows(t *testing.T) (allowed map[string][]string, only map[string][]string) {
	t.Helper()
	f, err := os.Open("imports.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	allowed, only = map[string][]string{}, map[string][]string{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		line, _, _ := strings.Cut(s.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, rest, ok := strings.Cut(line, ":")
		if !ok {
			t.Fatalf("imports.txt: no colon in %q", line)
		}
		if outside, is := strings.CutPrefix(name, "!"); is {
			only[outside] = strings.Fields(rest)
			continue
		}
		allowed[name] = strings.Fields(rest)
	}
	return allowed, only
}

func match(pattern, name string) bool {
	if base, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(name, base+"/")
	}
	return pattern == name
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

func TestImports(t *testing.T) {
	allowed, only := arrows(t)
	leaves := []string{"errs", "internal/*"}
	seen := map[string]bool{}
	for _, p := range packages(t) {
		from := p.rel()
		seen[from] = true
		arrowsOf, ok := allowed[from]
		if !ok && from != "." {
			t.Errorf("imports.txt has no line for %s", from)
			continue
		}
		for _, imp := range p.Imports {
			if to, own := strings.CutPrefix(imp, module+"/"); own {
				if !matchAny(leaves, to) && !matchAny(arrowsOf, to) {
					t.Errorf("%s imports %s: no such arrow in imports.txt", from, to)
				}
				continue
			}
			for outside, who := range only {
				if strings.HasPrefix(imp, outside) && !matchAny(who, from) {
					t.Errorf("%s imports %s: imports.txt keeps that to %v", from, imp, who)
				}
			}
		}
	}
	for name := range allowed {
		if !seen[name] {
			t.Errorf("imports.txt has a line for %s, which does not exist", name)
		}
	}
}

// The whole stays easy to see: few rooms, few floors, none that is a cupboard of another.
func TestRooms(t *testing.T) {
	ps := packages(t)
	imports, lines := map[string][]string{}, map[string]int{}
	importers := map[string][]string{}
	for _, p := range ps {
		for _, name := range p.GoFiles {
			data, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			lines[p.rel()] += bytes.Count(data, []byte("\n"))
		}
		for _, imp := range p.Imports {
			if to, own := strings.CutPrefix(imp, module+"/"); own {
				imports[p.rel()] = append(imports[p.rel()], to)
				importers[to] = append(importers[to], p.rel())
			}
		}
	}
	if len(ps) > packagesMax {
		t.Errorf("%d packages, at most %d", len(ps), packagesMax)
	}
	depths := map[string]int{}
	var depth func(string) int
	depth = func(name string) int {
		if depths[name] == 0 {
			most := 0
			for _, to := range imports[name] {
				most = max(most, depth(to))
			}
			depths[name] = most + 1
		}
		return depths[name]
	}
	for _, p := range ps {
		name := p.rel()
		if d := depth(name); d > depthMax {
			t.Errorf("%s stands on %d floors of imports, at most %d", name, d, depthMax)
		}
		if _, may := small[name]; !may && len(importers[name]) == 1 && lines[name] < smallLines {
			t.Errorf("%s has %d lines and serves only %s: it is a part of that", name, lines[name], importers[name][0])
		}
	}
}

func TestPackages(t *testing.T) {
	soup := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "core", "types", "model", "models"}
	for _, p := range packages(t) {
		rel := p.rel()
		if slices.Contains(soup, path.Base(rel)) {
			t.Errorf("%s: a folder is a noun that a user would say", rel)
		}
		lines, comments := 0, 0
		for _, name := range p.GoFiles {
			n, commented := fileFacts(t, filepath.Join(p.Dir, name))
			lines += n
			if commented {
				comments++
			}
		}
		if len(p.GoFiles) > 0 && comments != 1 {
			t.Errorf("%s: %d package comments, want exactly one", rel, comments)
		}
		if limit := max(linesMax, overLong[rel]); lines > limit {
			t.Errorf("%s: %d code lines, at most %d", rel, lines, limit)
		}
	}
}

// fileFacts counts the code lines of a file (comments and blank lines left
// out; generated files count as 0) and says whether it has a package comment.
func fileFacts(t *testing.T, name string) (lines int, commented bool) {
	t.Helper()
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	commented = f.Doc != nil
	if ast.IsGenerated(f) {
		// A generated file repeats the comment of its source; that is no second one.
		return 0, false
	}
	var s scanner.Scanner
	file := fset.AddFile(name, -1, len(src))
	s.Init(file, src, nil, 0)
	seen := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(seen), commented
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // put in at the end of a line; it is no code of the next one
		}
		first := file.Line(pos)
		for l := first; l <= first+strings.Count(lit, "\n"); l++ {
			seen[l] = true
		}
	}
}

// TestGlossary holds exported names against the "not" column of the glossary.
func TestGlossary(t *testing.T) {
	given := map[string]bool{"mcp/client.SessionID": true} // by an interface of another module
	banned := regexp.MustCompile(`(Session|Superstep|Rollback|Daemon|Invocation|Chatbot|Flavou?r|MicroVm|Vm[A-Z])`)
	for _, p := range packages(t) {
		if strings.HasPrefix(p.rel(), "cmd/") {
			continue
		}
		fset := token.NewFileSet()
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if ast.IsGenerated(f) {
				continue
			}
			for _, decl := range f.Decls {
				for _, id := range exported(decl) {
					if banned.MatchString(id) && !given[p.rel()+"."+id] {
						t.Errorf("%s: exported name %s uses a word that the glossary gives up", p.rel(), id)
					}
				}
			}
		}
	}
}

func exported(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// selector is a name of a package in an example.
var selector = regexp.MustCompile(`\b([a-z]\w*)\.([A-Z]\w*)`)

// TestExamples looks at the examples in comments: what they name of the package
// itself, and of those that it imports, is there.
func TestExamples(t *testing.T) {
	ps := packages(t)
	byPath := map[string]goPackage{}
	for _, p := range ps {
		byPath[p.ImportPath] = p
	}
	known := map[string]map[string]bool{}
	names := func(p goPackage) map[string]bool {
		if known[p.ImportPath] == nil {
			known[p.ImportPath] = exportedOf(t, p)
		}
		return known[p.ImportPath]
	}
	examples := 0
	for _, p := range ps {
		visible := map[string]goPackage{p.Name: p}
		for _, i := range p.Imports {
			if q, ok := byPath[i]; ok && visible[q.Name].Name == "" {
				visible[q.Name] = q
			}
		}
		for where, line := range exampleLines(t, p) {
			for _, m := range selector.FindAllStringSubmatch(line, -1) {
				examples++
				if q, ok := visible[m[1]]; ok && !names(q)[m[2]] {
					t.Errorf("%s: %s has no %s", where, q.rel(), m[0])
				}
			}
		}
	}
	if examples < 200 {
		t.Errorf("only %d names are in examples: does the search still find them?", examples)
	}
}

// exampleLines are the lines of code in a package's comments, by where they stand.
func exampleLines(t *testing.T, p goPackage) iter.Seq2[string, string] {
	t.Helper()
	return func(yield func(where, line string) bool) {
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for line := range strings.Lines(string(text)) {
				n++
				code, ok := strings.CutPrefix(line, "//\t")
				if code, _, _ = strings.Cut(code, "//"); ok && !yield(fmt.Sprintf("%s/%s:%d", p.rel(), name, n), code) {
					return
				}
			}
		}
	}
}

// exportedOf are the exported names of a package.
func exportedOf(t *testing.T, p goPackage) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				continue
			}
			for _, n := range exported(d) {
				out[n] = true
			}
		}
	}
	return out
}

// TestChangelog checks the form of the notes: a heading with a known kind, a
// paragraph in the past tense (the problem) and one in the present (what is now).
func TestChangelog(t *testing.T) {
	kinds := []string{"Enhancement: ", "Bugfix: ", "Change: ", "Security: "}
	notes, err := filepath.Glob("changelog/*/*.md")
	if err != nil || len(notes) == 0 {
		t.Fatalf("no notes in changelog/: %v", err)
	}
	for _, name := range notes {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head, body, _ := strings.Cut(string(text), "\n")
		if !slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(head, k) }) {
			t.Errorf("%s: the first line begins with one of %q", name, kinds)
		}
		if len(strings.Split(strings.TrimSpace(body), "\n\n")) < 2 {
			t.Errorf("%s: two paragraphs are wanted: what the problem was, what happens now", name)
		}
	}
}

// TestDocuments: links between our documents lead somewhere.
func TestDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	agents, err := os.ReadFile("AGENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(agents, []byte("\n")); n > 60 {
		t.Errorf("AGENTS.md has %d lines, at most 60", n)
	}
}
