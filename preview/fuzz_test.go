package preview

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestBadPaths(t *testing.T) {
	for _, s := range []string{"", "/", "/a", "/a?b=c&d=%20", "/a:b", "/%2F%2Fevil", "/é"[:1]} {
		if _, err := localPath(s); err != nil {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{
		"a", "//evil.example", "/\\evil.example", "\\\\evil", "http://evil.example/", "javascript:alert(1)", "///evil", "/a\n", "/a b", "/é", "/a#b", "/%zz",
		"?a", "#", " /", "/" + strings.Repeat("a", pathLenMax), "/\x00", "/\t/evil",
	} {
		if got, err := localPath(s); err == nil {
			t.Errorf("%.40q was taken: %q", s, got)
		}
	}
}

func TestBadTokens(t *testing.T) {
	good := "lnk_" + boxID + "." + strings.Repeat("a", macHexLen)
	if _, ok := parseToken(good); !ok {
		t.Error("a good one is refused")
	}
	for _, s := range []string{
		"", ".", good + "a", good[1:], good[:len(good)-1], strings.ToUpper(good), strings.Replace(good, ".", "", 1), good + ".", strings.Replace(good, "lnk_", "sbx_", 1),
		strings.Replace(good, "abc", "a/c", 1), "lnk_" + strings.Repeat("a", 1<<16) + ".x", good[:len(good)-1] + "g",
	} {
		if id, ok := parseToken(s); ok {
			t.Errorf("%.60q was taken: %q", s, id)
		}
	}
	for _, s := range []string{"", strings.Repeat("A", 25), strings.Repeat("A", 27), strings.Repeat("a", 26), strings.Repeat("A", 25) + "/", strings.Repeat("A", 25) + "1"} {
		if secretOK(s) {
			t.Errorf("the code %q was taken", s)
		}
	}
}

func FuzzLocalPath(f *testing.F) {
	for _, s := range []string{"/", "//x", "/a?b", "/\\x", "http://x"} {
		f.Add(s)
	}
	base, _ := url.Parse("http://5173-x.preview.localhost:7733/.skete/enter")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := localPath(s)
		if err != nil {
			return
		}
		u, err := base.Parse(got)
		if err != nil || u.Host != base.Host || u.Scheme != base.Scheme || !strings.HasPrefix(got, "/") || strings.HasPrefix(got, "//") {
			t.Errorf("%q leads to %v, %v", s, u, err)
		}
	})
}

func FuzzToken(f *testing.F) {
	f.Add("lnk_" + boxID + "." + strings.Repeat("a", macHexLen))
	f.Add("lnk_.a")
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := parseToken(s)
		if ok && (len(s) != linkIDLen+1+macHexLen || strings.ContainsAny(id, "/. ")) {
			t.Errorf("%q gives %q", s, id)
		}
		if secretOK(s) && url.QueryEscape(s) != s {
			t.Errorf("the code %q is not plain", s)
		}
	})
}

// Whatever a browser or an app writes, none of our cookies gets through, and
// none of another domain.
func FuzzCookies(f *testing.F) {
	f.Add("a=1; __Host-pv=2;b", "a=1; Domain=x")
	f.Add("=__Host-sid=1; ;", "__Host-pv=1")
	f.Fuzz(func(t *testing.T, sent, set string) {
		h := http.Header{"Cookie": {sent}, "Set-Cookie": {set}}
		visitCookies(h)
		cleanRequest(h, nil)
		for _, pair := range cookiePairs(h) {
			name, _, _ := strings.Cut(pair, "=")
			if n := strings.ToLower(strings.TrimSpace(name)); strings.HasPrefix(n, "__host-pv") || strings.HasPrefix(n, "__host-sid") {
				t.Errorf("%q passes %q", sent, pair)
			}
		}
		cleanAnswer(h, "http://app")
		for _, line := range h["Set-Cookie"] {
			c, err := http.ParseSetCookie(line)
			if err == nil && (c.Domain != "" || ours(c.Name)) {
				t.Errorf("%q passes %q", set, line)
			}
		}
	})
}

func FuzzPolicy(f *testing.F) {
	f.Add("default-src 'self'; frame-ancestors *")
	f.Add("FRAME-ANCESTORS\tx")
	f.Fuzz(func(t *testing.T, policy string) {
		for directive := range strings.SplitSeq(withoutFrames(policy), ";") {
			words := strings.Fields(directive)
			if len(words) > 0 && strings.EqualFold(words[0], "frame-ancestors") {
				t.Errorf("%q keeps %q", policy, directive)
			}
		}
	})
}
