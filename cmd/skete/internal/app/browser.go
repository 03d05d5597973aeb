package app

import (
	"context"
	"os"
	"os/exec"
)

// OpenBrowser asks the desktop for its browser; false = there is none. The address is
// one argument of a program, never a shell's.
func OpenBrowser(ctx context.Context, address string) bool {
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return false
	}
	return exec.CommandContext(ctx, "xdg-open", address).Run() == nil
}
