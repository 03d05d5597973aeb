package secret

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

// Bounds of a command that tells the key.
const (
	commandTime   = 30 * time.Second
	commandWait   = time.Second // for what it leaves behind with its output open
	commandOutput = 256         // a key in hexadecimal has 64 bytes
	commandErrors = 4 << 10
	saidBytes     = 400 // of its errors, that are shown
)

// CommandSealer returns the Sealer of the key that a command prints: 32 bytes, as base64 or
// in hexadecimal, and perhaps the end of a line. The command is a program and its arguments,
// no line of a shell. It is run once; the key is in this process's memory alone.
//
// Invalid: it cannot be run, or does not print a key. Unavailable: it fails, or does not end.
// Errors have what it writes to its standard error, and nothing of what it prints.
func CommandSealer(ctx context.Context, argv []string) (Sealer, error) {
	text, err := runForKey(ctx, argv, commandTime)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, err
	}
	defer clear(key)
	return NewSealer(key)
}

// runForKey runs a command and returns what it prints.
func runForKey(ctx context.Context, argv []string, limit time.Duration) (Value, error) {
	if len(argv) == 0 || argv[0] == "" {
		return Value{}, errs.New(errs.Invalid, "the command for the key of the secrets has no program")
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = commandWait
	out, said := beginning{max: commandOutput, full: cancel}, beginning{max: commandErrors, full: func() {}}
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	printed := Value{string(out.bytes)}
	switch {
	case out.more:
		return Value{}, errs.New(errs.Invalid, "the command for the key of the secrets prints more than %d bytes", commandOutput).WithHint(keyHint)
	case err == nil:
		return printed, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, exec.ErrDot), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return Value{}, errs.Wrap(errs.Invalid, err, "the command for the key of the secrets cannot be run")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it has not ended in %s", limit)
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	if text := said.without(printed); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return Value{}, errs.Wrap(errs.Unavailable, err, "the command for the key of the secrets fails")
}

const keyHint = "it has to print 32 bytes as base64 or in hexadecimal: `head -c 32 /dev/urandom | base64` makes such a key"

// parseKey reads a key as a command prints it.
func parseKey(printed Value) ([]byte, error) {
	text := strings.TrimSuffix(strings.TrimSuffix(printed.text, "\n"), "\r")
	if key, err := hex.DecodeString(text); err == nil && len(key) == keyBytes {
		return key, nil
	}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		// The decoder skips ends of lines.
		if key, err := e.Strict().DecodeString(text); err == nil && len(key) == keyBytes && !strings.ContainsAny(text, "\r\n") {
			return key, nil
		}
	}
	return nil, errs.New(errs.Invalid, "the command for the key of the secrets prints %d bytes that are no key", len(text)).WithHint(keyHint)
}

// beginning keeps the first bytes of what is written.
type beginning struct {
	max   int
	bytes []byte
	more  bool   // was written
	full  func() // is called then
}

func (b *beginning) Write(p []byte) (int, error) {
	room := b.max - len(b.bytes)
	if len(p) > room {
		b.more = true
		b.full()
	}
	b.bytes = append(b.bytes, p[:min(room, len(p))]...)
	return len(p), nil
}

// without returns the bytes as a line for people, without what else was printed: a command
// that traces itself says the key.
func (b *beginning) without(printed Value) string {
	text := string(b.bytes)
	for secret := range strings.FieldsSeq(printed.text) {
		text = strings.ReplaceAll(text, secret, stars)
	}
	if b.more { // the last one may be cut off
		text = text[:max(0, len(text)-commandOutput)]
	}
	return clip.Line(text, saidBytes)
}
