package shell

import (
	"path"
	"slices"
	"strings"
)

// starter is a program that starts another one.
type starter struct {
	flags  string   // short options without a value
	values string   // short options with one
	long   []string // long options; those with a value end in "="
	skip   int      // arguments in front of the other program
	// loud: it matters that this one starts it, so it stands in the list too.
	loud bool
	// more: arguments come from elsewhere.
	more bool
}

var starters = map[string]starter{
	"env":     {flags: "i0v", values: "uC", long: []string{"ignore-environment", "unset=", "chdir="}, loud: false},
	"timeout": {flags: "vf", values: "ks", long: []string{"preserve-status", "foreground", "verbose", "signal=", "kill-after="}, skip: 1},
	"nice":    {values: "n", flags: "0123456789", long: []string{"adjustment="}},
	"nohup":   {},
	"setsid":  {flags: "cfw", long: []string{"ctty", "fork", "wait"}},
	"stdbuf":  {values: "ioe", long: []string{"input=", "output=", "error="}},
	"ionice":  {values: "cn", flags: "t", long: []string{"class=", "classdata=", "ignore"}},
	"time":    {flags: "pvaq", values: "f", long: []string{"portability", "verbose", "format="}},
	"command": {flags: "p"},
	"builtin": {},
	"exec":    {flags: "cl", values: "a"},
	"busybox": {},
	"xargs": {
		flags: "0rtpxo", values: "InPLsdaE", more: true,
		long: []string{"null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty", "replace=", "max-args=", "max-procs=", "max-lines=", "max-chars=", "delimiter=", "arg-file=", "eof="},
	},
	"sudo": {
		flags: "AbEHikKnPSsv", values: "CDghpRrtTuU", loud: true,
		long: []string{"non-interactive", "preserve-env", "set-home", "login", "stdin", "user=", "group=", "chdir=", "host=", "prompt="},
	},
	"doas":     {flags: "Lns", values: "aCu", loud: true},
	"flock":    {flags: "enosux", values: "wE", long: []string{"exclusive", "nonblock", "shared", "close", "wait=", "timeout="}, skip: 1, loud: true},
	"chroot":   {long: []string{"userspec=", "groups=", "skip-chdir"}, skip: 1, loud: true},
	"strace":   {flags: "cCdfFhiknNqrtTvVwxyzZ", values: "abeEIoOpPsSuUX", loud: true},
	"unbuffer": {flags: "p"},
}

// opaqueStarters start programs too; their options are not taken apart.
var opaqueStarters = []string{
	"su", "runuser", "sg", "watch", "parallel", "script", "taskset", "chrt", "prlimit", "unshare", "nsenter", "setpriv", "capsh", "setarch", "linux32",
	"linux64", "fakeroot", "xvfb-run", "systemd-run", "ltrace", "bwrap", "start-stop-daemon",
}

var shells = []string{"bash", "sh", "dash", "zsh", "ksh", "ash", "rbash"}

// emit notes a command, and the one that it starts.
func (p *parser) emit(c Command) {
	if p.lost() || len(c.Words) == 0 && len(c.Assigns) == 0 && !c.Writes {
		return
	}
	if len(c.Words) > 1 && c.Words[0].Text == "--" { // of `time -- x`; elsewhere it is no program
		c.Words = c.Words[1:]
	}
	if len(c.Words) == 0 || c.Words[0].Dynamic {
		p.add(c)
		return
	}
	name := path.Base(c.Words[0].Text)
	if p.depth > depthMax {
		p.opaque("it is nested too deep")
		return
	}
	p.depth++
	defer func() { p.depth-- }()
	switch s, known := starters[name]; {
	case known:
		p.start(c, name, s)
	case slices.Contains(shells, name):
		p.shell(c)
	case name == "eval":
		p.eval(c)
	case name == "trap":
		p.trap(c)
	case name == "source" || name == ".":
		p.add(c)
		if words := operands(c.Words[1:]); len(words) > 0 && (words[0].Dynamic || isStream(words[0].Text)) {
			p.opaque("a script that is made at run time")
		}
	case name == "find":
		p.find(c)
	case slices.Contains(opaqueStarters, name):
		p.add(c)
		p.opaque("what " + name + " starts")
	default:
		p.add(c)
	}
}

func (p *parser) add(c Command) {
	if len(p.out.Commands) >= CommandsMax {
		p.opaque("too many commands")
		return
	}
	p.out.Commands = append(p.out.Commands, c)
}

// start finds what a starter starts.
func (p *parser) start(c Command, name string, s starter) {
	if name == "command" && len(c.Words) > 1 && (c.Words[1].Text == "-v" || c.Words[1].Text == "-V") {
		p.add(c) // it only looks
		return
	}
	rest, understood := s.options(c.Words[1:])
	if !understood {
		p.add(c)
		p.opaque("the options of " + name)
		return
	}
	inner := Command{Assigns: c.Assigns, Writes: c.Writes}
	if name == "env" || name == "sudo" {
		for len(rest) > 0 && isAssign(rest[0].Text) {
			inner.Assigns = append(slices.Clip(inner.Assigns), rest[0])
			rest = rest[1:]
		}
	}
	for range s.skip {
		if len(rest) > 0 {
			rest = rest[1:]
		}
	}
	c.Passing = len(rest) > 0 && !s.loud
	p.add(c)
	if len(rest) == 0 {
		return
	}
	if !rest[0].Dynamic && strings.HasPrefix(rest[0].Text, "-") {
		p.opaque("the options of " + name)
		return
	}
	inner.Words = slices.Clone(rest)
	if s.more {
		fill(inner.Words, c.Words[1:len(c.Words)-len(rest)])
		inner.Words = append(inner.Words, Word{Text: "…", Dynamic: true})
	}
	p.emit(inner)
}

