package template

import "slices"

// DebianName is the ready template without a language of its own.
const DebianName = "debian"

// ReadyNames lists the templates that can be made when they are first asked
// for (package debian): debian, and one for each language, which has its name.
func ReadyNames() []string { return append([]string{DebianName}, LanguageNames()...) }

// IsReady reports whether a template of this name can be made when it is first
// asked for.
func IsReady(name string) bool { return slices.Contains(ReadyNames(), name) }
