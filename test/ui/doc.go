// Package ui holds tests of the web UI: the real binary with real gVisor sandboxes and a
// scripted model, seen through a real Chromium. Each asserts what is in the page or what
// goes over the network. Beside them stand tests of how the UI is built.
package ui
