package firecracker

import (
	"context"
	"os"

	"github.com/skete-dev/skete/errs"
)

// probeKVM says what is wrong with /dev/kvm before anything is started.
func probeKVM(context.Context) error {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return errs.Wrap(errs.Unsupported, err, "KVM cannot be used here").
			WithHint("load kvm_intel or kvm_amd, and switch virtualisation on in the firmware or the cloud's settings")
	}
	return f.Close()
}
