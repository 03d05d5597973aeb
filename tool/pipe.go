package tool

import (
	"context"
	"io"
)

// Pipes are Commands that can start a program to speak with. Safe for concurrent use.
type Pipes interface {
	// Pipe starts a program of the machine and holds its stdin and stdout. Programs that
	// were started under the same Name before are ended first: those of a server that was
	// killed. The program ends with Close, and not with ctx.
	Pipe(ctx context.Context, p Program) (Pipe, error)
	// Sweep ends all programs whose Name begins with a text.
	Sweep(ctx context.Context, prefix string) error
}

// Program is what Pipe starts.
type Program struct {
	// Name is that of the one program at a time: 1..64 of A-Z a-z 0-9 _ -
	Name string
	Argv []string // the first one is looked up in PATH
	Env  map[string]string
	Dir  string
}

// Pipe is a program that runs. Read gives its stdout, io.EOF after the end; a reader that
// does not read makes the program wait. Write does not return before the machine has taken
// the bytes. Read and Write may be called at once, each by one goroutine.
type Pipe interface {
	io.ReadWriteCloser
	// Stderr is the end of what the program wrote there, for people.
	Stderr() string
	// Done is closed when the program has ended and Stderr has all that it wrote.
	Done() <-chan struct{}
}
