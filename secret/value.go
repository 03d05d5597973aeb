package secret

import (
	"fmt"
	"log/slog"
)

const stars = "***"

// Value is a secret. It prints, and is encoded, as "***"; the zero Value is empty.
type Value struct{ text string }

// New makes a Value of a text.
func New(text string) Value { return Value{text} }

// Reveal returns the text. What is done with it is on the caller's head: it is for what
// leaves for the secret's own host.
func (v Value) Reveal() string { return v.text }

// Format implements fmt.Formatter, for all verbs.
func (v Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(stars)) }

// String implements fmt.Stringer.
func (v Value) String() string { return stars }

// GoString implements fmt.GoStringer.
func (v Value) GoString() string { return stars }

// MarshalText implements encoding.TextMarshaler, which JSON and YAML use.
func (v Value) MarshalText() ([]byte, error) { return []byte(stars), nil }

// LogValue implements slog.LogValuer.
func (v Value) LogValue() slog.Value { return slog.StringValue(stars) }
