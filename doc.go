// Package skete holds no code: the program is cmd/skete, the map of the
// packages is ARCHITECTURE.md. The house rules are tests of this package.
package skete
