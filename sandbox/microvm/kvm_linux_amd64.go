package microvm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Requests of /dev/kvm (linux/kvm.h).
const (
	kvmGetAPIVersion   = 0xae00
	kvmCreateVM        = 0xae01
	kvmCheckExtension  = 0xae03
	kvmGetVCPUMmapSize = 0xae04
	kvmGetSupportedCPU = 0xc008ae05
	kvmCreateVCPU      = 0xae41
	kvmSetUserMemory   = 0x4020ae46
	kvmSetTSSAddr      = 0xae47
	kvmRun             = 0xae80
	kvmSetRegs         = 0x4090ae82
	kvmGetSRegs        = 0x8138ae83
	kvmSetSRegs        = 0x4138ae84
	kvmSetCPUID2       = 0x4008ae90
	exitIO             = 2
	exitHLT            = 5
	exitFailEntry      = 9
	exitInternalError  = 17
	cpuidEntriesMax    = 256
	cpuidEntryBytes    = 40
	probeSteps         = 8 // exits of one machine
	tssAddress         = 0xfffbd000
)

// capabilities that Firecracker checks, by their numbers.
var capabilities = []struct {
	name   string
	number uintptr
}{
	{"IRQCHIP", 0},
	{"USER_MEMORY", 3},
	{"SET_TSS_ADDR", 4},
	{"EXT_CPUID", 7},
	{"MP_STATE", 14},
	{"PIT2", 33},
	{"PIT_STATE2", 35},
	{"IRQFD", 32},
	{"IOEVENTFD", 36},
	{"ADJUST_CLOCK", 39},
	{"VCPU_EVENTS", 41},
	{"DEBUGREGS", 50},
	{"XSAVE", 55},
	{"XCRS", 56},
}

// probes are what the tiny machines run, in 64-bit mode with all rights. Each
// ends with hlt.
var probes = []struct {
	name string
	code []byte
}{
	{"out", []byte{0xb0, 0x2a, 0xe6, 0x80, 0xf4}},
	{"cpuid", []byte{0x31, 0xc0, 0x0f, 0xa2, 0xf4}},
	{"rdtsc", []byte{0x0f, 0x31, 0xf4}},
	{"xgetbv", []byte{0x31, 0xc9, 0x0f, 0x01, 0xd0, 0xf4}},
	{"xorps", []byte{0x0f, 0x57, 0xc0, 0xf4}},
	{"lock cmpxchg16b", []byte{0xf0, 0x48, 0x0f, 0xc7, 0x0f, 0xf4}},
}

// InspectKVM looks at the host's KVM. Unsupported: there is none, or we may
// not use it.
func InspectKVM(ctx context.Context) (KVMReport, error) {
	var r KVMReport
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrPermission) {
		return r, errs.Wrap(errs.Unsupported, err, "/dev/kvm may not be used").WithHint("add the user to the group kvm")
	}
	if err != nil {
		return r, errs.Wrap(errs.Unsupported, err, "there is no KVM").WithHint("enable virtualization in the firmware, or load kvm_amd or kvm_intel")
	}
	defer kvm.Close()
	version, err := ioctl(kvm.Fd(), kvmGetAPIVersion, 0)
	if err != nil {
		return r, errs.Wrap(errs.Unsupported, err, "/dev/kvm is no KVM")
	}
	r.Version = int(version)
	for _, c := range capabilities {
		if n, err := ioctl(kvm.Fd(), kvmCheckExtension, c.number); err != nil || n == 0 {
			r.Missing = append(r.Missing, c.name)
		}
	}
	for _, p := range probes {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if err := runProbe(kvm.Fd(), p.code); err != nil {
			r.Broken = append(r.Broken, fmt.Sprintf("%s (%v)", p.name, err))
		}
	}
	return r, nil
}

func ioctl(fd, request, arg uintptr) (uintptr, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, arg)
		switch errno {
		case 0:
			return n, nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}

func ioctlPointer[T any](fd, request uintptr, arg *T) error {
	_, err := ioctl(fd, request, uintptr(unsafe.Pointer(arg)))
	runtime.KeepAlive(arg)
	return err
}

// Where things are in a probe's memory.
const (
	memoryBytes = 64 << 10
	tableAt     = 0x1000 // three levels of page tables, a page each
	dataAt      = 0x5000
	codeAt      = 0x6000
)

