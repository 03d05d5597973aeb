// Package shell takes a shell line apart into the simple commands that it
// would run, so that a policy can decide about each of them.
//
//	s := shell.Parse("cd x && sudo git push origin main | tee log")
//	// cd x · sudo git push origin main · git push origin main · tee log
//	p, err := shell.ParsePattern("git push *")
//	p.Covers(s.Commands[2]) // for an allow: it is this and can be nothing else
//	p.Hits(s.Commands[2])   // for a deny: it may be this
//
// It is no shell: nothing is run, no variable is known. It knows quotes, lists,
// pipes, subshells, substitutions, here-documents, redirections, assignments,
// loops and conditions, and programs that start others (sudo, env, timeout,
// xargs, bash -c, find -exec, …). What a word becomes at run time is Dynamic.
// What it does not understand (functions, case, arrays, arithmetic commands, and
// what mvdan.cc/sh/v3/syntax cannot parse) makes the script Opaque, and the
// caller must then expect anything. A program with a language of its own (python -c, awk,
// make, a script in a file) is one command, whatever it does inside: rules
// about commands are a belt for people who watch an agent, the sandbox is the
// wall.
//
// Everything is pure and safe for concurrent use.
package shell

// Bounds of a line; beyond them it is opaque.
const (
	bytesMax    = 64 << 10
	CommandsMax = 256
	wordsMax    = 2000 // of one command
	depthMax    = 12   // of substitutions, subshells and programs that start others
)

// Word is one argument.
type Word struct {
	// Text is the argument without its quotes; of a dynamic one what was written.
	Text string
	// Dynamic: what the argument is, and whether it is one, shows at run time.
	Dynamic bool
}

// Command is a simple command.
type Command struct {
	Assigns []Word // NAME=value in front of it
	Words   []Word // may be empty: an assignment or a redirection alone
	// Writes: its output goes to a file by > or alike.
	Writes bool
	// Passing: all that it does is to start the next ones (timeout 5 …, bash -c
	// …). A rule may speak of it; none has to allow it.
	Passing bool
}

// Script is a line taken apart.
type Script struct {
	// Commands in the order in which they were written. What a program starts
	// follows it.
	Commands []Command
	// Opaque says what was not understood, "" = nothing. Commands are then those
	// that were found before.
	Opaque string
}

// Parse takes a line apart. It never fails: see Script.Opaque.
func Parse(line string) Script {
	s := Script{}
	p := &parser{src: line, out: &s}
	p.script()
	return s
}
