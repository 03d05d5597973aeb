// Package template makes and keeps root file systems that sandboxes start
// from. Templates are content-addressed, shared read-only and never written
// by a sandbox.
package template
