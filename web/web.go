package web

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"io"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// What stands in the built page for what the server fills in.
const (
	noncePlace   = "SKETE-NONCE"
	versionPlace = "SKETE-VERSION"
)

// Page is what differs between servers.
type Page struct {
	Version string
	// Frames are the origins of previews, as a content security policy names them.
	Frames []string
}

// Policy is the content security policy of a page. Trusted types leave HTML to the one module
// that cleans it; style attributes are allowed because terminals set colours by them.
func (p Page) policy(nonce string) string {
	frames := strings.Join(p.Frames, " ")
	if frames == "" {
		frames = "'none'"
	}
	return "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-" + nonce + "'; style-src-attr 'unsafe-inline'; img-src 'self' data: blob:; " +
		"font-src 'self'; connect-src 'self'; frame-src " + frames + "; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'; " +
		"require-trusted-types-for 'script'; trusted-types dompurify"
}

// ServePage answers with the page, whichever of its routes was asked for.
func ServePage(w http.ResponseWriter, p Page) error {
	text, err := unpacked("index.html")
	if err != nil {
		return err
	}
	nonce := rand.Text()
	body := strings.NewReplacer(noncePlace, nonce, versionPlace, p.Version).Replace(string(text))
	h := w.Header()
	h.Set("Content-Security-Policy", p.policy(nonce))
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=(), clipboard-read=()")
	_, err = io.WriteString(w, body)
	return err
}

// hashed are names that change with their content.
var hashed = regexp.MustCompile(`^assets/.+-[A-Za-z0-9_-]{8}\.[a-z]+$`)

// ServeFile answers with a file of the page. NotFound: there is none of this name.
func ServeFile(w http.ResponseWriter, r *http.Request, name string) error {
	packed, err := files.ReadFile("dist/" + name + ".gz")
	if err != nil || name == "index.html" {
		return errs.New(errs.NotFound, "the page has no such file")
	}
	h := w.Header()
	h.Set("Content-Type", typeOf(name))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'")
	h.Set("Cache-Control", "no-cache")
	if hashed.MatchString(name) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Add("Vary", "Accept-Encoding")
	body := packed
	if takesGzip(r) {
		h.Set("Content-Encoding", "gzip")
	} else if body, err = unpacked(name); err != nil {
		return err
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, err = w.Write(body)
	return err
}

// typeOf does not ask the host's own table, which differs.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

func takesGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err == nil && name == "gzip" && params["q"] != "0" {
			return true
		}
	}
	return false
}

func unpacked(name string) ([]byte, error) {
	packed, err := files.ReadFile("dist/" + name + ".gz")
	if err != nil {
		return nil, errs.New(errs.Unsupported, "this program was built without the web UI").WithHint("build it without -tags noweb")
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
