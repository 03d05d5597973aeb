package sandbox

import "context"

type letSleepKey struct{}

// LetSleep returns a context whose calls wake no paused sandbox: they are refused, as if
// its spec had NoWake. It is for what only looks, such as a page that is kept up to date: a
// look that was on its way when a person paused the sandbox must not undo that.
func LetSleep(ctx context.Context) context.Context {
	return context.WithValue(ctx, letSleepKey{}, true)
}

// LetsSleep reports whether ctx is of LetSleep.
func LetsSleep(ctx context.Context) bool { return ctx.Value(letSleepKey{}) != nil }
