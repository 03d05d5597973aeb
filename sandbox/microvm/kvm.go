package microvm

import (
	"context"

	"github.com/skete-dev/skete/errs"
)

// KVMReport says what the host's KVM can really do.
type KVMReport struct {
	// Version of the interface; 12 is the only one there is.
	Version int
	// Missing names capabilities that monitors need and this KVM lacks.
	Missing []string
	// Broken names instructions that end a machine here, with what KVM said.
	// A KVM inside another virtual machine may emulate some of them only.
	Broken []string
}

// Works reports whether machines run.
func (r KVMReport) Works() bool {
	return r.Version == kvmVersion && len(r.Missing) == 0 && len(r.Broken) == 0
}

const kvmVersion = 12

// ProbeKVM runs six tiny machines, each with an instruction that every kernel
// uses, because a /dev/kvm that opens proves nothing. Unsupported, with a hint:
// KVM is not there, or does not work; emulation does.
func ProbeKVM(ctx context.Context) error {
	r, err := InspectKVM(ctx)
	switch {
	case err != nil:
		return err
	case r.Version != kvmVersion:
		return errs.New(errs.Unsupported, "KVM speaks version %d, not %d", r.Version, kvmVersion)
	case len(r.Missing) > 0:
		return errs.New(errs.Unsupported, "KVM lacks %v", r.Missing).WithHint("a newer kernel on the host may have it")
	case len(r.Broken) > 0:
		return errs.New(errs.Unsupported, "KVM opens, but machines die of: %v", r.Broken).
			WithHint("this host is a virtual machine whose own host does not pass KVM on; machines are emulated instead")
	}
	return nil
}
