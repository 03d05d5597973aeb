// Package e2e holds tests of the whole program: the real binary, a real
// server, real gVisor sandboxes, and kill -9 in the middle of everything.
package e2e
