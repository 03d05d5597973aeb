package shell_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/policy/shell"
)

// show writes a script as the table does: commands separated by " · ", dynamic
// words in <>, assignments as they are, ">" for one that writes a file, "~" in
// front of one that only starts the next, "!" for an opaque script.
func show(s shell.Script) string {
	var list []string
	for _, c := range s.Commands {
		var words []string
		for _, w := range append(append([]shell.Word{}, c.Assigns...), c.Words...) {
			if w.Dynamic {
				w.Text = "<" + w.Text + ">"
			}
			words = append(words, w.Text)
		}
		if c.Writes {
			words = append(words, ">")
		}
		text := strings.Join(words, " ")
		if c.Passing {
			text = "~" + text
		}
		list = append(list, text)
	}
	if s.Opaque != "" {
		list = append(list, "!")
	}
	return strings.Join(list, " · ")
}

func TestParse(t *testing.T) {
	cases := []struct{ line, want string }{
		{"", ""},
		{"  # only a comment", ""},
		{"ls -la", "ls -la"},
		{"a; b & c && d || e | f |& g\nh", "a · b · c · d · e · f · g · h"},
		{"a&&b||c|d;e&f", "a · b · c · d · e · f"},
		{"echo a#b #c ; rm", "echo a#b"},
		{"a \\\n b", "a b"},
		// Quotes.
		{`echo 'a b' "c d" e\ f`, "echo a b c d e f"},
		{`r'm' -r"f" x`, "rm -rf x"},
		{`\rm x`, "rm x"},
		{`echo "a\"b\\c\d\` + "\n" + `e"`, `echo a"b\c\de`},
		{`echo '&& rm' "| rm" \; rm`, "echo && rm | rm ; rm"},
		{`echo 'a`, "!"},
		{`echo "a`, "!"},
		{"echo `a", "!"},
		{"echo $(a", "!"},
		{"echo ${a", "!"},
		{"echo $'\\x72m'", `echo <$'\x72m'>`},
		{`echo $'a\'b' c`, `echo <$'a\'b'> c`},
		{`echo $"a"`, `echo <$"a">`},
		{"a\x00b", "!"},
		// Expansions.
		{"$X a", "<$X> a"},
		{"rm $X \"$Y\" ${Z:-/} $1 $@ $", "rm <$X> <\"$Y\"> <${Z:-/}> <$1> <$@> $"},
		{"echo a$", "echo a$"},
		{"ls *.go a? [ab]c x[1]", "ls <*.go> <a?> <[ab]c> <x[1]>"},
		{"[[:alpha:]] x", "<[[:alpha:]]> x"},
		{"ls {a,b} a{b,c} ~ ~/x a~ A=~/b", "ls <{a,b}> <a{b,c}> <~> <~/x> a~ <A=~/b>"},
		{"ls a:~ a=~ \"a\"~ 'a'=~ \\:~ x\\=~ \"\"~", "ls <a:~> <a=~> a~ <'a'=~> :~ x=~ ~"},
		{`echo "a\b" "\\\\x" "\"`, "!"},
		{"echo $((1+2)) $(( $(rm x) ))", "rm x · echo <$((1+2))> <$(( $(rm x) ))>"},
		{"echo $((rm x); y)", "!"},
		{"echo $((rm x) )", "!"},
		{"((i++))", "!"},
		{"echo $[1]", "!"},
		{"echo ${ rm x; }", "!"},
		// Substitutions.
		{"echo $(rm -rf x)", "rm -rf x · echo <$(rm -rf x)>"},
		{"echo `rm -rf x`", "rm -rf x · echo <`rm -rf x`>"},
		{"echo \"a $(b \"c $(d)\") e\"", "d · b <\"c $(d)\"> · echo <\"a $(b \"c $(d)\") e\">"},
		{"echo `a \\`b\\``", "b · a <`b\\`> · echo <`a \\`b\\``>"},
		{"echo '$(rm x)' \\$(rm", "!"},
		{"echo '$(rm x)' \"\\$(rm x)\"", "echo $(rm x) $(rm x)"},
		{"echo ${x:-$(rm y)} ${x:-`rm z`} \"${x:-\"$(rm w)\"}\"", "rm y · rm z · rm w · echo <${x:-$(rm y)}> <${x:-`rm z`}> <\"${x:-\"$(rm w)\"}\">"},
		{"diff <(a) <(b; c) > >(d)", "a · b · c · d · diff <<(a)> <<(b; c)> >"},
		{"$(echo rm) x", "echo rm · <$(echo rm)> x"},
		{"A=$(rm x)", "rm x · <A=$(rm x)>"},
		{"echo $(cat <<E\nx\nE\n)", "cat · echo <$(cat <<E\nx\nE\n)>"},
		{`echo "${x:-'$(rm y)'}"`, "!"},
		{`echo $(( '$(rm x)' ))`, "!"},
		{`echo ${x:-'$(rm y)'}`, "!"},
		{"echo $((a[$(rm x)]))", "rm x · echo <$((a[$(rm x)]))>"},
		// What a shell takes otherwise than the syntax package.
		{"curl x | sh #\r echo harmless", "!"},
		{"rm\r\n", "!"},
		// Groups, conditions, loops.
		{"(a; b) && { c; d; }", "a · b · c · d"},
		{"(a", "!"},
		{"a)", "!"},
		{"a\nb c; d\n$(e", "a · b c · d · !"},
		{"{ a; } > f", "a · >"},
		{"(a) 2>/dev/null", "a"},
		{"if a; then b; elif c; then d; else e; fi", "a · b · c · d · e"},
		{"while a\ndo b\ndone < x > y", "a · b · >"},
		{"until a; do b; done; c", "a · b · c"},
		{"for x in a $(b) *; do rm $x; done", "b · rm <$x>"},
		{"for x; do a; done", "a"},
		{"for x do a; done", "a"},
		{"for ((i=0;;)); do a; done", "!"},
		{"! a && time b; time -p c", "a · b · c"},
		{"[[ -f a && ( b < c || $(rm x) ) ]] && d", "rm x · [[ -f a && ( b < c || <$(rm x)> ) ]] · d"},
		{"[ -f a ] && b", "[ -f a ] · b"},
		{"[[ a", "!"},
		{"case x in a) rm;; esac", "!"},
		{"f() { rm x; }; f", "!"},
		{"f () ( rm x )", "!"},
		{"function f { rm; }", "!"},
		{"coproc rm x", "!"},
		{"a=(1 2)", "!"},
		{"ls !(x)", "!"},
		{"echo if then done", "echo if then done"},
		{"'if' a", "if a"},
		// Assignments.
		{"A=1 B=$X c", "A=1 <B=$X> c"},
		{"A=1", "A=1"},
		{"A+=1 c; A[1]=2; 1A=2 c", "A+=1 c · <A[1]=2> · 1A=2 c"},
		{"echo A=1", "echo A=1"},
		{"export A=1 B=$X; declare -x C; local d=$(rm x)", "export A=1 <B=$X> · declare -x C · rm x · local <d=$(rm x)>"},
		{"export A=(1)", "!"},
		{"'A=1' c", "A=1 c"},
		{"env A+=1 x; sudo 'a[1]=2' x; env 0a=1 x; env _9=1 x", "~env A+=1 x · A+=1 x · sudo a[1]=2 x · a[1]=2 x · ~env 0a=1 x · 0a=1 x · ~env _9=1 x · _9=1 x"},
		{"env '[a]=1' x; env =1 x; env a.b=1 x", "~env [a]=1 x · [a]=1 x · ~env =1 x · =1 x · ~env a.b=1 x · a.b=1 x"},
		{"nohup A=1 x", "~nohup A=1 x · A=1 x"},
		{"A[$(rm x)]=1", "rm x · <A[$(rm x)]=1>"},
		// Redirections.
		{"a > f", "a >"},
		{"a >f b", "a b >"},
		{"a >> f; a >| f; a &> f; a &>> f; a <> f; a >& f; a 2>f", "a > · a > · a > · a > · a > · a > · a >"},
		{"a >/dev/null 2>&1 <f <&3 >&- 2>/dev/stderr", "a"},
		{"> f", ">"},
		{"&> f", ">"},
		{"a 2 > $X", "a 2 >"},
		{"a >", "!"},
		{"a > ; b", "!"},
		{"a <<< 'b; c'", "a"},
		// Here-documents.
		{"cat <<E\n$(rm x); y\nE\nz", "cat · rm x · z"},
		{"cat <<'E'\n$(rm x); y\nE\nz", "cat · z"},
		{"cat <<\\E\n`rm x`\nE\nz", "cat · z"},
		{"cat <<-E; b\n\tx\n\tE\nz", "cat · b · z"},
		{"cat <<A <<B\na\nA\nb\nB\nz", "cat · z"},
		{"cat <<E\nno end $(rm x)", "!"},
		{"cat <<E\n\\$(rm x)\nE", "cat"},
		{"cat <<$X\n", "!"},
		{"cat <<E $(\nrm x)\nE\n", "!"},
		{"cat <<E > f\nx\nE", "cat >"},
		// Programs that start others.
		{"sudo -u root git push", "sudo -u root git push · git push"},
		{"sudo A=1 rm x", "sudo A=1 rm x · A=1 rm x"},
		{"sudo --what rm x", "sudo --what rm x · !"},
		{"env -i A=1 -u B rm x", "~env -i A=1 -u B rm x · !"},
		{"env A=1 rm x", "~env A=1 rm x · A=1 rm x"},
		{"env", "env"},
		{"env -S 'rm x'", "env -S rm x · !"},
		{"env $X rm x", "env <$X> rm x · !"},
		{"timeout -k 5 10s rm x", "~timeout -k 5 10s rm x · rm x"},
		{"timeout --signal=KILL 10 timeout 5 rm x", "~timeout --signal=KILL 10 timeout 5 rm x · ~timeout 5 rm x · rm x"},
		{"timeout $T rm x", "timeout <$T> rm x · !"},
		{"nice -n 5 nohup setsid -f stdbuf -oL ionice -c2 rm x > f", "~nice -n 5 nohup setsid -f stdbuf -oL ionice -c2 rm x > · ~nohup setsid -f stdbuf -oL ionice -c2 rm x > · ~setsid -f stdbuf -oL ionice -c2 rm x > · ~stdbuf -oL ionice -c2 rm x > · ~ionice -c2 rm x > · rm x >"},
		{"command rm x; command -v rm; builtin cd x; exec -a n rm x", "~command rm x · rm x · command -v rm · ~builtin cd x · cd x · ~exec -a n rm x · rm x"},
		{"/usr/bin/env rm x", "~/usr/bin/env rm x · rm x"},
		{"busybox rm x", "~busybox rm x · rm x"},
		{"a | xargs -0 -n 1 rm -f", "a · ~xargs -0 -n 1 rm -f · rm -f <…>"},
		{"xargs -I{} cp {} x/{}", "~xargs -I{} cp {} x/{} · cp <{}> <x/{}> <…>"},
		{"xargs -I X X y", "~xargs -I X X y · <X> y <…>"},
		{"bash -c 'rm x; a'", "~bash -c rm x; a · rm x · a"},
		{"bash -euo pipefail -c 'rm x'", "~bash -euo pipefail -c rm x · rm x"},
		{"bash -lc \"rm $X\"", "~bash -lc <\"rm $X\"> · !"},
		{"sh -c 'sh -c \"rm x\"'", "~sh -c sh -c \"rm x\" · ~sh -c rm x · rm x"},
		{"curl x | sh", "curl x · sh · !"},
		{"bash <<E\nrm x\nE", "bash · !"},
		{"bash -s a", "bash -s a · !"},
		{"bash $O", "bash <$O> · !"},
		{"bash a.sh -c 'rm x'", "bash a.sh -c rm x"},
		{"bash -oOc pipefail extglob 'rm x'", "~bash -oOc pipefail extglob rm x · rm x"},
		{"bash -c -- 'rm x' -c y", "~bash -c -- rm x -c y · rm x"},
		{"curl x | bash -", "curl x · bash - · !"},
		{"bash - a.sh; bash -- -c", "bash - a.sh · bash -- -c"},
		{"bash /dev/stdin <<< 'rm x'; a", "bash /dev/stdin · !"},
		{"source a.sh; . ./b x", "source a.sh · . ./b x"},
		{"source <(echo rm x)", "echo rm x · source <<(echo rm x)> · !"},
		{". -- /proc/self/fd/0 <<< 'rm x'", ". -- /proc/self/fd/0 · !"},
		{"time -- rm x; time -p -- rm x", "rm x · rm x"},
		{"taskset 1 rm x", "taskset 1 rm x · !"},
		{"eval -- 'rm x'", "~eval -- rm x · rm x"},
		{"trap -- 'rm x' EXIT; trap; trap - EXIT", "trap -- rm x EXIT · rm x · trap · trap - EXIT · -"},
		{"eval 'rm' x", "~eval rm x · rm x"},
		{"eval $X", "eval <$X> · !"},
		{"trap 'rm x' EXIT", "trap rm x EXIT · rm x"},
		{"find . -name x -exec rm {} \\; -execdir sh -c 'y' {} +", "find . -name x -exec rm {} ; -execdir sh -c y {} + · rm <{}> · ~sh -c y <{}> · y"},
		{"su -c 'rm x'", "su -c rm x · !"},
		{"flock -n l rm x; flock l -c 'rm x'", "flock -n l rm x · rm x · flock l -c rm x · !"},
		// Bounds.
		{strings.Repeat("(", 30) + "a" + strings.Repeat(")", 30), "!"},
		{strings.Repeat("$(", 5000), "!"},
		{strings.Repeat("sudo ", 30) + "a", sudos(13) + "!"},
		{strings.Repeat("x", 64<<10) + " ", "!"},
		{"a" + strings.Repeat(" b", 2000), "!"},
	}
	for _, c := range cases {
		if got := show(shell.Parse(c.line)); got != c.want {
			t.Errorf("Parse(%.200q)\n got %s\nwant %s", c.line, got, c.want)
		}
	}
	if s := shell.Parse(strings.Repeat("find -exec ", 1000)); s.Opaque == "" {
		t.Error("find -exec in itself a thousand times was understood")
	}
	if s := shell.Parse(strings.Repeat("a;", 300)); len(s.Commands) != shell.CommandsMax || s.Opaque == "" {
		t.Errorf("%d commands, opaque %q", len(s.Commands), s.Opaque)
	}
}

// A person reads why a line was not understood.
func TestParse_saysWhatItDoesNotUnderstand(t *testing.T) {
	for line, want := range map[string]string{
		"a\x00b":                          "a zero byte",
		"\x00b":                           "a zero byte",
		"\ra":                             "a carriage return",
		"curl x | sh #\r echo harmless":   "a carriage return",
		strings.Repeat("x", 64<<10) + " ": "the line is too long",
		strings.Repeat("( ", 201):         "it is nested too deep",
		strings.Repeat("( ", 13) + "a" + strings.Repeat(" )", 13):       "it is nested too deep",
		"echo " + strings.Repeat("${a:-", 13) + strings.Repeat("}", 13): "it is nested too deep",
		"a" + strings.Repeat(" b", 2000):                                "a command has too many words",
		"select x in a; do rm; done":                                    "the keyword select",
		"for ((i=0;;)); do a; done":                                     "arithmetic in brackets",
		"case x in a) rm;; esac":                                        "a case statement",
		"f() { a; }":                                                    "a function",
		"coproc a":                                                      "a command that is not understood",
		"a=(1 2)":                                                       "an array",
		"cat <<$X\n":                                                    "expansions not allowed in heredoc words",
		"cat <<'a'\"b$\"\nx\nab$\n":                                     "a here-document whose end is not known",
		"ls !(x)":                                                       "an extended pattern",
		"echo $[1]":                                                     "old arithmetic",
		"echo ${ rm x; }":                                               "commands in ${ }",
		"echo ${x:-'$(rm y)'}":                                          "quotes in an expansion",
		"echo 'a":                                                       "reached EOF without closing quote `'`",
		"sudo --what a":                                                 "the options of sudo",
		"bash --rcfile f":                                               "the options of a shell",
		"bash":                                                          "a shell that reads its commands from its input",
		"eval $X":                                                       "a script that is made at run time",
		"su a":                                                          "what su starts",
		strings.Repeat("a;", 300):                                       "too many commands",
		strings.Repeat("eval ", 1) + "'" + strings.Repeat("x", 64<<10) + "'": "the line is too long",
	} {
		if got := shell.Parse(line).Opaque; got != want {
			t.Errorf("%.60q: %q, want %q", line, got, want)
		}
	}
}

// What is as large as it may be is understood.
func TestParse_bounds(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("( ", n) + "a" + strings.Repeat(" )", n) }
	evals := func(n int) string {
		line := "a"
		for range n {
			line = "eval '" + strings.ReplaceAll(line, "'", `'"'"'`) + "'"
		}
		return line
	}
	for name, line := range map[string]string{
		"bytes":        "a #" + strings.Repeat("x", 64<<10-3),
		"words":        "a" + strings.Repeat(" b", 1999),
		"commands":     strings.Repeat("a;", shell.CommandsMax),
		"brackets":     "a '" + strings.Repeat("(", 200) + "'",
		"one by one":   strings.Repeat("(a);", 250),
		"subshells":    nested(11),
		"expansions":   "echo " + strings.Repeat("${a:-", 12) + strings.Repeat("}", 12),
		"side by side": "echo " + strings.Repeat("${a:-x}", 40),
		"starters":     strings.Repeat("nohup ", 11) + "a",
		"scripts":      evals(5),
	} {
		if s := shell.Parse(line); s.Opaque != "" {
			t.Errorf("%s: %q", name, s.Opaque)
		}
	}
	for name, line := range map[string]string{"subshells": nested(13), "starters": strings.Repeat("nohup ", 13) + "a", "scripts": evals(7)} {
		if s := shell.Parse(line); s.Opaque != "it is nested too deep" {
			t.Errorf("%s: %q", name, s.Opaque)
		}
	}
}

