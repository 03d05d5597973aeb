package recipe

import (
	"context"
	"time"

	"github.com/skete-dev/skete/guest/wire"
)

// Exec runs a command as steps do.
func Exec(ctx context.Context, guest *wire.Client, text string, output func(string)) error {
	return (&worker{guest: guest, output: output}).command(ctx, "root", text, time.Minute)
}
