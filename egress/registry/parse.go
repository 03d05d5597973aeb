package registry

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/skete-dev/skete/internal/pattern"
)

// Where what is carried over stands in machines.
const (
	npmFile   = "/etc/skete/npmrc"
	cargoFile = "/.cargo/config.toml" // cargo looks in each directory above the one that it works in
)

// answers are the lines of the script, by what said them.
type answers map[string][]string

// Parse reads what the Script printed. What it does not understand it leaves out; it
// reads the first MiB.
func Parse(out []byte) Set {
	a := answers{}
	for line := range strings.Lines(string(out[:min(len(out), answerBytes)])) {
		if who, what, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "\t"); ok {
			a[who] = append(a[who], strings.TrimSpace(what))
		}
	}
	s := Set{Env: map[string]string{}, Files: map[string]string{}}
	a.pip(&s)
	a.npm(&s)
	a.golang(&s)
	a.cargo(&s)
	for _, u := range a["apt"] { // a machine's list of sources is its template's
		s.add("apt", u)
	}
	return s
}

var (
	pipLine    = pattern.Lazy(`^(:env:|global|install|download)\.(index-url|extra-index-url)='(.*)'$`)
	pipDefault = pattern.Lazy(`--index-url.*?\(default\s+(https?://[^\s)]+)\)`)
)

// pip's own index is used unless another is configured; what is in the environment wins.
func (a answers) pip(s *Set) {
	told := map[string]string{}
	for _, from := range []string{"install", "download", "global", ":env:"} {
		for _, line := range a["pip"] {
			if m := pipLine().FindStringSubmatch(line); m != nil && m[1] == from {
				told[m[2]] = strings.ReplaceAll(m[3], `\n`, " ")
			}
		}
	}
	for _, x := range [][2]string{{"index-url", "PIP_INDEX_URL"}, {"extra-index-url", "PIP_EXTRA_INDEX_URL"}} {
		key, name := x[0], x[1]
		var urls []string
		for raw := range strings.FieldsSeq(told[key]) {
			if u := s.add("pip", raw); u != "" {
				urls = append(urls, u)
			}
		}
		if len(urls) > 0 {
			s.Env[name] = strings.Join(urls, " ")
		}
	}
	if s.Env["PIP_INDEX_URL"] == "" {
		s.addMatch("pip", pipDefault(), strings.Join(a["pip-help"], " "))
	}
}

func (s *Set) addMatch(tool string, form *regexp.Regexp, text string) {
	if m := form.FindStringSubmatch(text); m != nil {
		s.add(tool, m[1])
	}
}

var npmLine = pattern.Lazy(`^(registry|@[a-z0-9][a-z0-9._-]{0,100}:registry) = "([^"\\]+)"$`)

// npm's list has what is configured alone; registries of scopes are among it.
func (a answers) npm(s *Set) {
	var lines []string
	for _, line := range a["npm"] {
		if m := npmLine().FindStringSubmatch(line); m != nil {
			if u := s.add("npm", m[2]); u != "" {
				lines = append(lines, fmt.Sprintf("%s=%s\n", m[1], u))
			}
		}
	}
	if len(lines) > 0 {
		slices.Sort(lines)
		s.Files[npmFile] = strings.Join(slices.Compact(lines), "")
		s.Env["NPM_CONFIG_GLOBALCONFIG"] = npmFile
	}
	for _, u := range a["npm-registry"] {
		s.add("npm", u)
	}
}

// golang reads Go's proxies, of which there may be several, and its database of sums.
func (a answers) golang(s *Set) {
	proxies := a.goProxy(s)
	sums := ""
	for _, line := range a["go-sumdb"] {
		// NAME, or NAME+KEY, or either and a URL
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		name, _, _ := strings.Cut(fields[0], "+")
		at := "https://" + name
		if len(fields) > 1 {
			at = fields[1]
		}
		if u := s.add("go", at); u != "" {
			sums = fields[0]
			if len(fields) > 1 {
				sums += " " + u
			}
		} else if line == "off" {
			sums = line
		}
	}
	changed := strings.Join(a["go-changed"], "\n")
	if proxies != "" && strings.Contains(changed, "GOPROXY=") {
		s.Env["GOPROXY"] = proxies
	}
	if sums != "" && strings.Contains(changed, "GOSUMDB=") {
		s.Env["GOSUMDB"] = sums
	}
}

