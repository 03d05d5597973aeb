package egress

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

func compile(t testing.TB, p Policy) *Rules {
	t.Helper()
	r, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRefused(t *testing.T) {
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.8.8.8", "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.168.1.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001::1",
		"fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
	} {
		if Refused(netip.MustParseAddr(a)) == "" {
			t.Errorf("%s is not refused", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "9.255.255.255", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "193.0.0.1", "203.0.113.9", "2606:4700::1111", "::ffff:1.1.1.1", "2001:db8::1"} {
		if what := Refused(netip.MustParseAddr(a)); what != "" {
			t.Errorf("%s: %s", a, what)
		}
	}
	if Refused(netip.Addr{}) == "" {
		t.Error("no address is not refused")
	}
}

func TestName(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]string{
		"Example.COM": "example.com", "example.com.": "example.com", "a": "a", "_dmarc.x-y.example": "_dmarc.x-y.example", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"1.example": "1.example", "0x7f.example": "0x7f.example", long + ".example": long + ".example",
		"": "", ".": "", "a..b": "", ".a": "", "-a.example": "", "a-.example": "", "bücher.example": "", "a b": "", "a\x00b": "", "a/b": "", "a:1": "", "a@b": "", "*.a": "", "a\n": "",
		long + "a.example": "", strings.Repeat("a.", 127) + "ab": "",
		"127.0.0.1": "", "1.2": "", "2130706433": "", "0x7f.1": "", "0x7f000001": "", "0x": "", "0177.0.0.1": "", "a.017": "", "1.2.3.4.": "", "[::1]": "", "::1": "", "a.0b1": "", "a.099": "",
	} {
		if got := Name(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		policy Policy
		want   []string
	}{
		"nothing":   {Policy{}, nil},
		"all right": {Policy{Profile: Open, Allow: []Rule{{Host: "*"}, {Host: "*.example.com", Ports: []int{1, 65535}, Access: Read, Paths: []string{"/", "/**", "/a/*/b"}}, {Host: "1.1.1.1"}, {Host: "db.example", Ports: []int{5432}, Pinned: true}}, Deny: []Rule{{Host: "a.b", Methods: []string{"GET"}}}}, nil},
		"a profile": {Policy{Profile: "opne"}, []string{`profile: "opne" is no profile`}},
		"hosts": {
			Policy{Allow: []Rule{{}, {Host: "https://a.b/"}, {Host: "a.b:443"}, {Host: "a.*.b"}, {Host: "*a.b"}, {Host: "Example.com"}, {Host: "*.Example.com."}, {Host: "bücher.example"}, {Host: "10.0.0.1"}, {Host: "::1"}, {Host: "127.1"}}},
			[]string{
				`allow[0].host: "" is no host: a name has labels`, `allow[1].host: "https://a.b/" is no host: it is the name alone`, `allow[2].host: "a.b:443" is no host: it is the name alone`,
				`allow[3].host: "a.*.b" is no host: "*" stands alone`, `allow[4].host: "*a.b" is no host: "*" stands alone`, `allow[5].host: "Example.com" is no host: write "example.com"`,
				`allow[6].host: "*.Example.com." is no host: write "*.example.com"`, `allow[7].host: "bücher.example" is no host: a name has labels`,
				`allow[8].host: "10.0.0.1" is no host: it is a private address, which is always refused`, `allow[9].host: "::1" is no host: it is a special address`, `allow[10].host: "127.1" is no host: a name has`,
			},
		},
		"the rest": {
			Policy{Allow: []Rule{{Host: "a.b", Ports: []int{0, 70000}, Access: "write", Methods: []string{"get", "GE T"}, Paths: []string{"a", "/a//b", "/../a", "/a*", "/a?b", "/%2e"}}}},
			[]string{
				`allow[0].access: "write" is no access`, "allow[0].ports[0]: 0 is no port", "allow[0].ports[1]: 70000 is no port", `allow[0].methods[0]: "get" is no method`, `allow[0].methods[1]: "GE T"`,
				`allow[0].paths[0]: "a": a path begins with "/"`, `allow[0].paths[1]`, `allow[0].paths[2]`, `allow[0].paths[3]: "/a*": "*" and "**" stand alone`, `allow[0].paths[4]: "/a?b": a path ends`, `allow[0].paths[5]`,
			},
		},
		"pinned": {
			Policy{Allow: []Rule{{Host: "a.b", Pinned: true, Access: Read}, {Host: "*.b", Pinned: true}}, Deny: []Rule{{Host: "a.b", Pinned: true}, {Host: "a.b", Access: Read}}},
			[]string{"allow[0].pinned: nothing can be said", "allow[1].pinned: name the hosts", "deny[0].pinned: a host that is denied", "deny[1].access: a rule that denies"},
		},
		"too much": {Policy{Deny: make([]Rule, RulesMax+1)}, []string{"allow: there are 501 rules"}},
	} {
		var got []string
		for _, p := range Problems(c.policy) {
			got = append(got, p.Field+": "+p.Text)
		}
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: %s", name, cmp.Diff(c.want, got))
		}
		if _, err := Compile(c.policy); (err == nil) != (c.want == nil) || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConnection(t *testing.T) {
	mixed := Policy{
		Allow: []Rule{{Host: "*.example.com"}, {Host: "api.example.org", Ports: []int{8443}}, {Host: "git.example.org", Access: Read}, {Host: "db.example.org", Ports: []int{5432}, Pinned: true}, {Host: "1.1.1.1"}},
		Deny:  []Rule{{Host: "bad.example.com"}, {Host: "part.example.com", Methods: []string{"PUT"}}, {Host: "*.closed.example.com"}},
	}
	for _, c := range []struct {
		policy Policy
		to     string
		want   Verdict
	}{
		{Policy{}, "example.com:443", Verdict{Why: "no rule allows example.com, port 443"}},
		{Policy{Profile: Open}, "example.com:443", Verdict{Allowed: true, Rule: "open"}},
		{Policy{Profile: Open}, "1.1.1.1:53", Verdict{Allowed: true, Rule: "open"}},
		{Policy{Profile: Open}, "127.0.0.1:80", Verdict{Why: "127.0.0.1 is an address of the host itself, which is always refused"}},
		{Policy{Profile: Open, Deny: []Rule{{Host: "*.example.com"}}}, "a.example.com:25", Verdict{Rule: "*.example.com", Why: "a rule denies *.example.com"}},
		{Policy{Allow: []Rule{{Host: "*"}}}, "1.1.1.1:443", Verdict{Why: "no rule allows 1.1.1.1, port 443"}},
		{mixed, "www.example.com:443", Verdict{Allowed: true, Rule: "*.example.com"}},
		{mixed, "a.b.example.com:80", Verdict{Allowed: true, Rule: "*.example.com"}},
		{mixed, "www.example.com:22", Verdict{Why: "no rule allows www.example.com, port 22"}},
		{mixed, "example.com:443", Verdict{Why: "no rule allows example.com, port 443"}},
		{mixed, "notexample.com:443", Verdict{Why: "no rule allows notexample.com, port 443"}},
		{mixed, "bad.example.com:443", Verdict{Rule: "bad.example.com", Why: "a rule denies bad.example.com"}},
		{mixed, "x.closed.example.com:80", Verdict{Rule: "*.closed.example.com", Why: "a rule denies *.closed.example.com"}},
		{mixed, "part.example.com:443", Verdict{Allowed: true, Rule: "*.example.com"}}, // its requests are looked at
		{mixed, "api.example.org:8443", Verdict{Allowed: true, Rule: "api.example.org:8443"}},
		{mixed, "api.example.org:443", Verdict{Why: "no rule allows api.example.org, port 443"}},
		{mixed, "db.example.org:5432", Verdict{Allowed: true, Rule: "db.example.org:5432 pinned", Pinned: true}},
		{mixed, "1.1.1.1:443", Verdict{Allowed: true, Rule: "1.1.1.1"}},
	} {
		host, port := split(t, c.to)
		if d := cmp.Diff(c.want, compile(t, c.policy).Connection(host, port)); d != "" {
			t.Errorf("%s: %s", c.to, d)
		}
	}
	var none *Rules
	if v := none.Connection("a.b", 80); v.Allowed || none.Request(Request{Host: "a.b", Port: 80}).Allowed {
		t.Errorf("no rules: %+v", v)
	}
}

func split(t *testing.T, to string) (host string, port int) {
	t.Helper()
	i := strings.LastIndex(to, ":")
	if _, err := fmt.Sscan(to[i+1:], &port); err != nil {
		t.Fatal(err)
	}
	return to[:i], port
}

// The profile default allows what it is told, beneath what people wrote.
func TestCompile_usual(t *testing.T) {
	usual := []Rule{{Host: "py.example", Access: Read}, {Host: "git.example", Access: Read}}
	p := Policy{Profile: Default, Allow: []Rule{{Host: "py.example", Methods: []string{"POST"}}}, Deny: []Rule{{Host: "git.example", Paths: []string{"/secret/**"}}}}
	r, err := Compile(p, usual...)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"GET py.example /simple/x": "default: py.example read", "POST py.example /": "py.example POST", "PUT py.example /": "",
		"GET git.example /a": "default: git.example read", "GET git.example /secret/x": "", "GET other.example /": "",
	} {
		var q Request
		if _, err := fmt.Sscan(line, &q.Method, &q.Host, &q.Path); err != nil {
			t.Fatal(err)
		}
		q.Port = 443
		if v := r.Request(q); v.Allowed != (want != "") || v.Allowed && v.Rule != want || v.Allowed && !v.Limited {
			t.Errorf("%s: %+v", line, v)
		}
	}
	if v := r.Connection("git.example", 443); !v.Allowed || v.Pinned {
		t.Errorf("%+v", v)
	}
	if v := r.Connection("git.example", 22); v.Allowed {
		t.Errorf("%+v", v)
	}
	if p.Profile = None; compile(t, p).Request(Request{Host: "git.example", Port: 443, Method: "GET", Path: "/a"}).Allowed {
		t.Error("another profile allows it too")
	}
	other, err := Compile(Policy{Profile: Open}, usual...)
	if err != nil || !other.Request(Request{Host: "py.example", Port: 443, Method: "PUT", Path: "/a"}).Allowed {
		t.Errorf("the profile open is limited: %v", err)
	}
}

func TestRequest(t *testing.T) {
	p := Policy{
		Allow: []Rule{
			{Host: "git.example", Access: Read},
			{Host: "api.example", Methods: []string{"GET", "POST"}, Paths: []string{"/v1/**", "/users/*/keys"}},
			{Host: "api.example", Methods: []string{"DELETE"}, Paths: []string{"/tmp"}},
			{Host: "all.example"},
			{Host: "pin.example", Pinned: true},
		},
		Deny: []Rule{{Host: "all.example", Paths: []string{"/admin/**"}}, {Host: "all.example", Methods: []string{"PATCH"}}},
	}
	r := compile(t, p)
	for line, allowed := range map[string]bool{
		"GET git.example /a/b.tar.gz": true, "HEAD git.example /": true, "OPTIONS git.example /": true, "PUT git.example /": false, "POST git.example /": false, "DELETE git.example /": false,
		"FETCH git.example /": false, "get git.example /": false,
		"GET git.example /r.git/info/refs?service=git-upload-pack": true, "POST git.example /r.git/git-upload-pack": true,
		"GET git.example /r.git/info/refs?service=git-receive-pack": false, "POST git.example /r.git/git-receive-pack": false,
		"GET git.example /r.git/info/refs?service=git-upload-pack&service=git-receive-pack": false, "GET git.example /r.git/info/refs?service=git-receive-pack;x": false,
		"GET git.example /r.git/info/refs": true, "POST git.example /r/..%2fgit-upload-pack/git-upload-pack": false, "POST git.example /x/../git-upload-pack": false,
		"GET api.example /v1/a/b": true, "POST api.example /v1/": true, "PUT api.example /v1/a": false, "GET api.example /v2/a": false, "GET api.example /v1": true, "GET api.example /v10": false,
		"GET api.example /users/7/keys": true, "GET api.example /users/7/8/keys": false, "GET api.example /users//keys": false, "DELETE api.example /tmp": true, "DELETE api.example /v1/a": false,
		"GET api.example /v1/../v2": false, "GET api.example /v1/%2e%2e/v2": false, "GET api.example /v1/..%2Fv2": false, "GET api.example /v1/a%2fb": false, "GET api.example /v1/a\\..\\b": false, "GET api.example /v1/a;x=/../b": false, "GET api.example v1/a": false,
		"GET api.example /v1/%252e%252e/x": false, "GET api.example /v1/a%20b": true,
		"PUT all.example /x": true, "GET all.example /admin/x": false, "GET all.example /x/../admin/x": false, "GET all.example /%61dmin/x": false, "PATCH all.example /x": false, "GET all.example /admin": false, "GET all.example /": true,
		"GET pin.example /":   false, // never in sight
		"GET other.example /": false,
	} {
		var method, host, target string
		if _, err := fmt.Sscan(line, &method, &host, &target); err != nil {
			t.Fatal(line, err)
		}
		path, query, _ := strings.Cut(target, "?")
		v := r.Request(Request{Host: host, Port: 443, Method: method, Path: path, Query: query})
		if v.Allowed != allowed || v.Allowed == (v.Why != "") {
			t.Errorf("%s: %+v", line, v)
		}
	}
	if v := r.Request(Request{Host: "all.example", Port: 443, Method: "GET", Path: "/"}); !v.Limited {
		t.Errorf("beside a denied method: %+v", v)
	}
	denied := compile(t, Policy{Allow: []Rule{{Host: "pin.example", Pinned: true}}, Deny: []Rule{{Host: "pin.example", Methods: []string{"PUT"}}}})
	if v := denied.Connection("pin.example", 443); v.Allowed {
		t.Errorf("a pinned host of which requests are denied: %+v", v)
	}
	if v := r.Request(Request{Host: "git.example", Port: 443, Method: "GET", Path: "/", Upgrade: true}); v.Allowed || v.Why != "of git.example only this is allowed: git.example read" {
		t.Errorf("a WebSocket to a host that may be read: %+v", v)
	}
	if v := r.Request(Request{Host: "all.example", Port: 443, Method: "GET", Path: "/", Upgrade: true}); !v.Allowed {
		t.Errorf("a WebSocket: %+v", v)
	}
}

// What a rule with paths allows, no server can take for a path outside of them.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{"/v1/a", "/v1/../b", "/v1/%2e%2e/b", "/v1//b", "/", "", "/v1/\x00", "/v1/a%2", "/v1/..;/b"} {
		f.Add(s)
	}
	r := compile(f, Policy{Allow: []Rule{{Host: "a.example", Paths: []string{"/v1/**", "/x/**/y/**"}}}})
	f.Fuzz(func(t *testing.T, path string) {
		v := r.Request(Request{Host: "a.example", Port: 443, Method: "GET", Path: path})
		if v.Allowed && !strings.HasPrefix(path, "/v1") && !strings.HasPrefix(path, "/x/") || v.Allowed && (strings.Contains(path, "..") && strings.Contains(path, "/../") || strings.Contains(strings.ToLower(path), "%2e")) {
			t.Errorf("%q is allowed", path)
		}
	})
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"a.example", "0x7f.1", "A.B.", "-a", "1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := Name(s)
		if n == "" {
			return
		}
		if Name(n) != n || len(n) > hostMax {
			t.Errorf("%q: %q", s, n)
		}
		if _, err := netip.ParseAddr(n); err == nil {
			t.Errorf("%q is an address", s)
		}
	})
}
