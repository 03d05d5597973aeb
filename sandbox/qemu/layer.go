package qemu

import "golang.org/x/sys/unix"

// LayerBytes says what the root's writable layer holds on the host.
func (m *machine) LayerBytes() int64 {
	var st unix.Stat_t
	if unix.Lstat(m.p.layerPath(m.id), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}
