package client

import (
	"unicode/utf8"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
)

// Bounds of a command, as servers have them.
const (
	argBytesMax = 128<<10 - 1 // what Linux allows for one argument
	argvMax     = 4096
	// startBytesMax is of arguments and environment together, each with its end.
	startBytesMax = 128 << 10
)

// checkStart refuses what JSON would change on its way (it knows no bytes that
// are not UTF-8) and what no server takes, before anything is sent.
func checkStart(p api.StartProcess) error {
	if len(p.Argv) > argvMax {
		return errs.New(errs.Invalid, "the command has %d arguments, more than %d", len(p.Argv), argvMax)
	}
	size := 0
	for i, a := range p.Argv {
		size += len(a) + 1
		if len(a) > argBytesMax {
			return errs.New(errs.Invalid, "argument %d has %d bytes, more than %d", i, len(a), argBytesMax).
				WithHint("write it to a file in the sandbox, or pass it by stdin")
		}
		if !utf8.ValidString(a) {
			return notUTF8("argument %d", i)
		}
	}
	for _, line := range []struct{ name, text string }{{"command line", p.Command}, {"code", p.Code}} {
		if len(line.text) > argBytesMax {
			return errs.New(errs.Invalid, "the %s has %d bytes, more than %d", line.name, len(line.text), argBytesMax).
				WithHint("write it to a file in the sandbox and run that, or pass it by stdin")
		}
		if !utf8.ValidString(line.text) {
			return notUTF8("the %s", line.name)
		}
	}
	for k, v := range p.Env {
		size += len(k) + len(v) + 2
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return notUTF8("the environment variable %.40q", k)
		}
	}
	if size += len(p.Command) + len(p.Code); size > startBytesMax {
		return errs.New(errs.Invalid, "arguments and environment have %d bytes together, more than %d", size, startBytesMax).
			WithHint("write them to a file in the sandbox, or pass them by stdin")
	}
	if !utf8.ValidString(p.Cwd) {
		return notUTF8("the working directory %.40q", p.Cwd)
	}
	return nil
}

func notUTF8(what string, args ...any) error {
	return errs.New(errs.Invalid, what+" is not UTF-8, and cannot be sent as it is", args...).
		WithHint("pass such bytes by stdin or in a file")
}
