package qemu

import (
	"fmt"
	"math"
	"strconv"

	"github.com/skete-dev/skete/sandbox"
)

// This file knows QEMU's command line: which QEMU can do what we need,
// what a machine is made of, and how that is said.
//
// It starts no machine.

// How QEMU runs the guest's code: Shape.Accel.
const (
	accelKVM = "kvm"
	accelTCG = "tcg"
)

// emulatedCPU is the processor that machines without KVM have: what programs of
// x86-64-v3 want. "max" has more, of which SMAP alone is a third of a boot: each
// system call then changes how QEMU looks up memory (ADR 0032).
const emulatedCPU = "Nehalem,+smep,+avx,+avx2,+bmi1,+bmi2,+fma,+f16c,+movbe,+abm,+xsave,+aes,+pclmulqdq,+rdrand"

// What a machine needs besides its commands' memory.
const (
	kernelMB      = 96  // of the guest's memory: its kernel, and room for the guest to act before that does
	translationMB = 64  // QEMU's translated code; less is slow, the default grows to half a GiB
	monitorMB     = 128 // QEMU itself, with its copies of kernel and initramfs
)

// commandShape is all of a machine that must be the same for a snapshot to load.
type commandShape struct {
	QEMU      string `json:"qemu"`
	Accel     string `json:"accel"`
	CPU       string `json:"cpu"` // the host's, where the guest sees it
	Kernel    string `json:"kernel"`
	Initramfs string `json:"initramfs"`
	Root      string `json:"root"`
	MemoryMB  int    `json:"memory_mb"`
	CPUs      int    `json:"cpus"`
	LayerMB   int    `json:"layer_mb"`
	WorkBytes int64  `json:"work_bytes"`          // 0 = no workspace disk
	DiskMBps  int    `json:"disk_mbps,omitempty"` // of all disks together; 0 = no bound
	DiskIOPS  int    `json:"disk_iops,omitempty"`
	Boot      string `json:"boot"` // of what the guest was told once and for all
}

// memoryMB is the guest's memory for a specification, its kernel's share included.
func memoryMB(s sandbox.Spec) int { return s.MemoryMB + kernelMB }

// cpus is the number of virtual processors.
func cpus(s sandbox.Spec) int { return max(1, int(math.Ceil(s.CPUs))) }

// HostBytes is what QEMU may use of the host's memory.
func (s commandShape) HostBytes() int64 {
	mb := s.MemoryMB + monitorMB
	if s.Accel == accelTCG {
		mb += translationMB
	}
	return int64(mb) << 20
}

// Descriptors that QEMU inherits, by number. It opens nothing by name.
const (
	controlFD = 3 + iota // listening sockets
	channelFD
	rootFD
	layerFD
	workFD   // or /dev/null
	kernelFD // the memory of a snapshot, if the machine comes from one that has it
	initrdFD
)

// memoryKind says what the guest's memory is made of.
type memoryKind int

const (
	ownMemory    memoryKind = iota // a memory file of QEMU's own
	sharedMemory                   // a snapshot's, in the place of the kernel; changes are kept apart
)

// Arguments returns QEMU's command line. line is the kernel's; without one
// the machine waits for a snapshot's state.
func (s commandShape) Arguments(id sandbox.ID, mem memoryKind, line string) []string {
	accel, cpu := "kvm", "host"
	if s.Accel == accelTCG {
		threads := "single"
		if s.CPUs > 1 {
			threads = "multi"
		}
		accel, cpu = fmt.Sprintf("tcg,thread=%s,tb-size=%d", threads, translationMB), emulatedCPU
	}
	ram := fmt.Sprintf("memory-backend-memfd,id=m0,size=%dM,share=on", s.MemoryMB)
	if mem == sharedMemory {
		ram = fmt.Sprintf("memory-backend-file,id=m0,size=%dM,mem-path=/proc/self/fd/%d,share=off", s.MemoryMB, kernelFD)
	}
	args := []string{
		"-name", string(id),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-M", "microvm,rtc=on,pic=off,pit=off,isa-serial=on,acpi=on,memory-backend=m0",
		"-accel", accel, "-cpu", cpu, "-smp", strconv.Itoa(s.CPUs),
		"-m", fmt.Sprintf("%dM", s.MemoryMB), "-object", ram,
		// A guest that ends leaves QEMU waiting, so that we can ask why.
		"-action", "reboot=shutdown,shutdown=pause",
		"-chardev", "ringbuf,id=console,size=65536", "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=control,fd=%d,server=on,wait=off", controlFD), "-mon", "chardev=control,mode=control",
	}
	rate := s.throttle()
	args = append(args, commandDisk("root", rootFD, "readonly=on"+rate)...)
	args = append(args, commandDisk("layer", layerFD, "cache=writeback,discard=unmap"+rate)...)
	if s.WorkBytes > 0 {
		args = append(args, commandDisk("work", workFD, "cache=writeback,discard=unmap"+rate)...)
	}
	args = append(args,
		"-device", "virtio-serial-device",
		"-chardev", fmt.Sprintf("socket,id=channel,fd=%d,server=on,wait=off", channelFD),
		"-device", "virtserialport,chardev=channel,name="+portName,
		"-device", "virtio-rng-device",
	)
	if line == "" {
		return append(args, "-incoming", "defer")
	}
	return append(args,
		"-kernel", fmt.Sprintf("/proc/self/fd/%d", kernelFD),
		"-initrd", fmt.Sprintf("/proc/self/fd/%d", initrdFD),
		"-append", line)
}

// throttle puts a disk into the group that all disks share; "" = there is no
// bound.
func (s commandShape) throttle() string {
	var how string
	if s.DiskMBps > 0 {
		how += fmt.Sprintf(",throttling.bps-total=%d", int64(s.DiskMBps)*1e6)
	}
	if s.DiskIOPS > 0 {
		how += fmt.Sprintf(",throttling.iops-total=%d", s.DiskIOPS)
	}
	if how != "" {
		how += ",throttling.group=disks"
	}
	return how
}

// portName is what the guest knows its end of the channel by.
const portName = "skete.0"

// commandDisk is a drive on an inherited descriptor and its device. An error of the
// host's disk is the guest's to hear: QEMU would stop the machine instead.
func commandDisk(name string, fd int, how string) []string {
	return []string{
		"-add-fd", fmt.Sprintf("fd=%d,set=%d", fd, fd),
		"-drive", fmt.Sprintf("id=%s,file=/dev/fdset/%d,format=raw,if=none,auto-read-only=off,%s", name, fd, how),
		"-device", fmt.Sprintf("virtio-blk-device,drive=%s,werror=report,rerror=report", name),
	}
}
