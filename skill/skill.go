package skill

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/internal/yamlfile"
)

// Bounds of the standard, in characters.
const (
	NameMax          = 64
	DescriptionMax   = 1024
	CompatibilityMax = 500
)

// Advice of the standard: what is longer is loaded, with a warning.
const (
	linesAdvised  = 500
	tokensAdvised = 5000
)

// Skill is what a SKILL.md says.
type Skill struct {
	Name          string
	Description   string // what it does, and when to use it
	License       string
	Compatibility string
	Metadata      map[string]string
	// AllowedTools are tools that the skill's author wants to be approved beforehand, each
	// for ParseAllowed. Of a version that is not trusted they approve nothing.
	AllowedTools []string
	Instructions string // what stands below the front matter
}

// Problem is a rule of the standard that a skill breaks, or advice that it does not follow.
type Problem struct {
	Where string // SKILL.md:3:1
	Text  string
	Hint  string // "" = the text says it
}

// String is the problem on one line.
func (p Problem) String() string {
	s := p.Where + ": " + p.Text
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// front is the front matter. Pointers tell what is not there from what is empty.
type front struct {
	Name          *string           `yaml:"name"`
	Description   *string           `yaml:"description"`
	License       *string           `yaml:"license"`
	Compatibility *string           `yaml:"compatibility"`
	Metadata      map[string]string `yaml:"metadata"`
	AllowedTools  any               `yaml:"allowed-tools"` // text, or a list of texts
}

func (f front) skill(body []byte) Skill {
	of := func(s *string) string {
		if s == nil {
			return ""
		}
		return strings.TrimSpace(*s)
	}
	allowed, _ := allowedOf(f.AllowedTools)
	return Skill{
		Name: of(f.Name), Description: of(f.Description), License: of(f.License), Compatibility: of(f.Compatibility),
		Metadata: f.Metadata, AllowedTools: allowed, Instructions: strings.TrimSpace(string(body)),
	}
}

// Parse reads a SKILL.md strictly. folder is the name of its folder, "" = not known. Without
// problems the skill is as the standard wants it.
func Parse(folder string, data []byte) (Skill, []Problem) {
	head, body, problem := split(data)
	if problem != nil {
		return Skill{}, []Problem{*problem}
	}
	var f front
	at, err := yamlfile.Decode(File, head, &f)
	problems := problemsOf(err)
	return f.skill(body), append(problems, f.check(folder, at, problems)...)
}

// split cuts a SKILL.md.
func split(data []byte) (head, body []byte, _ *Problem) {
	switch {
	case len(data) > FileBytesMax:
		return nil, nil, &Problem{Where: File, Text: fmt.Sprintf("larger than %d MiB", FileBytesMax>>20)}
	case !utf8.Valid(data):
		return nil, nil, &Problem{Where: File, Text: "it is no UTF-8 text"}
	}
	head, body, found := yamlfile.Split(data)
	if !found {
		return nil, nil, &Problem{File + ":1:1", "there is no front matter", "begin the file with ---, name, description, and --- again"}
	}
	return head, body, nil
}

// problemsOf are the lines of yamlfile's error.
func problemsOf(err error) []Problem {
	if err == nil {
		return nil
	}
	var problems []Problem
	for line := range strings.SplitSeq(errs.Public(err), "\n") {
		where, text, ok := strings.Cut(line, ": ")
		if !ok {
			where, text = File, line
		}
		p := Problem{Where: where, Text: text}
		switch {
		case strings.Contains(text, "is not a key here"):
			p.Hint = "what the standard does not know belongs beneath metadata"
		case strings.Contains(text, "mapping value is not allowed"):
			p.Hint = `put text that has ": " in it in quotes`
		}
		problems = append(problems, p)
	}
	return problems
}

// check holds what was read against the rules. Keys that yamlfile has refused are told once.
func (f front) check(folder string, at yamlfile.Positions, told []Problem) []Problem {
	c := checker{at: at, told: told}
	c.name(folder, f.Name)
	if c.required("description", f.Description, "say what the skill does and when to use it") {
		c.length("description", *f.Description, DescriptionMax)
	}
	c.optional("license", f.License)
	if c.optional("compatibility", f.Compatibility) {
		c.length("compatibility", *f.Compatibility, CompatibilityMax)
	}
	c.allowed(f.AllowedTools)
	for _, key := range sortedKeys(f.Metadata) {
		if strings.TrimSpace(key) == "" {
			c.add("metadata", "a key of metadata is empty", "")
		}
	}
	return c.problems
}

type checker struct {
	at       yamlfile.Positions
	told     []Problem
	problems []Problem
}

func (c *checker) add(key, text, hint string) {
	where := yamlfile.Where(File, c.at.Of(key))
	if where == File {
		where += ":1:1"
	}
	if slices.ContainsFunc(c.told, func(p Problem) bool { return sameLine(p.Where, where) }) {
		return
	}
	c.problems = append(c.problems, Problem{where, text, hint})
}

// sameLine compares places but for their columns.
func sameLine(a, b string) bool {
	line := func(s string) string {
		parts := strings.Split(s, ":")
		return strings.Join(parts[:min(2, len(parts))], ":")
	}
	return strings.Contains(a, ":") && line(a) == line(b)
}

func (c *checker) required(key string, value *string, hint string) bool {
	if value == nil {
		if _, there := c.at[key]; !there && !c.broken() {
			c.add(key, key+" is missing", hint)
		}
		return false
	}
	return c.filled(key, *value, hint)
}

// filled reports whether there is text. What yamlfile has refused is empty too.
func (c *checker) filled(key, value, hint string) bool {
	if strings.TrimSpace(value) != "" {
		return true
	}
	if len(c.told) == 0 {
		c.add(key, key+" is empty", hint)
	}
	return false
}

// broken reports whether the front matter could not be read at all.
func (c *checker) broken() bool { return len(c.at) == 0 && len(c.told) > 0 }

func (c *checker) optional(key string, value *string) bool {
	return value != nil && c.filled(key, *value, "leave it out")
}

// allowed checks what the standard says of allowed-tools: text with words in it, or a list of
// texts. What the words are is up to clients.
func (c *checker) allowed(value any) {
	const key = "allowed-tools"
	words, ok := allowedOf(value)
	_, there := c.at[key]
	switch {
	case !ok:
		c.add(key, key+" is neither text nor a list of texts", "write Bash(git:*) Read")
	case there && len(words) == 0 && len(c.told) == 0:
		c.add(key, key+" is empty", "leave it out")
	}
}

func (c *checker) length(key, value string, most int) {
	if n := utf8.RuneCountInString(value); n > most {
		c.add(key, fmt.Sprintf("%s has %d characters, at most %d are allowed", key, n, most), "")
	}
}

func (c *checker) name(folder string, name *string) {
	if !c.required("name", name, "it is the name of the folder") {
		return
	}
	c.length("name", *name, NameMax)
	switch why := badName(*name); {
	case why != "":
		c.add("name", fmt.Sprintf("name: %s %s", quoted(*name), why), "names are of a-z, 0-9 and single hyphens, as pdf-forms")
	case folder != "" && *name != folder && len(*name) <= NameMax:
		c.add("name", fmt.Sprintf("name: %s is not the name of the folder, %s", quoted(*name), quoted(folder)), "rename one of them")
	}
}

// badName says what is wrong with a name but for its length, "" = nothing.
func badName(name string) string {
	switch {
	case strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }):
		if strings.ContainsFunc(name, unicode.IsUpper) {
			return "has capital letters"
		}
		return "has characters that names may not have"
	case strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-"):
		return "begins or ends with a hyphen"
	case strings.Contains(name, "--"):
		return "has two hyphens in a row"
	}
	return ""
}

