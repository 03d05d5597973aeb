package jsontext

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestExtent(t *testing.T) {
	for _, c := range []struct {
		in              string
		length, deepest int
	}{
		{"", 0, 0},
		{"no JSON", 0, 0},
		{"{}", 2, 1},
		{"{} and more {[", 2, 1},
		{`{"a": [1, {"b": 2}]} rest`, 20, 3},
		{`{"a": "}"}`, 10, 1},
		{`{"a": "\"}"} x`, 12, 1},
		{`{"a": "\\"} "`, 11, 1},
		{`{"a": [`, 0, 2},
		{`{"a": "}`, 0, 1},
		{`{"a": "\`, 0, 1},
		{"[[[", 0, 3},
		{"}{", 0, 0},
	} {
		length, deepest := Extent(c.in)
		if length != c.length || deepest != c.deepest {
			t.Errorf("Extent(%q) = %d, %d; want %d, %d", c.in, length, deepest, c.length, c.deepest)
		}
	}
}

// FuzzExtent holds it against encoding/json: what that takes as one object or
// list ends where Extent says, and is no deeper.
func FuzzExtent(f *testing.F) {
	f.Add(`{"a": [1, "\"}", {"b": {}}]}`)
	f.Add("[[[]]")
	f.Add(`{"a": "\`)
	f.Fuzz(func(t *testing.T, s string) {
		length, deepest := Extent(s)
		if length < 0 || length > len(s) || deepest < 0 || deepest > len(s) {
			t.Fatalf("Extent(%q) = %d, %d", s, length, deepest)
		}
		if !json.Valid([]byte(s)) {
			return
		}
		trimmed := strings.TrimLeft(s, " \t\r\n")
		if trimmed[0] != '{' && trimmed[0] != '[' {
			return
		}
		if length, _ := Extent(trimmed); length != len(strings.TrimRight(trimmed, " \t\r\n")) {
			t.Fatalf("Extent(%q) = %d", trimmed, length)
		}
	})
}