// goProxy returns the list of proxies as it was, without credentials; "" = there is none
// that machines can use.
func (a answers) goProxy(s *Set) string {
	var list strings.Builder
	for _, line := range a["go-proxy"] {
		for line != "" {
			i := strings.IndexAny(line, ",|")
			one, sep, rest := line, "", ""
			if i >= 0 {
				one, sep, rest = line[:i], line[i:i+1], line[i+1:]
			}
			if one != "direct" && one != "off" {
				one = s.add("go", one)
			}
			if one != "" {
				list.WriteString(one + sep)
			}
			line = rest
		}
	}
	return strings.TrimRight(list.String(), ",|")
}

var (
	tomlSection = pattern.Lazy(`^\[\s*(?:source\.)?([A-Za-z0-9_."'-]+)\s*\]`)
	tomlValue   = pattern.Lazy(`^(replace-with|registry|index)\s*=\s*["']([^"'\\]+)["']`)
	tomlName    = pattern.Lazy(`^[A-Za-z0-9_-]{1,64}$`)
)

// cargo reads where crates come from, which other sources may replace.
func (a answers) cargo(s *Set) {
	urls, replaced := map[string]string{}, map[string]string{}
	section := ""
	for _, line := range a["cargo"] {
		if m := tomlSection().FindStringSubmatch(line); m != nil {
			section = strings.Trim(m[1], `"'`)
		} else if m := tomlValue().FindStringSubmatch(line); m != nil && m[1] == "replace-with" {
			replaced[section] = m[2]
		} else if m != nil {
			if u := s.add("cargo", m[2]); u != "" {
				if strings.HasPrefix(m[2], "sparse+") {
					u = "sparse+" + u
				}
				urls[section] = u
			}
		}
	}
	mirror := "crates-io"
	for range len(replaced) {
		if next := replaced[mirror]; next != "" {
			mirror = next
		}
	}
	if u := urls[mirror]; u != "" && mirror != "crates-io" && tomlName().MatchString(mirror) {
		s.Files[cargoFile] = fmt.Sprintf("[source.crates-io]\nreplace-with = %q\n\n[source.%s]\nregistry = %q\n", mirror, mirror, u)
		return
	}
	for _, u := range a["cargo-default"] {
		s.add("cargo", u)
	}
}

// Keep takes over from an earlier set which hosts have the files of a source.
func (s *Set) Keep(earlier Set) {
	for i := range s.Sources {
		src := &s.Sources[i]
		for _, o := range earlier.Sources {
			if src.Tool == o.Tool && src.URL == o.URL && len(src.Hosts) == 0 {
				src.Hosts = slices.Clone(o.Hosts)
			}
		}
	}
}

// Merge adds what another set has. Where both carry something over, s wins.
func (s Set) Merge(o Set) Set {
	out := Set{Sources: slices.Clone(s.Sources), Env: maps.Clone(o.Env), Files: maps.Clone(o.Files)}
	for _, src := range o.Sources {
		if len(out.Sources) < sourcesMax && !slices.ContainsFunc(out.Sources, func(x Source) bool { return x.Tool == src.Tool && x.URL == src.URL }) {
			out.Sources = append(out.Sources, src)
		}
	}
	if out.Env == nil {
		out.Env = map[string]string{}
	}
	if out.Files == nil {
		out.Files = map[string]string{}
	}
	maps.Copy(out.Env, s.Env)
	maps.Copy(out.Files, s.Files)
	return out
}
