package qemu

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

const id = sandbox.ID("sbx_aaaaaaaaaaaaaaaaaaaa")

// The line is what was measured to work; a change of it is a decision.
func TestArguments(t *testing.T) {
	s := commandShape{Accel: accelTCG, MemoryMB: 320, CPUs: 2, WorkBytes: 1}
	want := `-name sbx_aaaaaaaaaaaaaaaaaaaa -nodefaults -no-user-config -display none
-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
-M microvm,rtc=on,pic=off,pit=off,isa-serial=on,acpi=on,memory-backend=m0
-accel tcg,thread=multi,tb-size=64 -cpu Nehalem,+smep,+avx,+avx2,+bmi1,+bmi2,+fma,+f16c,+movbe,+abm,+xsave,+aes,+pclmulqdq,+rdrand -smp 2 -m 320M -object memory-backend-memfd,id=m0,size=320M,share=on
-action reboot=shutdown,shutdown=pause -chardev ringbuf,id=console,size=65536 -serial chardev:console
-chardev socket,id=control,fd=3,server=on,wait=off -mon chardev=control,mode=control
-add-fd fd=5,set=5 -drive id=root,file=/dev/fdset/5,format=raw,if=none,auto-read-only=off,readonly=on -device virtio-blk-device,drive=root,werror=report,rerror=report
-add-fd fd=6,set=6 -drive id=layer,file=/dev/fdset/6,format=raw,if=none,auto-read-only=off,cache=writeback,discard=unmap -device virtio-blk-device,drive=layer,werror=report,rerror=report
-add-fd fd=7,set=7 -drive id=work,file=/dev/fdset/7,format=raw,if=none,auto-read-only=off,cache=writeback,discard=unmap -device virtio-blk-device,drive=work,werror=report,rerror=report
-device virtio-serial-device -chardev socket,id=channel,fd=4,server=on,wait=off -device virtserialport,chardev=channel,name=skete.0
-device virtio-rng-device -kernel /proc/self/fd/8 -initrd /proc/self/fd/9 -append LINE`
	if diff := cmp.Diff(strings.Fields(want), s.Arguments(id, ownMemory, "LINE")); diff != "" {
		t.Error(diff)
	}
}

func TestArgumentsOfAClone(t *testing.T) {
	s := commandShape{Accel: accelKVM, MemoryMB: 320, CPUs: 1}
	line := strings.Join(s.Arguments(id, sharedMemory, ""), " ")
	for _, want := range []string{
		"-accel kvm -cpu host -smp 1", "-incoming defer",
		"-object memory-backend-file,id=m0,size=320M,mem-path=/proc/self/fd/8,share=off",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is missing in\n%s", want, line)
		}
	}
	for _, not := range []string{"-kernel", "drive=work", "-netdev", "virtio-net", "share=on"} {
		if strings.Contains(line, not) {
			t.Errorf("%q is in\n%s", not, line)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[float64]int{0: 1, 0.5: 1, 1: 1, 1.01: 2, 4: 4} {
		if got := cpus(sandbox.Spec{CPUs: n}); got != want {
			t.Errorf("%v cpus = %d, want %d", n, got, want)
		}
	}
	if a, b := (commandShape{Accel: accelKVM, MemoryMB: 100}).HostBytes(), (commandShape{Accel: accelTCG, MemoryMB: 100}).HostBytes(); b-a != translationMB<<20 || a <= 100<<20 {
		t.Errorf("HostBytes: %d with KVM, %d without", a, b)
	}
}

func TestParseVersion(t *testing.T) {
	for out, want := range map[string]int{
		"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright": 702,
		"QEMU emulator version 10.0.2\n":                                         1000,
		"":                                                                       0, "qemu 7": 0, "QEMU emulator version x.y.z": 0, "QEMU emulator version 99999.1.1": 0, "xQEMU emulator version 7.2.1": 0,
	} {
		_, got, err := parseVersion(out)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %d, %v", out, got, err)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("QEMU emulator version 7.2.22 (Debian)\n")
	f.Fuzz(func(t *testing.T, out string) {
		if _, n, err := parseVersion(out); err == nil && n < 0 {
			t.Errorf("%q is version %d", out, n)
		}
	})
}

func TestFindSaysWhatIsMissing(t *testing.T) {
	for _, path := range []string{"/no/such/qemu", "true"} {
		if _, err := findProgram(t.Context(), path); !errs.Is(err, errs.Unsupported) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := findProgram(t.Context(), "/no/such/qemu"); errs.Hint(err) == "" {
		t.Error("no hint what to install")
	}
}

func TestArguments_disksShareOneLimit(t *testing.T) {
	for want, s := range map[string]commandShape{
		"": {WorkBytes: 1},
		",throttling.bps-total=5000000,throttling.group=disks":                         {WorkBytes: 1, DiskMBps: 5},
		",throttling.iops-total=9,throttling.group=disks":                              {WorkBytes: 1, DiskIOPS: 9},
		",throttling.bps-total=5000000,throttling.iops-total=9,throttling.group=disks": {WorkBytes: 1, DiskMBps: 5, DiskIOPS: 9},
	} {
		line := strings.Join(s.Arguments("x", ownMemory, "quiet"), " ")
		if got := strings.Count(line, want); want != "" && got != 3 || want == "" && strings.Contains(line, "throttling") {
			t.Errorf("%+v: %d of three disks have %q: %s", s, got, want, line)
		}
	}
}

// TestArguments_noNetwork: a machine has no network interface, since no policy
// asks for one (ADR 0017).
func TestArguments_noNetwork(t *testing.T) {
	args := commandShape{WorkBytes: 1}.Arguments("x", ownMemory, "quiet")
	for _, a := range args {
		if strings.HasPrefix(a, "-net") || strings.HasPrefix(a, "-nic") || strings.Contains(a, "virtio-net") {
			t.Errorf("it has %s", a)
		}
	}
	if !slices.Contains(args, "-nodefaults") {
		t.Error("QEMU adds devices of its own")
	}
}