// runProbe runs code in a machine of its own until it halts.
func runProbe(kvm uintptr, code []byte) error {
	vm, err := ioctl(kvm, kvmCreateVM, 0)
	if err != nil {
		return fmt.Errorf("create a machine: %w", err)
	}
	defer unix.Close(int(vm))
	_, _ = ioctl(vm, kvmSetTSSAddr, tssAddress) // Intel's older processors want it
	memory, err := unix.Mmap(-1, 0, memoryBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(memory) }()
	const present, writable, large = 1, 2, 1 << 7
	binary.LittleEndian.PutUint64(memory[tableAt:], tableAt+0x1000|present|writable)
	binary.LittleEndian.PutUint64(memory[tableAt+0x1000:], tableAt+0x2000|present|writable)
	binary.LittleEndian.PutUint64(memory[tableAt+0x2000:], present|writable|large)
	copy(memory[codeAt:], code)
	region := struct {
		slot, flags       uint32
		guest, size, host uint64
	}{size: memoryBytes, host: uint64(uintptr(unsafe.Pointer(&memory[0])))}
	if err := ioctlPointer(vm, kvmSetUserMemory, &region); err != nil {
		return fmt.Errorf("give it memory: %w", err)
	}
	cpu, err := ioctl(vm, kvmCreateVCPU, 0)
	if err != nil {
		return fmt.Errorf("create a processor: %w", err)
	}
	defer unix.Close(int(cpu))
	if err := prepareCPU(kvm, cpu); err != nil {
		return err
	}
	return runCPU(kvm, cpu)
}

// cpuidTable is struct kvm_cpuid2 with its entries.
//
//nolint:unused // the kernel reads and writes it
type cpuidTable struct {
	count, _ uint32
	entries  [cpuidEntriesMax * cpuidEntryBytes]byte
}

// prepareCPU puts a processor into 64-bit mode with SSE and XSAVE switched on.
func prepareCPU(kvm, cpu uintptr) error {
	table := &cpuidTable{count: cpuidEntriesMax}
	if err := ioctlPointer(kvm, kvmGetSupportedCPU, table); err != nil {
		return fmt.Errorf("ask for the processor's features: %w", err)
	}
	if err := ioctlPointer(cpu, kvmSetCPUID2, table); err != nil {
		return fmt.Errorf("set the processor's features: %w", err)
	}
	var s sregs
	if err := ioctlPointer(cpu, kvmGetSRegs, &s); err != nil {
		return fmt.Errorf("read registers: %w", err)
	}
	flat := segment{limit: 0xffffffff, selector: 8, kind: 11, present: 1, s: 1, l: 1, g: 1}
	s.cs = flat
	flat.selector, flat.kind, flat.l, flat.db = 16, 3, 0, 1
	s.ds, s.es, s.fs, s.gs, s.ss = flat, flat, flat, flat, flat
	const (
		peBit, mpBit, etBit, neBit, pgBit = 1, 1 << 1, 1 << 4, 1 << 5, 1 << 31
		paeBit, fxsrBit, xmmBit, xsaveBit = 1 << 5, 1 << 9, 1 << 10, 1 << 18
		lmeBit, lmaBit                    = 1 << 8, 1 << 10
	)
	s.cr0, s.cr3, s.cr4, s.efer = peBit|mpBit|etBit|neBit|pgBit, tableAt, paeBit|fxsrBit|xmmBit|xsaveBit, lmeBit|lmaBit
	if err := ioctlPointer(cpu, kvmSetSRegs, &s); err != nil {
		return fmt.Errorf("set registers: %w", err)
	}
	r := regs{rdi: dataAt, rsp: codeAt, rip: codeAt, flags: 2}
	if err := ioctlPointer(cpu, kvmSetRegs, &r); err != nil {
		return fmt.Errorf("set registers: %w", err)
	}
	return nil
}

// runCPU runs until hlt. The code has no loop, so that it always ends.
func runCPU(kvm, cpu uintptr) error {
	size, err := ioctl(kvm, kvmGetVCPUMmapSize, 0)
	if err != nil {
		return err
	}
	state, err := unix.Mmap(int(cpu), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(state) }()
	for range probeSteps {
		if _, err := ioctl(cpu, kvmRun, 0); err != nil {
			return fmt.Errorf("run: %w", err)
		}
		switch reason := binary.LittleEndian.Uint32(state[8:]); reason {
		case exitIO:
			continue
		case exitHLT:
			return nil
		case exitInternalError:
			return fmt.Errorf("internal error %d", binary.LittleEndian.Uint32(state[32:]))
		case exitFailEntry:
			return fmt.Errorf("entry failed, reason %#x", binary.LittleEndian.Uint64(state[32:]))
		default:
			return fmt.Errorf("exit %d", reason)
		}
	}
	return errors.New("it does not end")
}

// segment, table, sregs and regs are the kernel's structs of the same names.
//
//nolint:unused // the kernel reads and writes it
type segment struct {
	base                            uint64
	limit                           uint32
	selector                        uint16
	kind, present, dpl, db, s, l, g uint8
	avl, unusable, _                uint8
}

//nolint:unused // the kernel reads and writes it
type table struct {
	base  uint64
	limit uint16
	_     [3]uint16
}

//nolint:unused // the kernel reads and writes it
type sregs struct {
	cs, ds, es, fs, gs, ss, tr, ldt segment
	gdt, idt                        table
	cr0, cr2, cr3, cr4, cr8         uint64
	efer, apicBase                  uint64
	interrupts                      [4]uint64
}

//nolint:unused // the kernel reads and writes it
type regs struct {
	rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp uint64
	r8, r9, r10, r11, r12, r13, r14, r15   uint64
	rip, flags                             uint64
}