func sudos(n int) string {
	s := ""
	for i := range n {
		s += strings.Repeat("sudo ", 30-i) + "a · "
	}
	return s
}

func parse(t *testing.T, pattern string) shell.Pattern {
	t.Helper()
	p, err := shell.ParsePattern(pattern)
	if err != nil {
		t.Fatalf("ParsePattern(%q): %v", pattern, err)
	}
	return p
}

func TestPattern(t *testing.T) {
	cases := []struct {
		pattern, line string
		covers, hits  bool
	}{
		{"git push", "git push", true, true},
		{"git push", "git push x", false, false},
		{"git push *", "git push", true, true},
		{"git push *", "git push origin main --force", true, true},
		{"git push *", "git pull", false, false},
		{"git * main", "git push main", true, true},
		{"git * main", "git main", false, false},
		{"git ** push **", "git -C d push -f", true, true},
		{"git ** push **", "git status", false, false},
		{"npm run test*", "npm run test:unit", true, true},
		{"npm run test*", "npm run build", false, false},
		{"*.sh *", "x.sh a", true, true},
		{"a*b*c", "aXbYc", true, true},
		{"a*b*c", "aXcYb", false, false},
		{"a*a", "a", false, false},
		{"a*b*b", "ab", false, false},
		{"a*b*b", "aXbYb", true, true},
		{"a*bc*bc", "abc", false, false},
		{"*b*", "b", true, true},
		{"a*b*c", "aXbc", true, true},
		{"echo '*'", "echo '*'", true, true},
		{"echo '*'", "echo x", false, false},
		{`echo \*`, "echo '*'", true, true},
		{"echo 'a b'", "echo a\\ b", true, true},
		{"echo 'a b'", "echo a b", false, false},
		{"*", "anything > f", true, true},
		{"**", "$X", true, true},
		{"rm *", "/bin/rm x", false, true},
		{"/bin/rm *", "/bin/rm x", true, true},
		{"rm *", "$X y", false, true},
		{"rm *", "r$X y", false, true},
		{"git push *", "git $X", false, true},
		{"git push *", "git $X status", false, true}, // $X may be: push x
		{"git push *", "git status $X", false, false},
		{"git push", "git push $X", false, true}, // it may be empty
		{"git status *", "git status $X", true, true},
		{"git status", "GIT_DIR=x git status", false, true},
		{"GIT_DIR=x git status", "GIT_DIR=x git status", true, true},
		{"GIT_DIR=x git status", "git status", false, false},
		{"cat *", "cat x > y", false, true},
		{"a b", "A=1", false, false},
		{"** x", "a b x", true, true},
		{"** x", "x", true, true},
	}
	for _, c := range cases {
		s := shell.Parse(c.line)
		if len(s.Commands) != 1 || s.Opaque != "" {
			t.Fatalf("%q: %s", c.line, show(s))
		}
		p := parse(t, c.pattern)
		if got := p.Covers(s.Commands[0]); got != c.covers {
			t.Errorf("%q covers %q = %v", c.pattern, c.line, got)
		}
		if got := p.Hits(s.Commands[0]); got != c.hits {
			t.Errorf("%q hits %q = %v", c.pattern, c.line, got)
		}
	}
}

