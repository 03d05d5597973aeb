package preview

import (
	"net/http"
	"net/url"
	"strings"
)

// Cookies of previews. One for pages of their own, which other sites' requests
// do not carry, and one for frames in the app, where the browser takes a cookie
// only if it may cross sites; that one is partitioned, so that it exists only
// beneath the app. They have two names because a browser may send both.
const (
	cookieName      = "__Host-pv"
	frameCookieName = "__Host-pvf"
	// plainCookieName is for programs such as curl over plain http, which keep
	// no cookie of the other names there. It holds a public link and nothing else.
	plainCookieName = "skete-pv"
	// cookiesMax bounds how many candidates of a request are looked at.
	cookiesMax = 4
)

// ours reports whether a cookie of that name belongs to the platform. The case
// does not count: browsers treat the prefix so.
func ours(name string) bool {
	name = strings.ToLower(strings.TrimLeft(name, " \t="))
	return strings.HasPrefix(name, plainCookieName) || strings.HasPrefix(name, "__host-pv") || strings.HasPrefix(name, "__host-sid")
}

// cookiePairs yields the pairs of all Cookie headers as they were written.
func cookiePairs(h http.Header) []string {
	var pairs []string
	for _, line := range h["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			if pair = strings.Trim(pair, " \t"); pair != "" {
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs
}

// visitCookies returns what a browser shows as its way in.
func visitCookies(h http.Header) []string {
	var values []string
	for _, pair := range cookiePairs(h) {
		name, value, _ := strings.Cut(pair, "=")
		known := name == cookieName || name == frameCookieName || name == plainCookieName && strings.HasPrefix(value, linkIDPrefix)
		if known && len(values) < cookiesMax {
			values = append(values, value)
		}
	}
	return values
}

// cleanRequest removes from a request what the app must not see or could be
// fooled by: the platform's cookies and keys, and every name under which an
// identity or an address of ours travels, also as frameworks spell it that make
// one of '-' and '_'.
func cleanRequest(h http.Header, secret func(string) bool) {
	var keep []string
	for _, pair := range cookiePairs(h) {
		if !ours(pair) {
			keep = append(keep, pair)
		}
	}
	h.Del("Cookie")
	if len(keep) > 0 {
		h.Set("Cookie", strings.Join(keep, "; "))
	}
	for name, values := range h {
		if reserved(name) || secret != nil && holdsSecret(name, values, secret) {
			delete(h, name)
		}
	}
	if u, err := url.Parse(h.Get("Referer")); err != nil || strings.HasPrefix(u.Path, ownPath) {
		h.Del("Referer") // it may hold a code or a link
	}
}

func reserved(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	for _, p := range []string{"x-user-", "x-forwarded-", "x-skete-"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return name == "x-sig" || name == "x-forwarded" || name == "forwarded" || name == "x-real-ip"
}

// holdsSecret reports whether a header carries a key of ours.
func holdsSecret(name string, values []string, secret func(string) bool) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if name != "authorization" && name != "x-api-key" && name != "proxy-authorization" {
		return false
	}
	for _, v := range values {
		for word := range strings.FieldsSeq(strings.ReplaceAll(v, ",", " ")) {
			if secret(word) {
				return true
			}
		}
	}
	return false
}

// cleanAnswer removes from an answer what would reach beyond the preview's own
// host, and lets the app alone frame it. The page's own policy stays, without
// its word about frames.
func cleanAnswer(h http.Header, app string) {
	cookies := h["Set-Cookie"]
	h.Del("Set-Cookie")
	for _, line := range cookies {
		if line, ok := cleanSetCookie(line); ok {
			h.Add("Set-Cookie", line)
		}
	}
	for _, name := range []string{
		"Service-Worker-Allowed", "X-Frame-Options", "Strict-Transport-Security", "Alt-Svc", "Nel", "Report-To", "Public-Key-Pins", "X-User-Id", "X-Sig",
	} {
		h.Del(name)
	}
	policies := h["Content-Security-Policy"]
	h.Del("Content-Security-Policy")
	for _, line := range policies {
		for policy := range strings.SplitSeq(line, ",") {
			if policy = withoutFrames(policy); policy != "" {
				h.Add("Content-Security-Policy", policy)
			}
		}
	}
	h.Add("Content-Security-Policy", framePolicy(app))
	cleanAge(h)
}

// cleanAge keeps browsers from showing what a file was before an undo. From a
// time alone they guess how long an answer is good, and a server compares whole
// seconds, where an undo and a redo fit into one.
func cleanAge(h http.Header) {
	if h.Get("Last-Modified") == "" {
		return
	}
	if h.Get("Etag") == "" {
		h.Del("Last-Modified")
	}
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-cache")
	}
}

// framePolicy: the app may show a preview in a frame, and a preview itself.
func framePolicy(app string) string { return "frame-ancestors 'self' " + app }

func withoutFrames(policy string) string {
	var keep []string
	for directive := range strings.SplitSeq(policy, ";") {
		words := strings.Fields(directive)
		if len(words) > 0 && !strings.EqualFold(words[0], "frame-ancestors") {
			keep = append(keep, strings.Join(words, " "))
		}
	}
	return strings.Join(keep, "; ")
}

// cleanSetCookie returns the line without its Domain; false = the cookie is
// named like one of ours.
func cleanSetCookie(line string) (string, bool) {
	parts := strings.Split(line, ";")
	if ours(parts[0]) {
		return "", false
	}
	keep := parts[:1]
	for _, attr := range parts[1:] {
		name, _, _ := strings.Cut(attr, "=")
		if !strings.EqualFold(strings.Trim(name, " \t"), "domain") {
			keep = append(keep, attr)
		}
	}
	return strings.Join(keep, ";"), true
}

// ownOrigin reports whether a request is the preview's own doing: a browser
// that acts for another page says so. Sockets and writes must say where they
// come from; reading is refused to other pages too, but for going there.
func ownOrigin(r *http.Request, own string) bool {
	origins, site := r.Header["Origin"], r.Header.Get("Sec-Fetch-Site")
	switch {
	case len(origins) > 1:
		return false
	case len(origins) == 1 && origins[0] != "null":
		return origins[0] == own && (site == "" || site == "same-origin" || site == "none")
	}
	// Browsers leave the origin out, or null, where a policy says so; no page
	// can lie about the site.
	if site == "same-origin" {
		return true
	}
	if len(origins) == 1 || !reading(r) {
		return false
	}
	return site == "" || site == "none" || r.Header.Get("Sec-Fetch-Mode") == "navigate"
}

// reading reports whether r can change nothing.
func reading(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
}