// fill marks the words that xargs -I replaces.
func fill(words, options []Word) {
	mark := ""
	for i, o := range options {
		switch text, given := strings.CutPrefix(o.Text, "-I"); {
		case given && text != "":
			mark = text
		case given && i+1 < len(options):
			mark = options[i+1].Text
		case strings.HasPrefix(o.Text, "--replace="):
			mark = strings.TrimPrefix(o.Text, "--replace=")
		}
	}
	for i := range words {
		words[i].Dynamic = words[i].Dynamic || mark != "" && strings.Contains(words[i].Text, mark)
	}
}

// options skips the options of a starter.
func (s starter) options(words []Word) (rest []Word, understood bool) {
	for len(words) > 0 {
		w := words[0]
		if !w.Dynamic && (w.Text == "" || w.Text[0] != '-') {
			return words, true
		}
		if w.Dynamic {
			// It may be an option, a value of one, or what is started.
			return nil, false
		}
		words = words[1:]
		switch {
		case w.Text == "--":
			return words, true
		case w.Text == "-":
			continue
		case strings.HasPrefix(w.Text, "--"):
			key, _, given := strings.Cut(w.Text[2:], "=")
			switch {
			case slices.Contains(s.long, key) && !given:
			case slices.Contains(s.long, key+"=") && given:
			case slices.Contains(s.long, key+"=") && len(words) > 0:
				words = words[1:]
			default:
				return nil, false
			}
		default:
			more, ok := s.cluster(w.Text[1:])
			if !ok || more > len(words) {
				return nil, false
			}
			words = words[more:]
		}
	}
	return words, true
}

// cluster reads -abc; more is how many of the next words belong to it.
func (s starter) cluster(letters string) (more int, ok bool) {
	for i := range len(letters) {
		switch {
		case strings.IndexByte(s.values, letters[i]) >= 0:
			if i == len(letters)-1 {
				return 1, true
			}
			return 0, true
		case strings.IndexByte(s.flags, letters[i]) < 0:
			return 0, false
		}
	}
	return 0, true
}

// shell parses the script of bash -c.
func (p *parser) shell(c Command) {
	script := false
	words := c.Words[1:]
	for len(words) > 0 && !words[0].Dynamic && words[0].Text != "" && strings.IndexByte("-+", words[0].Text[0]) >= 0 {
		option := words[0].Text
		words = words[1:]
		if option == "-" || option == "--" {
			break
		}
		if strings.HasPrefix(option, "--") {
			if !slices.Contains([]string{"--norc", "--noprofile", "--posix", "--login"}, option) {
				p.add(c)
				p.opaque("the options of a shell")
				return
			}
			continue
		}
		script = script || strings.IndexByte(option, 'c') >= 0
		if strings.IndexByte(option, 's') >= 0 || strings.Trim(option[1:], "ceuxlifnvoEO") != "" {
			p.add(c)
			p.opaque("the options of a shell")
			return
		}
		// Each of these letters has a word of its own behind.
		words = words[min(strings.Count(option, "o")+strings.Count(option, "O"), len(words)):]
	}
	switch {
	case script && len(words) > 0:
		c.Passing = !c.Writes && len(c.Assigns) == 0
		p.add(c)
		p.scriptOf(words[0])
	case len(words) > 0 && words[0].Dynamic:
		p.add(c)
		p.opaque("the options of a shell")
	case len(words) > 0 && !isStream(words[0].Text):
		p.add(c) // a script in a file
	default:
		p.add(c)
		p.opaque("a shell that reads its commands from its input")
	}
}

// scriptOf parses an argument that is a script.
func (p *parser) scriptOf(w Word) {
	if w.Dynamic {
		p.opaque("a script that is made at run time")
		return
	}
	p.sub(w.Text)
}

// trap parses what is to run at a signal.
func (p *parser) trap(c Command) {
	p.add(c)
	if words := operands(c.Words[1:]); len(words) > 0 {
		p.scriptOf(words[0])
	}
}

// operands are the words behind --, where a builtin has no other options.
func operands(words []Word) []Word {
	if len(words) > 0 && words[0].Text == "--" {
		return words[1:]
	}
	return words
}

// isStream reports whether a path names no file but what a process has open.
func isStream(name string) bool {
	name = path.Clean(name)
	return strings.HasPrefix(name, "/dev/") || strings.HasPrefix(name, "/proc/")
}

func (p *parser) eval(c Command) {
	texts := make([]string, 0, len(c.Words))
	for _, w := range operands(c.Words[1:]) {
		if w.Dynamic {
			p.add(c)
			p.opaque("a script that is made at run time")
			return
		}
		texts = append(texts, w.Text)
	}
	c.Passing = !c.Writes && len(c.Assigns) == 0
	p.add(c)
	p.sub(strings.Join(texts, " "))
}

// find parses what find -exec starts.
func (p *parser) find(c Command) {
	p.add(c)
	for i, w := range c.Words {
		if p.lost() {
			return // one -exec in another's arguments: the number doubles with each
		}
		if w.Dynamic || !slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, w.Text) {
			continue
		}
		inner := Command{Writes: c.Writes}
		for _, x := range c.Words[i+1:] {
			if !x.Dynamic && (x.Text == ";" || x.Text == "+") {
				break
			}
			if strings.Contains(x.Text, "{}") {
				x.Dynamic = true
			}
			inner.Words = append(inner.Words, x)
		}
		p.emit(inner)
	}
}