// NameOK reports whether a name is one by the standard.
func NameOK(name string) bool { return name != "" && len(name) <= NameMax && badName(name) == "" }

// Validate holds a skill against every rule of the standard.
func Validate(t Tree) []Problem {
	data, ok := t.File(File)
	if !ok {
		return []Problem{{Where: File, Text: "there is none", Hint: "a skill is a folder that holds " + File}}
	}
	_, problems := Parse(t.Folder, data)
	return problems
}

// Load reads a skill as a client should: what the standard refuses is a warning, unless the
// skill could not be told from others, or nothing says what it is for. Then the error is
// Invalid, and lists the problems. Advice comes as warnings too.
func Load(t Tree) (Skill, []Problem, error) {
	data, _ := t.File(File)
	return Read(t.Folder, data)
}

// Read is Load of a SKILL.md alone.
func Read(folder string, data []byte) (Skill, []Problem, error) {
	s, problems := Parse(folder, data)
	if len(problems) > 0 {
		s = lenient(data)
	}
	if s.Name == "" || badName(s.Name) != "" && NameOK(folder) {
		s.Name = folder
	}
	if !NameOK(s.Name) || s.Description == "" {
		if len(problems) == 0 { // the folder's name is not known
			problems = []Problem{{Where: File, Text: "it has no name"}}
		}
		return Skill{}, problems, Error(problems)
	}
	return s, append(problems, advice(s)...), nil
}

