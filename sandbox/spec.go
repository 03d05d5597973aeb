package sandbox

import (
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/sandbox/service"
)

// Isolation says what separates a sandbox from its host. It is reported as it
// truly is, and a spec may require a minimum.
type Isolation string

// From the strongest to none.
const (
	MicroVM         Isolation = "microvm"          // a kernel of its own, by hardware virtualisation
	MicroVMEmulated Isolation = "microvm-emulated" // a kernel of its own, on an emulated CPU
	UserKernel      Isolation = "user-kernel"      // a kernel in user space (gVisor) answers all system calls
	Container       Isolation = "container"        // namespaces and seccomp of the host's kernel
	None            Isolation = "none"             // nothing; tests only
)

// Remote is that of a machine elsewhere: what separates it from what is what its service
// says, and nothing is verified. No requirement is met by it, not even that of none.
const Remote Isolation = "remote"

// Isolations lists all that can be required, strongest first.
var Isolations = []Isolation{MicroVM, MicroVMEmulated, UserKernel, Container, None}

// AtLeast reports whether i is as strong as want, or stronger. Emulated
// microVMs count as microVMs only for user-kernel and weaker demands: who
// asks for "microvm" gets hardware or an error.
func (i Isolation) AtLeast(want Isolation) bool { return i.Rank() >= 0 && i.Rank() <= want.Rank() }

// Rank is the place in Isolations: the strongest has 0, an unknown one and Remote -1.
func (i Isolation) Rank() int {
	for n, x := range Isolations {
		if x == i {
			return n
		}
	}
	return -1
}

// State of a sandbox.
type State string

const (
	// Creating may become Running, Failed or Destroyed.
	Creating State = "creating"
	// Running may become Paused, Stopped, Failed or Destroyed.
	Running State = "running"
	// Paused may become Running, Stopped, Failed or Destroyed.
	Paused State = "paused"
	// Stopped has no machine; its workspace is kept. It may become Creating (a start) or Destroyed.
	Stopped State = "stopped"
	// Failed has no machine; Reason says why. It may become Creating (a start) or Destroyed.
	Failed State = "failed"
	// Destroyed is the end. The record stays for a while so that a late reader learns of it.
	Destroyed State = "destroyed"
)

// HasNetwork reports whether programs of the sandbox may reach something.
func (s Spec) HasNetwork() bool {
	return s.Network != "" && s.Network != egress.None || s.Egress != nil || s.Models != nil
}

// Policy is what may leave the sandbox.
func (s Spec) Policy() egress.Policy {
	p := egress.Policy{Profile: s.Network}
	if s.Egress != nil {
		p.Allow, p.Deny = s.Egress.Allow, s.Egress.Deny
	}
	return p
}

// Spec is what a user asks for. The zero value of a field means the default;
// Normalise fills defaults in and refuses what is absurd.
type Spec struct {
	Name     string    `json:"name,omitempty"` // of this sandbox alone among its tenant's
	Template string    `json:"template,omitempty"`
	Language string    `json:"language,omitempty"` // python, node, go, ruby: its tool must be in the template
	Provider string    `json:"provider,omitempty"` // "auto" or a provider's name
	Require  Isolation `json:"require,omitempty"`  // at least; creation fails rather than degrades
	CPUs     float64   `json:"cpus,omitempty"`
	MemoryMB int       `json:"memory_mb,omitempty"`
	DiskMB   int       `json:"disk_mb,omitempty"` // of the workspace; the root's writable layer has as much again
	PidsMax  int       `json:"pids_max,omitempty"`
	// DiskMBps and DiskIOPS bound what the machine's disks do in a second
	// (megabytes of 1,000,000 bytes, operations); 0 = no bound. See
	// Capabilities.LimitsDiskRate.
	DiskMBps int               `json:"disk_mbps,omitempty"`
	DiskIOPS int               `json:"disk_iops,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Workdir  string            `json:"workdir,omitempty"` // "" = the template's, else the workspace
	Root     bool              `json:"root,omitempty"`    // commands may ask for root
	Network  string            `json:"network,omitempty"` // a profile of package egress
	Egress   *egress.Policy    `json:"egress,omitempty"`  // rules beside the profile, which is Network's
	Models   *ModelGrant       `json:"models,omitempty"`  // that its programs may use; nil = none
	Persist  bool              `json:"persist,omitempty"` // expiry stops instead of destroys
	// Ephemeral is of requests: it does not persist, though what it is made of does.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// TTL ends the sandbox that long after its last start; 0 = no end but the
	// server's maximum. IdleTimeout does after that long without a call or a
	// running command that a client waits for; 0 = the server's default.
	TTL         time.Duration     `json:"ttl,omitempty"`
	IdleTimeout time.Duration     `json:"idle_timeout,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	// NoWake: a call to a paused sandbox is refused instead of waking it.
	NoWake bool `json:"no_wake,omitempty"`
	// NoStart: what the template is for is not started, nor waited for.
	NoStart bool `json:"no_start,omitempty"`
	// Services are declared when the sandbox has booted; skete.yaml of the
	// workspace and callers may declare them anew.
	Services []service.Spec `json:"services,omitempty"`
}
