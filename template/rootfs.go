package template

import (
	"time"

	"github.com/skete-dev/skete/template/oci"
)

// HostName is the template that shows the host's own programs.
const HostName = "host"

// Rootfs is a root file system ready to boot from: the plain currency between
// templates and providers.
//
// Dir holds every mount point that a provider needs (/proc, /dev, /sys, /tmp,
// /run, /workspace, /home/user, /.skete and the targets of Binds), because a
// provider must never create one in a shared directory.
type Rootfs struct {
	Name string // of the template
	Hash string // of the content, hex
	// Dir is a host directory; the machine sees it as its root, read-only
	// below a writable layer of its own.
	Dir string
	// Binds are host directories shown read-only inside; none overlaps Dir.
	Binds []Bind
	// Env holds defaults, PATH among them.
	Env map[string]string
	// Image is the same tree as a read-only ext4 file system in a file, for
	// machines with a kernel of their own; "" unless asked for (Store.Image).
	Image string
	// Use is how the template is meant to be used; zero where it is not known.
	Use Use
}

// Use is what a template's recipe says of the sandboxes that start from it. A
// sandbox's own specification wins.
type Use struct {
	User    string // of commands that name none: "root" or "user"; "" = user
	Workdir string // "" = the workspace
	// Start is a command that is started when a machine has booted; Ready is
	// tried until it ends well, for at most ReadyTimeout (0 = a default).
	Start, Ready string
	ReadyTimeout time.Duration
}

// Needs is the machine that a template is meant for, where a sandbox's specification
// asks for none. Zero = nothing is said of it.
type Needs struct {
	CPUs     float64
	MemoryMB int
}

func (r Rootfs) view() rootView { return rootView{Dir: r.Dir, Binds: r.Binds} }

// Info describes a template to users.
type Info struct {
	Name      string
	Kind      string // "host" or "import"
	Hash      string
	Bytes     int64
	Languages []string // whose tools are there
	Skipped   int64    // devices and odd attributes that were left out
	CreatedAt time.Time
	Source    *Source // of an image
	Needs     Needs
}

// Source says which image a template was made of.
type Source struct {
	Reference string     `json:"reference,omitempty"`
	Digest    string     `json:"digest"`
	Platform  string     `json:"platform,omitempty"`
	Config    oci.Config `json:"config"`
}
