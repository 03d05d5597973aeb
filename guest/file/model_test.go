package file_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skete-dev/skete/guest/wire"
)

// model is a file tree in memory: path -> content; directories end in "/".
type model map[string]string

func (m model) isDir(p string) bool  { _, ok := m[p+"/"]; return ok || p == "." }
func (m model) isFile(p string) bool { _, ok := m[p]; return ok }
func (m model) there(p string) bool  { return m.isDir(p) || m.isFile(p) }

func (m model) empty(dir string) bool {
	for p := range m {
		if strings.HasPrefix(p, dir+"/") && p != dir+"/" {
			return false
		}
	}
	return true
}

func (m model) remove(p string) {
	maps.DeleteFunc(m, func(k, _ string) bool { return k == p || strings.HasPrefix(k, p+"/") })
}

func (m model) graft(from, to string) {
	add := model{}
	for k, v := range m {
		if k == from || strings.HasPrefix(k, from+"/") {
			add[to+k[len(from):]] = v
		}
	}
	maps.Copy(m, add)
}

// parentOK says whether an entry can be made at p.
func (m model) parentOK(p string) bool { return m.isDir(path.Dir(p)) }

func inside(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// mayPlace says whether from can become to.
func (m model) mayPlace(from, to string, overwrite bool) bool {
	switch {
	case !m.there(from) || !m.parentOK(to):
		return false
	case m.isDir(from) && inside(to, from) && to != from:
		return false
	case !m.there(to):
		return true
	case !overwrite:
		return false
	case m.isDir(from) != m.isDir(to):
		return false
	}
	return m.isFile(to) || m.empty(to)
}

// Whatever the order of writes, moves, copies and removals: the tree is what
// a tree in memory is, and every call succeeds exactly when it should.
func TestTree_behavesLikeAModel(t *testing.T) {
	g := newGuest(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		base := fmt.Sprintf("round%d", round)
		g.mkdir(base)
		m := model{}
		name := rapid.SampledFrom([]string{"a", "b", "a/c", "a/d", "b/c", "a/c/e", "b/c/e"})
		at := func(p string) string { return path.Join(base, p) }
		verdict := func(rt *rapid.T, what string, err error, want bool) {
			if (err == nil) != want {
				rt.Fatalf("%s: want success %v, got %v", what, want, err)
			}
		}
		place := func(rt *rapid.T, verb string, do func(string, string, bool) error) (string, string, bool) {
			from, to, over := name.Draw(rt, "from"), name.Draw(rt, "to"), rapid.Bool().Draw(rt, "overwrite")
			if from == to {
				rt.Skip("the same path twice")
			}
			want := m.mayPlace(from, to, over)
			verdict(rt, fmt.Sprintf("%s %s %s %v", verb, from, to, over), do(at(from), at(to), over), want)
			return from, to, want
		}
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				p, content := name.Draw(rt, "path"), rapid.StringN(0, 20, 40).Draw(rt, "content")
				err := g.writeFile(at(p), content)
				verdict(rt, "write "+p, err, m.parentOK(p) && !m.isDir(p))
				if err == nil {
					m[p] = content
				}
			},
			"mkdir": func(rt *rapid.T) {
				p := name.Draw(rt, "path")
				_, err := call(g.c.MakeDir, &wire.MakeDirRequest{Path: []byte(at(p))})
				verdict(rt, "mkdir "+p, err, m.parentOK(p) && !m.there(p))
				if err == nil {
					m[p+"/"] = ""
				}
			},
			"move": func(rt *rapid.T) {
				from, to, ok := place(rt, "move", func(a, b string, o bool) error { _, err := g.move(a, b, o); return err })
				if ok {
					m.remove(to)
					m.graft(from, to)
					m.remove(from)
				}
			},
			"copy": func(rt *rapid.T) {
				from, to, ok := place(rt, "copy", func(a, b string, o bool) error { _, err := g.copy(a, b, o); return err })
				if ok {
					m.remove(to)
					m.graft(from, to)
				}
			},
			"remove": func(rt *rapid.T) {
				p, recursive := name.Draw(rt, "path"), rapid.Bool().Draw(rt, "recursive")
				_, err := g.remove(at(p), recursive)
				verdict(rt, "remove "+p, err, m.isFile(p) || m.isDir(p) && (recursive || m.empty(p)))
				if err == nil {
					m.remove(p)
				}
			},
			"": func(rt *rapid.T) {
				if diff := cmp.Diff(m, onDisk(filepath.Join(g.work, base))); diff != "" {
					rt.Fatal(diff)
				}
			},
		})
	})
}

func onDisk(dir string) model {
	m := model{}
	_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p)
		switch {
		case err != nil || rel == ".":
		case d.IsDir():
			m[rel+"/"] = ""
		default:
			b, _ := os.ReadFile(p)
			m[rel] = string(b)
		}
		return nil
	})
	return m
}
