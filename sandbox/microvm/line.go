package microvm

import (
	"fmt"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/stage/plan"
	"github.com/skete-dev/skete/guest/wire"
)

// VMM is a program that runs machines; their kernels want different words.
type VMM string

// The monitors that we know.
const (
	QEMU        VMM = "qemu"
	Firecracker VMM = "firecracker"
)

// lineBytesMax is what the kernel reads of its command line on x86
// (COMMAND_LINE_SIZE, with the NUL); it cuts the rest off silently.
const lineBytesMax = 2048 - 1

// Line is what a kernel is told.
type Line struct {
	VMM VMM
	// TSCKHz is the rate of the host's time stamp counter; 0 = not told.
	// Without it a kernel under QEMU's emulation hangs at random while it
	// measures.
	TSCKHz int
	// Emulated is a processor that QEMU plays. Nothing is speculated in it, so
	// what a kernel does against that protects nothing and is slow; and it may
	// lag behind its own timer.
	Emulated bool
	// Root, Layer and Work are the disks' names in the machine ("vda").
	// Layer "" keeps the root's changes in memory; Work "" is no workspace disk.
	Root, Layer, Work string
	// Console lets the kernel say all that it does, for diagnosis.
	Console bool
	// Boot is told to the guest, but for Env and the network's settings: those
	// may be large, and are told by Introduce. Mounts is always set.
	Boot wire.Boot
}

// Shape returns b without what Introduce, or the adoption of a clone, tells.
func Shape(b wire.Boot) wire.Boot {
	b.Env = nil
	if b.Network != nil {
		b.Network = &wire.Network{}
	}
	return b
}

// CommandLine returns the kernel's command line. Limit: it would be longer
// than the kernel reads.
func CommandLine(l Line) (string, error) {
	boot := Shape(l.Boot)
	boot.Mounts = true
	ours, err := plan.Params{Root: l.Root, Layer: l.Layer, Work: l.Work, Boot: boot}.Encode()
	if err != nil {
		return "", err
	}
	words := append(l.kernelWords(), ours)
	line := strings.Join(words, " ")
	if len(line) > lineBytesMax {
		return "", errs.New(errs.Limit, "the kernel's command line has %d bytes, the kernel reads %d", len(line), lineBytesMax)
	}
	return line, nil
}

// kernelWords: a machine that panics or reboots ends, whatever the reason.
func (l Line) kernelWords() []string {
	words := []string{"panic=-1", "cryptomgr.notests"} // the algorithms have been tested where the kernel was made
	if l.Emulated {
		// The time stamp counter is the host's. A kernel that lags compares it with
		// ticks, of which it has missed some, and takes those for the truth: from
		// then on its clock lags too, and all that sleeps sleeps for whole ticks.
		words = append(words, "mitigations=off", "tsc=reliable")
	}
	if !l.Console {
		words = append(words, "quiet")
	}
	switch l.VMM {
	case Firecracker:
		// Our line replaces Firecracker's own, whose "nomodule" would leave
		// the kernel without disks.
		words = append(words, "reboot=k", "i8042.noaux", "i8042.nomux", "i8042.dumbkbd", "swiotlb=noforce", "clocksource=kvm-clock")
		if !l.Console {
			return append(words, "8250.nr_uarts=0") // a guest could fill the host's disk with it
		}
		return append(words, "console=ttyS0")
	default:
		words = append(words, "reboot=t", "console=ttyS0")
		if l.TSCKHz > 0 {
			words = append(words, fmt.Sprintf("tsc_early_khz=%d", l.TSCKHz))
		}
	}
	return words
}
