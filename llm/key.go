package llm

import "log/slog"

// Key is what a model vendor knows us by. However it is printed, also as an
// unexported field of something else, only Reveal gives it away. The zero Key
// is none.
type Key struct {
	// A pointer, because fmt calls no methods on what it finds in unexported
	// fields, and does not follow pointers there either.
	value *string
}

// NewKey returns a key.
func NewKey(value string) Key { return Key{&value} }

// Reveal returns the key for the one header that carries it.
func (k Key) Reveal() string {
	if k.value == nil {
		return ""
	}
	return *k.value
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k.Reveal() == "" }

// String implements fmt.Stringer.
func (Key) String() string { return "***" }

// GoString implements fmt.GoStringer.
func (Key) GoString() string { return "***" }

// MarshalText keeps the key out of JSON, YAML and text.
func (Key) MarshalText() ([]byte, error) { return []byte("***"), nil }

// LogValue implements slog.LogValuer.
func (Key) LogValue() slog.Value { return slog.StringValue("***") }
