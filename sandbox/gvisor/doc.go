// Package gvisor boots machines in gVisor.
package gvisor
