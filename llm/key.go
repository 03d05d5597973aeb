package llm

import "log/slog"

// Key is what a model vendor knows us by. It prints as ***, however it is
// printed; only Reveal gives it away.
type Key string

// String implements fmt.Stringer.
func (Key) String() string { return "***" }

// GoString implements fmt.GoStringer.
func (Key) GoString() string { return "***" }

// MarshalText keeps the key out of JSON, YAML and text.
func (Key) MarshalText() ([]byte, error) { return []byte("***"), nil }

// LogValue implements slog.LogValuer.
func (Key) LogValue() slog.Value { return slog.StringValue("***") }

// Reveal returns the key for the one header that carries it.
func (k Key) Reveal() string { return string(k) }
