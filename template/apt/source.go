package apt

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skete-dev/skete/internal/pattern"
)

// Bounds of what is read of a tree's settings.
const (
	fileBytesMax  = 256 << 10
	filesMax      = 64
	sourcesMax    = 64
	componentsMax = 16
	textBytesMax  = 512 // of a URI, a suite, a path
)

// Source is one suite of one archive of binary packages.
type Source struct {
	URI        string
	Suite      string
	Components []string
	SignedBy   string // path of a keyring; "" = those that apt trusts anyway
}

// Line is the source as one line of a sources.list.
func (s Source) Line() string {
	options := ""
	if s.SignedBy != "" {
		options = "[signed-by=" + s.SignedBy + "] "
	}
	return "deb " + options + s.URI + " " + s.Suite + " " + strings.Join(s.Components, " ")
}

// Official reports whether this looks like an archive of the distribution's
// own: the suite itself, its updates or its security, from a place named as
// mirrors are. Third parties use the names of suites too.
func (s Source) Official(suite string) bool {
	if s.Suite != suite && s.Suite != suite+"-updates" && s.Suite != suite+"-security" {
		return false
	}
	if !slices.Contains(s.Components, "main") {
		return false
	}
	u, err := url.Parse(s.URI)
	if err != nil {
		return false
	}
	for _, at := range []string{path.Base(u.Path), path.Base(path.Dir(u.Path))} { // .../debian, .../archive/debian/20250101T000000Z
		switch at {
		case "debian", "debian-security", "ubuntu", "ubuntu-ports":
			return at == path.Base(u.Path) || snapshotForm().MatchString(path.Base(u.Path))
		}
	}
	return false
}

var snapshotForm = pattern.Lazy(`^[0-9]{8}T[0-9]{6}Z$`)

// Sources are all that a tree names.
type Sources []Source

// For selects the distribution's own sources of a suite.
func (s Sources) For(suite string) Sources {
	var own Sources
	for _, x := range s {
		if x.Official(suite) {
			own = append(own, x)
		}
	}
	return own
}

// Others selects what is not the distribution's own.
func (s Sources) Others(suite string) Sources {
	return slices.DeleteFunc(slices.Clone(s), func(x Source) bool { return x.Official(suite) })
}

// Text is a sources.list.
func (s Sources) Text() string {
	var b strings.Builder
	for _, x := range s {
		b.WriteString(x.Line() + "\n")
	}
	return b.String()
}

// HostSources reads the sources of the system below root ("/": this host). What cannot be read or
// understood is left out.
func HostSources(root string) Sources {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil
	}
	defer r.Close()
	return treeSources(r)
}

// treeSources reads a tree that is not trusted: links cannot lead out of it.
func treeSources(r *os.Root) Sources {
	var all Sources
	if data, err := readFile(r, "etc/apt/sources.list"); err == nil {
		all = append(all, Parse("sources.list", data)...)
	}
	for _, name := range readNames(r, "etc/apt/sources.list.d") {
		if data, err := readFile(r, path.Join("etc/apt/sources.list.d", name)); err == nil {
			all = append(all, Parse(name, data)...)
		}
	}
	return all[:min(len(all), sourcesMax)]
}

// Parse reads a sources file: stanzas when the name ends in .sources, lines
// when it ends in .list, else nothing. Only binary packages by http and https
// are taken; what is odd is left out.
func Parse(name string, data []byte) Sources {
	if len(data) > fileBytesMax {
		return nil
	}
	var all Sources
	switch filepath.Ext(name) {
	case ".sources":
		all = parseStanzas(string(data))
	case ".list":
		for line := range strings.Lines(string(data)) {
			if s, ok := parseLine(line); ok {
				all = append(all, s)
			}
		}
	}
	all = slices.DeleteFunc(all, func(s Source) bool { return !s.OK() })
	return all[:min(len(all), sourcesMax)]
}

// parseLine reads "deb [signed-by=…] URI SUITE COMPONENT…".
func parseLine(line string) (Source, bool) {
	line, _, _ = strings.Cut(line, "#")
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
	if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
		return Source{}, false
	}
	s := Source{}
	rest = strings.TrimSpace(rest)
	if after, ok := strings.CutPrefix(rest, "["); ok {
		options, tail, ok := strings.Cut(after, "]")
		if !ok {
			return Source{}, false
		}
		for o := range strings.FieldsSeq(options) {
			if v, ok := strings.CutPrefix(o, "signed-by="); ok {
				s.SignedBy = v
			}
		}
		rest = tail
	}
	f := strings.Fields(rest)
	if len(f) < 3 {
		return Source{}, false
	}
	s.URI, s.Suite, s.Components = f[0], f[1], f[2:]
	return s, true
}

// parseStanzas reads the format of .sources files (deb822).
func parseStanzas(text string) Sources {
	var all Sources
	fields, last := map[string]string{}, ""
	flush := func() {
		all = append(all, stanza(fields)...)
		fields, last = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case line == "":
			flush()
		case line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += "\n" + strings.TrimSpace(line)
			}
		default:
			key, value, ok := strings.Cut(line, ":")
			if last = ""; ok {
				last = strings.ToLower(key)
				fields[last] = strings.TrimSpace(value)
			}
		}
	}
	flush()
	return all
}

func stanza(f map[string]string) Sources {
	if !slices.Contains(strings.Fields(f["types"]), "deb") || strings.EqualFold(f["enabled"], "no") {
		return nil
	}
	key := f["signed-by"]
	if strings.ContainsAny(key, "\n ") {
		key = "" // a key in the text itself, or several: those that apt trusts anyway must do
	}
	var all Sources
	for uri := range strings.FieldsSeq(f["uris"]) {
		for suite := range strings.FieldsSeq(f["suites"]) {
			if len(all) < sourcesMax {
				all = append(all, Source{URI: uri, Suite: suite, Components: strings.Fields(f["components"]), SignedBy: key})
			}
		}
	}
	return all
}

var (
	suiteForm     = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._/+-]*$`)
	componentForm = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._/+-]*$`)
	keyringForm   = pattern.Lazy(`^/[A-Za-z0-9._/+-]+\.(gpg|asc|pgp)$`)
	uriForm       = pattern.Lazy(`^https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._/+~%-]*)?$`)
)

// OK admits what can be written into a file of ours without meaning anything
// else there: no login in a URI, no spaces, no way out of a directory.
func (s Source) OK() bool {
	for _, text := range []string{s.URI, s.Suite, s.SignedBy} {
		if len(text) > textBytesMax || strings.Contains(text, "..") {
			return false
		}
	}
	if !uriForm().MatchString(s.URI) || !suiteForm().MatchString(s.Suite) || len(s.Components) == 0 || len(s.Components) > componentsMax {
		return false
	}
	if s.SignedBy != "" && !keyringForm().MatchString(s.SignedBy) {
		return false
	}
	return !slices.ContainsFunc(s.Components, func(c string) bool { return len(c) > textBytesMax || !componentForm().MatchString(c) })
}
