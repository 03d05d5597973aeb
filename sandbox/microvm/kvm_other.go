//go:build !(linux && amd64)

package microvm

import (
	"context"

	"github.com/skete-dev/skete/errs"
)

// InspectKVM is for amd64 only, so far.
func InspectKVM(context.Context) (KVMReport, error) {
	return KVMReport{}, errs.New(errs.Unsupported, "KVM is not used on this architecture")
}
