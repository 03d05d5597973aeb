package registry

import (
	"bytes"
	"context"
	_ "embed"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Script asks the package managers of the machine that it runs in. It needs sh, writes
// nothing, and fails for none that is missing.
//
//go:embed ask.sh
var Script string

const (
	askMax      = time.Minute
	askWait     = 5 * time.Second // for what the script leaves behind
	answerBytes = 1 << 20
)

// Ask asks the package managers of this host, all at once. It takes seconds. Unavailable: sh is not
// there, or does not end.
func Ask(ctx context.Context, sh string) (Set, error) {
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, sh, "-s")
	cmd.Stdin = strings.NewReader(Script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = askWait
	var out bounded
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return Set{}, errs.Wrap(errs.Unavailable, err, "ask the host's package managers where they fetch from")
	}
	return Parse(out.Bytes()), nil
}

// bounded keeps the first bytes of what is written.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := answerBytes - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
