package egress

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

// A policy may be as large as is said, and no larger.
func TestProblems_bounds(t *testing.T) {
	path := func(n int) string { return "/" + strings.Repeat("a", n-1) }
	for name, c := range map[string]struct {
		rule Rule
		want string // where the problem is; "" = there is none
	}{
		"ports":              {Rule{Host: "a.b", Ports: slices.Repeat([]int{1}, listMax)}, ""},
		"many ports":         {Rule{Host: "a.b", Ports: slices.Repeat([]int{1}, listMax+1)}, "allow[0].host"},
		"many methods":       {Rule{Host: "a.b", Methods: slices.Repeat([]string{"GET"}, listMax+1)}, "allow[0].host"},
		"many paths":         {Rule{Host: "a.b", Paths: slices.Repeat([]string{"/"}, listMax+1)}, "allow[0].host"},
		"methods":            {Rule{Host: "a.b", Methods: []string{"M-SEARCH", "AZ", strings.Repeat("A", methodMax)}}, ""},
		"no method":          {Rule{Host: "a.b", Methods: []string{""}}, "allow[0].methods[0]"},
		"a long method":      {Rule{Host: "a.b", Methods: []string{strings.Repeat("A", methodMax+1)}}, "allow[0].methods[0]"},
		"a path":             {Rule{Host: "a.b", Paths: []string{path(pathMax)}}, ""},
		"a long path":        {Rule{Host: "a.b", Paths: []string{path(pathMax + 1)}}, "allow[0].paths[0]"},
		"any parts":          {Rule{Host: "a.b", Paths: []string{"/a/**/b/**"}}, ""},
		"any parts, thrice":  {Rule{Host: "a.b", Paths: []string{"/**/a/**/b/**"}}, "allow[0].paths[0]"},
		"a path of one part": {Rule{Host: "a.b", Paths: []string{"/a/./b"}}, "allow[0].paths[0]"},
	} {
		got := ""
		for _, p := range Problems(Policy{Allow: []Rule{c.rule}}) {
			got += p.Field
		}
		if got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
	if list := Problems(Policy{Allow: slices.Repeat([]Rule{{Host: "a.b"}}, RulesMax)}); len(list) > 0 {
		t.Errorf("as many rules as are possible: %v", list)
	}
	_, err := Compile(Policy{Profile: "x", Allow: []Rule{{}}})
	if text := errs.Public(err); !strings.Contains(text, "profile: ") || !strings.Contains(text, "; allow[0].host: ") {
		t.Errorf("not all mistakes are said: %s", text)
	}
}

func TestName_bounds(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 62)+".", 4)
	for in, want := range map[string]string{
		"az.example": "az.example", "a.de": "a.de", "a9.z0": "a9.z0", "a.0xyz": "a.0xyz", long + "b": long + "b", long + "bc": "",
	} {
		if got := Name(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// What is refused always is no matter of the policy, also of a request.
func TestRequest_refused(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "169.254.169.254", "fd00::1"} {
		r := compile(t, Policy{Profile: Open, Allow: []Rule{{Host: "*"}}})
		if v := r.Request(Request{Host: host, Port: 80, Method: "GET", Path: "/"}); v.Allowed || !strings.Contains(v.Why, "always refused") {
			t.Errorf("%s: %+v", host, v)
		}
	}
}

// A rule is about the hosts that it names, and not about those that end like them.
func TestRule_Covers(t *testing.T) {
	for name, c := range map[string]struct {
		rule Rule
		host string
		port int
		want bool
	}{
		"itself":                 {Rule{Host: "a.example"}, "a.example", 443, true},
		"one that ends like it":  {Rule{Host: "a.example"}, "evila.example", 443, false},
		"one beneath it":         {Rule{Host: "a.example"}, "b.a.example", 443, false},
		"beneath":                {Rule{Host: "*.a.example"}, "b.a.example", 443, true},
		"not beneath":            {Rule{Host: "*.a.example"}, "ba.example", 443, false},
		"not itself":             {Rule{Host: "*.a.example"}, "a.example", 443, false},
		"all names":              {Rule{Host: "*"}, "a.example", 443, true},
		"but no address":         {Rule{Host: "*"}, "1.1.1.1", 443, false},
		"another port":           {Rule{Host: "a.example"}, "a.example", 22, false},
		"what it does not allow": {Rule{Host: "a.example", Methods: []string{"PUT"}}, "a.example", 443, false},
	} {
		if got := c.rule.Covers(Request{Host: c.host, Port: c.port, Method: "GET", Path: "/"}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	r := compile(t, Policy{Profile: Open, Deny: []Rule{{Host: "*"}}})
	for _, host := range []string{"a.example", "1.1.1.1"} {
		if v := r.Connection(host, 25); v.Allowed {
			t.Errorf("all is denied, and %s is %+v", host, v)
		}
	}
}

// Patterns are compared part by part, whichever of the two is longer.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"/a/*/b", "/a/x/b", true},
		{"/a/*/b", "/a", false},
		{"/a/*/b", "/a/x", false},
		{"/a/*/b", "/a/x/b/c", false},
		{"/a/*/b", "/a/x/c", false},
		{"/", "/", true},
		{"/", "/a", false},
		{"/*", "/", true},
		{"/**", "/", true},
		{"/**", "/a/b", true},
		{"/a/**/b", "/a/b", true},
		{"/a/**/b", "/a/x/y/b", true},
		{"/a/**/b", "/a/x/y", false},
		{"/a/**/b", "/a", false},
		{"/**/a/**/b", "/x/a/y/b", true},
		{"/**/a/**/b", "/x/b/y/a", false},
	} {
		if got := matches(c.pattern, c.path); got != c.want {
			t.Errorf("%s and %s: %v", c.pattern, c.path, got)
		}
	}
}

// A path that servers may read in two ways is allowed by none of them, and denied by both.
func TestRequest_paths(t *testing.T) {
	r := compile(t, Policy{
		Allow: []Rule{{Host: "api.example", Paths: []string{"/v1/**"}}, {Host: "all.example"}, {Host: "git.example", Access: Read}},
		Deny:  []Rule{{Host: "all.example", Paths: []string{"/admin/**"}}},
	})
	for name, c := range map[string]struct {
		q    Request
		want bool
	}{
		"escaped, not needed":     {Request{Host: "api.example", Path: "/%761/a"}, false},
		"a part that is a dot":    {Request{Host: "api.example", Path: "/v1/./a"}, false},
		"escaped wrongly, denied": {Request{Host: "all.example", Path: "/x%zz"}, false},
		"a query like git's":      {Request{Host: "git.example", Path: "/x", Query: "service=git-receive-pack"}, true},
	} {
		c.q.Method, c.q.Port = "GET", 443
		if v := r.Request(c.q); v.Allowed != c.want {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// What a profile allows is beneath what people wrote: it is limited by what they deny, said
// after what they allow, and of no other profile.
func TestRequest_usual(t *testing.T) {
	usual := []Rule{{Host: "all.example"}, {Host: "git.example", Access: Read}, {Host: "git.example", Methods: []string{"HEAD"}}}
	p := Policy{Profile: Default, Deny: []Rule{{Host: "all.example", Methods: []string{"PATCH"}}}}
	ask := func(method, host string) Verdict {
		t.Helper()
		r, err := Compile(p, usual...)
		if err != nil {
			t.Fatal(err)
		}
		return r.Request(Request{Host: host, Port: 443, Method: method, Path: "/"})
	}
	if d := cmp.Diff(Verdict{Allowed: true, Rule: "default: all.example", Limited: true}, ask("GET", "all.example")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Verdict{Rule: "git.example read", Why: "of git.example only this is allowed: git.example read"}, ask("PUT", "git.example")); d != "" {
		t.Error(d)
	}
	p.Allow = []Rule{{Host: "git.example", Methods: []string{"POST"}}}
	if v := ask("PUT", "git.example"); v.Rule != "git.example POST" {
		t.Errorf("what a person wrote is not said: %+v", v)
	}
	for _, p.Profile = range []string{"", None} {
		if v := ask("GET", "all.example"); v.Allowed {
			t.Errorf("the profile %q: %+v", p.Profile, v)
		}
	}
}
