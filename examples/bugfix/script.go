// Package bugfix is the example that runs without a model: a small project with a failing
// test, and a script that plays the model which mends it.
//
//	m, err := script.New("example", bugfix.Script)
//
// The catalogue of models offers it as the model `example`; scripts/demo plays the file.
// It is data and safe for concurrent use.
package bugfix

import _ "embed"

// Script is what the scripted model says, as docs/script.md describes it.
//
//go:embed script.yaml
var Script []byte