// Error is an Invalid error of problems, one a line; nil = there are none.
func Error(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return errs.New(errs.Invalid, "%s", strings.Join(lines, "\n"))
}

func advice(s Skill) (list []Problem) {
	if s.Instructions == "" {
		list = append(list, Problem{File, "there are no instructions below the front matter", "say step by step how the work is done"})
	}
	if lines := strings.Count(s.Instructions, "\n") + 1; lines > linesAdvised || len(s.Instructions)/4 > tokensAdvised {
		list = append(list, Problem{File, fmt.Sprintf("the instructions have %d lines and about %d tokens", lines, len(s.Instructions)/4), "move details into files that are read when they are needed"})
	}
	return append(list, allowedAdvice(s.AllowedTools)...)
}

// topKey is the first line of a key of the front matter.
var topKey = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_-]*):(.*)$`)

// lenient reads each key of the front matter by itself. Text that YAML refuses (most often
// it has ": " in it) is taken as it stands.
func lenient(data []byte) Skill {
	head, body, problem := split(data)
	if problem != nil {
		return Skill{}
	}
	var f front
	for _, block := range blocks(head) {
		f.take(block)
	}
	s := f.skill(body)
	s.Description = clip.Text(s.Description, 4*DescriptionMax)
	s.Compatibility = clip.Text(s.Compatibility, 4*CompatibilityMax)
	return s
}

// blocks cuts front matter where a key stands at the margin.
func blocks(head []byte) [][]byte {
	var list [][]byte
	for line := range bytes.Lines(head) {
		if topKey.Match(bytes.TrimRight(line, "\r\n")) {
			list = append(list, nil)
		}
		if n := len(list); n > 0 {
			list[n-1] = append(list[n-1], line...)
		}
	}
	return list
}

func (f *front) take(block []byte) {
	var one front
	_, err := yamlfile.Decode(File, block, &one)
	if err != nil {
		one = front{}
		line, rest, _ := strings.Cut(string(block), "\n")
		m := topKey.FindStringSubmatch(strings.TrimRight(line, "\r"))
		if m == nil {
			return
		}
		text := strings.Trim(strings.Join(strings.Fields(m[2]+" "+rest), " "), `"'`)
		switch m[1] {
		case "name":
			one.Name = &text
		case "description":
			one.Description = &text
		case "license":
			one.License = &text
		case "compatibility":
			one.Compatibility = &text
		case "allowed-tools":
			one.AllowedTools = text
		}
	}
	for _, x := range []struct{ to, from **string }{
		{&f.Name, &one.Name},
		{&f.Description, &one.Description},
		{&f.License, &one.License},
		{&f.Compatibility, &one.Compatibility},
	} {
		if *x.from != nil {
			*x.to = *x.from
		}
	}
	if one.Metadata != nil {
		f.Metadata = one.Metadata
	}
	if one.AllowedTools != nil {
		f.AllowedTools = one.AllowedTools
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