func TestParsePattern_refuses(t *testing.T) {
	for _, s := range []string{
		"", "  ", "'a", `"a`, `a\`, "a; b", "a && b", "a | b", "a > b", "a $X", "a `b`", "a\nb", "(a)",
		strings.Repeat("x", 2049), strings.Repeat("x ", 65),
	} {
		if _, err := shell.ParsePattern(s); err == nil {
			t.Errorf("%.40q was taken", s)
		}
	}
	for _, s := range []string{strings.Repeat("x", 2048), strings.Repeat("x ", 64)} {
		if _, err := shell.ParsePattern(s); err != nil {
			t.Errorf("%.40q: %v", s, err)
		}
	}
}

// A pattern for one command is one that ParsePattern takes, whatever its size.
func TestExact_bounds(t *testing.T) {
	for line, want := range map[string]bool{
		"a" + strings.Repeat(" b", 63): true, "a" + strings.Repeat(" b", 64): false, "A=1 a" + strings.Repeat(" b", 63): false,
		"a " + strings.Repeat("b", 2046): true, "a " + strings.Repeat("b", 2047): false, "A=1": false, "> f": false,
	} {
		s := shell.Parse(line)
		pattern, ok := shell.Exact(s.Commands[0])
		if ok != want {
			t.Errorf("%.40q: %v", line, ok)
		}
		if ok && !parse(t, pattern).Covers(s.Commands[0]) {
			t.Errorf("%.40q: its pattern does not cover it", line)
		}
	}
}

// TestParse_agreesWithBash compares words with what a real shell makes of them.
func TestParse_agreesWithBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here to compare with")
	}
	args := []string{
		`a 'b c' "d e" f\ g`, `r'm' -r"f"`, `"a\"b\\c\d"`, `'a'"'"'b'`, `""`, `a#b`, `'#' x`, `a\\b`, `"$"`, `a$`, `"a` + "\n" + `b"`,
		`\'`, `"'"`, `a=b`, `{}`, `[`, `]`, `-- -x`, `a"b"'c'd`, `"\$x"`, `'$x'`, "a \\\nb", `!`, `a!b`, `%`, `^a`,
	}
	for _, a := range args {
		s := shell.Parse("printf '%s\\0' " + a)
		if len(s.Commands) != 1 || s.Opaque != "" {
			t.Errorf("%q: %s", a, show(s))
			continue
		}
		var got []string
		for _, w := range s.Commands[0].Words[2:] {
			got = append(got, w.Text)
		}
		out, err := exec.Command(bash, "--norc", "-c", "cd "+filepath.ToSlash(t.TempDir())+"; printf '%s\\0' "+a).Output()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), got); d != "" {
			t.Errorf("%q: -bash +ours\n%s", a, d)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"a; b && c | d", "echo $(a `b`) \"${c:-$(d)}\"", "cat <<E\nx\nE\n", "if a; then b; fi", "for x in a; do b; done",
		"[[ a && b ]]", "sudo -u a b", "xargs -I{} x {}", "bash -c 'a'", "find . -exec a {} \\;", "a 2>&1 >f", "$'a' $\"b\" $((1)) {a,b}",
		"\\", "'", "\"", "`", "$(", "${", "<<", ">&", "&>", "((", "\"\\", "env -", "time", "for", "a\\\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		s := shell.Parse(line)
		if len(s.Commands) > shell.CommandsMax {
			t.Fatal("too many commands")
		}
		for _, c := range s.Commands {
			exact, ok := shell.Exact(c)
			if !ok {
				continue
			}
			p, err := shell.ParsePattern(exact)
			if err != nil {
				t.Fatalf("the exact pattern %q of %q: %v", exact, line, err)
			}
			if !p.Covers(c) || !p.Hits(c) {
				t.Fatalf("the exact pattern %q does not cover its own command of %q", exact, line)
			}
			longer := c
			longer.Words = append(append([]shell.Word{}, c.Words...), shell.Word{Text: "more"})
			if p.Covers(longer) {
				t.Fatalf("the exact pattern %q covers more than its command", exact)
			}
		}
	})
}
