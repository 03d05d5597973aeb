// Package stage is what the first program of a virtual machine does before it
// is init: it turns an initramfs and three disks into a root file system.
package stage
