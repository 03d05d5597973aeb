package guest

import "github.com/skete-dev/skete/guest/wire"

// fileService is guest.v1's File with its end.
type fileService interface {
	wire.FileHandler
	Close() error
}

type noFiles struct{ wire.UnimplementedFileHandler }

func (noFiles) Close() error { return nil }

func newFiles(wire.Boot) (fileService, error) { return noFiles{}, nil }
