package guest

import (
	"github.com/skete-dev/skete/guest/file"
	"github.com/skete-dev/skete/guest/wire"
)

// fileService is guest.v1's File with its end.
type fileService interface {
	wire.FileHandler
	SetWorkdir(path string)
	Close() error
}

func newFiles(b wire.Boot) (fileService, error) {
	home := b.Home
	if b.DefaultUser == "root" {
		home = "/root"
	}
	return file.New(file.Config{User: b.User, UID: b.UID, GID: b.GID, Home: home, Workdir: b.Workdir, Root: b.Root, DefaultUser: b.DefaultUser})
}
