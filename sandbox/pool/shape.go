package pool

import (
	"cmp"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
)

// Shape is all of a machine that cannot be changed once it runs. A sandbox can
// be given a warm machine of exactly its shape.
type Shape struct {
	Provider string  `json:"provider"`
	Template string  `json:"template"`
	Rootfs   string  `json:"rootfs"` // hash of the template's root file system
	CPUs     float64 `json:"cpus"`
	MemoryMB int     `json:"memory_mb"`
	DiskMB   int     `json:"disk_mb"`
	PidsMax  int     `json:"pids_max"`
	DiskMBps int     `json:"disk_mbps,omitempty"`
	DiskIOPS int     `json:"disk_iops,omitempty"`
	Root     bool    `json:"root,omitempty"`
	Network  bool    `json:"has_network,omitempty"` // whatever its policy
	Guest    string  `json:"guest"`                 // names the guest program
}

// ShapeOf returns the shape of a normalised and settled spec.
func ShapeOf(s sandbox.Spec, provider string, root template.Rootfs, guest string) Shape {
	return Shape{
		Provider: provider, Template: root.Name, Rootfs: root.Hash, CPUs: s.CPUs, MemoryMB: s.MemoryMB, DiskMB: s.DiskMB,
		PidsMax: s.PidsMax, DiskMBps: s.DiskMBps, DiskIOPS: s.DiskIOPS, Root: s.Root, Network: s.HasNetwork(), Guest: guest,
	}
}

// spec is what a machine of the shape is booted with, before a sandbox claims it.
func (s Shape) spec() sandbox.Spec {
	spec := sandbox.Spec{
		Template: s.Template, Provider: s.Provider, CPUs: s.CPUs, MemoryMB: s.MemoryMB, DiskMB: s.DiskMB,
		PidsMax: s.PidsMax, DiskMBps: s.DiskMBps, DiskIOPS: s.DiskIOPS, Root: s.Root, Network: egress.None,
	}
	if s.Network {
		spec.Egress = &egress.Policy{} // nothing leaves it before it is claimed
	}
	return spec
}

// compare orders shapes for people.
func (s Shape) compare(t Shape) int {
	return cmp.Or(
		cmp.Compare(s.Provider, t.Provider), cmp.Compare(s.Template, t.Template), cmp.Compare(s.MemoryMB, t.MemoryMB),
		cmp.Compare(s.CPUs, t.CPUs), cmp.Compare(s.DiskMB, t.DiskMB), cmp.Compare(s.DiskMBps, t.DiskMBps), cmp.Compare(s.DiskIOPS, t.DiskIOPS),
		cmp.Compare(s.Rootfs, t.Rootfs), cmp.Compare(s.Guest, t.Guest),
	)
}
