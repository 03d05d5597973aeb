package stream

import (
	"cmp"
	"strings"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// Bounds of a command.
const (
	// argBytesMax is what Linux allows for one argument (MAX_ARG_STRLEN less the NUL).
	argBytesMax = 128<<10 - 1
	argvMax     = 4096
	envMax      = 1024
	rlimitsMax  = 16
)

// Shells are tried in this order for a command line: the next one when the
// guest says that the program is not there.
var shells = []string{"/bin/bash", "/bin/sh"}

// Shells says how many shells there are to try for req; 1 for an argv.
func Shells(req api.StartProcess) int {
	if req.Command == "" {
		return 1
	}
	return len(shells)
}

// StartRequest makes the guest's request of a caller's. language is the sandbox's;
// shell counts from 0 through Shells.
func StartRequest(req api.StartProcess, language string, shell int) (*wire.StartRequest, error) {
	argv, err := argvOf(req, language, shell)
	if err != nil {
		return nil, err
	}
	if len(req.Env) > envMax || len(req.Rlimits) > rlimitsMax {
		return nil, errs.New(errs.Invalid, "at most %d environment variables and %d rlimits", envMax, rlimitsMax)
	}
	r := &wire.StartRequest{
		Fingerprint: startFingerprint(req, language),
		Key:         req.Key, Cwd: []byte(req.Cwd), User: req.User, Stdin: req.Stdin,
		TimeoutMs: req.TimeoutMS, SpoolBytesMax: req.SpoolMax, Background: req.Background,
	}
	for _, a := range argv {
		if len(a) > argBytesMax {
			return nil, errs.New(errs.Invalid, "an argument is longer than %d bytes", argBytesMax).
				WithHint("write it to a file in the sandbox and run that")
		}
		if strings.IndexByte(a, 0) >= 0 {
			return nil, errs.New(errs.Invalid, "an argument holds a NUL byte")
		}
		r.Argv = append(r.Argv, []byte(a))
	}
	if len(req.Env) > 0 {
		r.Env = make(map[string][]byte, len(req.Env))
		for k, v := range req.Env {
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
				return nil, errs.New(errs.Invalid, "%.40q is no environment variable", k)
			}
			r.Env[k] = []byte(v)
		}
	}
	for _, l := range req.Rlimits {
		r.Rlimits = append(r.Rlimits, &wire.Rlimit{Name: l.Name, Soft: l.Soft, Hard: l.Hard})
	}
	if req.Wait {
		r.Overflow = wire.Overflow_OVERFLOW_WAIT
	}
	if req.Terminal != nil {
		if r.Pty, err = ptySize(*req.Terminal); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// startFingerprint is of what the caller asks to run, however it is run and watched.
func startFingerprint(req api.StartProcess, language string) []byte {
	return wire.Fingerprint(struct {
		Argv          []string          `json:"argv"`
		Command, Code string            `json:",omitempty"`
		Language      string            `json:",omitempty"`
		Env           map[string]string `json:",omitempty"`
		Cwd, User     string            `json:",omitempty"`
		Terminal      bool              `json:",omitempty"`
	}{
		Argv: req.Argv, Command: req.Command, Code: req.Code, Language: codeLanguage(req, language),
		Env: req.Env, Cwd: req.Cwd, User: req.User, Terminal: req.Terminal != nil,
	})
}

// codeLanguage is the language of the code, if there is any.
func codeLanguage(req api.StartProcess, language string) string {
	if req.Code == "" {
		return ""
	}
	return cmp.Or(req.Language, language)
}

// ptySize checks the size of a terminal.
func ptySize(s api.TerminalSize) (*wire.PtySize, error) {
	if s.Cols < 1 || s.Cols > 1000 || s.Rows < 1 || s.Rows > 1000 {
		return nil, errs.New(errs.Invalid, "a terminal has 1 to 1000 columns and rows, not %d x %d", s.Cols, s.Rows)
	}
	return &wire.PtySize{Cols: uint32(s.Cols), Rows: uint32(s.Rows)}, nil
}

// argvOf finds the one way in which req names a program.
func argvOf(req api.StartProcess, language string, shell int) ([]string, error) {
	given := 0
	for _, is := range []bool{len(req.Argv) > 0, req.Command != "", req.Code != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, errs.New(errs.Invalid, "exactly one of argv, command and code must be set")
	}
	switch {
	case len(req.Argv) > argvMax:
		return nil, errs.New(errs.Invalid, "at most %d arguments", argvMax)
	case len(req.Argv) > 0 && req.Argv[0] == "":
		return nil, errs.New(errs.Invalid, "argv[0] is empty")
	case len(req.Argv) > 0:
		return req.Argv, nil
	case req.Command != "":
		return []string{shells[shell], "-c", req.Command}, nil
	}
	return codeProgram(codeLanguage(req, language), req.Code)
}

// goRun compiles the program and runs it: `go run` would turn every exit code
// into 1. The directory goes when the program ends.
const goRun = `d=$(mktemp -d) || exit 125
trap 'rm -rf "$d"' EXIT
printf %s "$1" >"$d/main.go" && go build -o "$d/main" "$d/main.go" || exit 125
shift; "$d/main" "$@"`

// codeProgram returns the command that runs code in a language.
func codeProgram(language, code string) ([]string, error) {
	switch language {
	case "python":
		return []string{"python3", "-c", code}, nil
	case "node":
		return []string{"node", "-e", code}, nil
	case "ruby":
		return []string{"ruby", "-e", code}, nil
	case "go":
		return []string{"/bin/sh", "-c", goRun, "go", code}, nil
	case "":
		return nil, errs.New(errs.Invalid, "code needs a language").
			WithHint("set language here or when the sandbox is made: python, node, go or ruby")
	}
	return nil, errs.New(errs.Invalid, "%.40q is not a language that code can be run in", language).
		WithHint("python, node, go or ruby")
}
