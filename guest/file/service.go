package file

import (
	"sync"
	"sync/atomic"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/keylock"
)

// watchesMax bounds the watches of one guest, those without a stream included.
const watchesMax = 64

// Config says who calls act as and where relative paths start.
type Config struct {
	User     string // of the sandbox; requests without a user act as this one
	UID, GID uint32
	Home     string // what "~" stands for
	Workdir  string
	Root     bool // requests may ask for "root"
	// DefaultUser is the user of requests that name none; "" = User.
	DefaultUser string
}

// Service implements wire.FileHandler.
type Service struct {
	cfg     Config // its Workdir is only the first
	workdir atomic.Pointer[string]
	threads *userThreads
	locks   keylock.Locks[pathKey]
	watches *watchHub
	done    chan struct{}
	once    sync.Once
}

var _ wire.FileHandler = (*Service)(nil)

// New starts the service. As root it makes threads with the user's rights and
// fails when the kernel refuses; else all calls act as the present user.
func New(cfg Config) (*Service, error) {
	if cfg.User == "" || len(cfg.Workdir) == 0 || cfg.Workdir[0] != '/' {
		return nil, errs.New(errs.Invalid, "the file service needs a user and an absolute working directory")
	}
	if cfg.Home == "" {
		cfg.Home = cfg.Workdir
	}
	threads, err := newUserThreads(cfg.UID, cfg.GID)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, threads: threads, watches: newWatchHub(watchesMax), done: make(chan struct{})}
	s.SetWorkdir(cfg.Workdir)
	return s, nil
}

// SetWorkdir changes where relative paths of later calls start.
func (s *Service) SetWorkdir(path string) { s.workdir.Store(&path) }

// Close ends all watches and threads. Stop the HTTP server first: calls under
// way go on, new ones are refused. It may be repeated.
func (s *Service) Close() error {
	s.once.Do(func() {
		close(s.done)
		s.watches.Close()
		s.threads.Close()
	})
	return nil
}
