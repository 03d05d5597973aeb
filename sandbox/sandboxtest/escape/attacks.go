package escape

import (
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
)

// ofEveryone are attacks that must fail for every user, root inside too.
func ofEveryone(p prize) []Attack {
	// Files of the machine's own, kernel interfaces left out.
	const files = "find / -xdev '(' -name proc -o -name sys -o -name usr ')' -prune -o -type f -print0 | xargs -0 "
	return []Attack{
		{Name: "host file", Line: "cat " + p.file, Open: true},
		{Name: "host file through /proc/1/root", Line: "cat /proc/1/root" + p.file},
		{Name: "host file through /proc/self/root", Line: "cat /proc/self/root" + p.file, Open: true},
		{Name: "host file through cwd of all", Line: "cat /proc/*/cwd" + p.file + " /proc/*/root" + p.file},
		{Name: "host file up from the workspace", Line: "cat ../../../../../../.." + p.file},
		{Name: "host file by a link", Line: "ln -sf " + p.file + " link && cat link", Open: true},
		{Name: "host file by a link in /tmp", Line: "ln -sf " + p.file + " /tmp/link && cat /tmp/link"},
		{Name: "the host's shadow", Line: "cat /etc/shadow /usr/../etc/shadow"},
		{Name: "everything readable", Line: files + "grep -ls " + p.token[:12] + " | grep ."},
		{Name: "host process by number", Line: "tr '\\0' ' ' < /proc/" + p.pid + "/cmdline | grep 'prize[-]'", Open: true},
		{Name: "host process by name", Line: "cat /proc/*/cmdline | tr '\\0' ' ' | grep 'sleep 100[0]'", Open: true},
		{Name: "signal a host process", Line: "kill -0 " + p.pid, Open: true},
		{Name: "trace a host process", Line: "./tool trace " + p.pid, Open: true},
		{Name: "the server's environment", Line: "cat /proc/*/environ | tr '\\0' '\\n' | grep 'SKETE_TEST[_]PRIZE'"},
		{Name: "mount", Line: "mount -t tmpfs none /mnt || mount -t tmpfs none /tmp", Own: true},
		{Name: "mount a device", Line: "mount -t ext4 /dev/vda /tmp || mount -t ext4 /dev/sda1 /tmp", Own: true},
		{Name: "remount /usr", Line: "mount -o remount,rw /usr", Own: true},
		{Name: "make a device", Line: "mknod /tmp/disk b 254 0 && cat /tmp/disk", Own: true},
		{Name: "devices of the host", Line: "ls /dev | grep -E '^(vd|sd|nvme|loop|mem|kmsg|kvm|kcore)'", OfHost: true},
		{Name: "what is on the disks", Line: "./tool search " + p.token[:12] + " /dev/vd? /dev/sd? /dev/nvme* /dev/loop*"},
		{Name: "write to /usr", Line: "touch /usr/x /usr/bin/x", Own: true},
		{Name: "write to the boot directory", Line: "touch /.skete/x || rm /.skete/guest || ln -s " + p.file + " /.skete/x", Own: true},
		{Name: "link out of /usr", Line: "ln /usr/bin/env env"},
		{Name: "host's loopback", Line: "./tool dial tcp 127.0.0.1:" + p.port, Open: true},
		{Name: "host's loopback, version 6", Line: "./tool dial tcp '[::1]:" + p.port + "'"},
		{Name: "host's address", Line: "./tool dial tcp " + p.address + ":" + p.port},
		{Name: "the metadata service", Line: "./tool dial tcp 169.254.169.254:80"},
		{Name: "the internet", Line: "./tool dial tcp 1.1.1.1:443 || ./tool dial udp 1.1.1.1:53"},
		{Name: "a name", Line: "./tool dial tcp example.com:80"},
		{Name: "host's unix socket", Line: "./tool dial unix " + p.socket, Open: true},
		{Name: "host's abstract socket", Line: "./tool dial unix " + p.abstract, Open: true},
		{Name: "an engine's socket", Line: "for s in docker.sock podman/podman.sock containerd/containerd.sock; do ./tool dial unix /run/$s && exit 0; ./tool dial unix /var/run/$s && exit 0; done; exit 1"},
		{Name: "any socket", Line: "find / -xdev -type s | grep -v /.skete/"},
		{Name: "interfaces", Line: "./tool interfaces", Free: true, Want: "lo\n"},
		{Name: "paths of the host in the mount table", Line: "cat /proc/mounts", Free: true, Never: "/Test"},
		{Name: "load a module", Line: "./tool module || insmod /tmp/x.ko || modprobe loop", Own: true},
		{Name: "the kernel's memory", Line: "head -c 64 /proc/kcore || head -c 64 /dev/mem", Own: true},
		{Name: "a sysctl of the host", Line: "echo 1 > /proc/sys/kernel/panic_on_oops", Own: true},
		{Name: "core pattern", Line: "echo '|/bin/sh' > /proc/sys/kernel/core_pattern", Own: true},
		{Name: "a kernel's switch", Line: "for f in $(find /sys/kernel /sys/module /sys/power -type f -perm -200); do echo 1 > $f && exit 0; done; exit 1", OfHost: true},
		{Name: "the power button", Line: "echo b > /proc/sysrq-trigger", OfHost: true}, // a machine's own is in the suite: GuestShutdown
	}
}

// ofUser are those that only the granted root may succeed with.
func ofUser() []Attack {
	return []Attack{
		{Name: "who", Line: "id -u; id -g; id -G", Free: true, Want: "1000\n1000\n1000\n"},
		{Name: "capabilities", Line: "grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status | grep -v 0000000000000000"},
		{Name: "new privileges", Line: "grep NoNewPrivs /proc/self/status || echo 'NoNewPrivs: 1'", Free: true, Never: "0", Ungranted: true},
		{Name: "become root", Line: "su -c true || sudo -n true"},
		{Name: "look into the boot directory", Line: "ls /.skete || cat /.skete/boot.json || cat /.skete/guest"},
		{Name: "the host's channel", Line: "./tool dial unix " + wire.HostSocket + " || ./tool dial unix " + channel.AcceptPath(wire.HostSocket) + " || (: < /dev/vport0p1) || (: < /dev/vsock)"},
		{Name: "the guest's files", Line: "ls /var/lib/skete-guest || ls /.skete-state || ls /run/skete-guest"},
		{Name: "the guest's memory", Line: "cat /proc/1/mem || cat /proc/1/maps && cat /proc/1/environ"},
		{Name: "the guest's descriptors", Line: "readlink /proc/1/fd/* || cat /proc/1/fd/3"},
		{Name: "trace the guest", Line: "./tool trace 1"},
		{Name: "end the guest", Line: "kill -9 1 || kill -STOP 1"},
		{Name: "raise a limit", Line: "for f in $(find /sys/fs/cgroup -name pids.max -o -name memory.limit_in_bytes -o -name memory.max); do echo max > $f && exit 0; done; exit 1"},
		{Name: "give a file away", Line: "touch mine && chown 0:0 mine"},
		{Name: "raw packets", Line: "./tool dial ip4:icmp 127.0.0.1 || ./tool packets"},
		{Name: "read a disk", Line: "for d in /dev/vd? /dev/sd? /dev/nvme*; do head -c 1 $d && exit 0; done; exit 1"},
	}
}
