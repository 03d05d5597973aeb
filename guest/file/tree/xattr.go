package tree

import (
	"archive/tar"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of what is kept of a file's attributes.
const (
	attributesBytesMax     = 64 << 10 // of their names
	attributeValueBytesMax = 64 << 10
)

// attributes notes in h those that belong to the content of a file. A file
// system without any has none.
func attributes(h *tar.Header, fd int) {
	names := make([]byte, attributesBytesMax)
	n, err := unix.Flistxattr(fd, names)
	if err != nil {
		return
	}
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if name != "security.capability" && !strings.HasPrefix(name, "user.") {
			continue
		}
		value := make([]byte, attributeValueBytesMax)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil || strings.Contains(name, "=") {
			continue
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+name] = string(value[:n])
	}
}
