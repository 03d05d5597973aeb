package initd

import "os"

// Spawn asks for a command. Everything is decided by supervise: Path is the
// program's file, Env the whole environment.
type Spawn struct {
	Key string
	// Auto marks a key that supervise made up: nobody can repeat it, so it is
	// neither journalled nor remembered after eviction.
	Auto bool
	Path string
	Argv []string
	Env  []string
	Dir  string
	// Switch runs the command as UID and GID (init must be root then).
	Switch   bool
	UID, GID uint32
	Pty      bool
	Cols     uint16
	Rows     uint16
	Stdin    bool
	Rlimits  []Rlimit
	// Info is supervise's own note, given back in Entry; at most infoBytesMax.
	Info string
}

// Rlimit is a resource limit of a command; Resource is the kernel's number.
type Rlimit struct {
	Resource   uint8
	Soft, Hard uint64
}

const (
	infoBytesMax = 4 << 10
	keyBytesMax  = 128
	rlimitsMax   = 16
)

// State of an entry.
type State uint8

// States. Running may become Exited; Lost stays.
const (
	Running State = iota + 1
	Exited
	// Lost: the key was started in an earlier boot of the machine.
	Lost
)

// Cause says why init's caller sent a signal.
type Cause uint8

// Causes, in rising order of weight: a later signal of greater weight does
// not replace the first cause but Killed.
const (
	CauseNone Cause = iota
	CauseKilled
	CauseTimeout
	CauseMemory
)

// Descriptors of an entry, as bits of a mask.
const (
	fdStdin  = 1 << iota // write end of the pipe
	fdFeed               // regular file that feeds stdin, at its own offset
	fdStdout             // read end
	fdStderr             // read end
	fdMaster             // the terminal
	fdRelayR             // pipe between terminal and spool: no byte is ever only in supervise
	fdRelayW
)

// Entry is a process as init knows it.
type Entry struct {
	ID            uint64
	Key           string
	Auto          bool
	PID           int
	Argv          []string
	Dir           string
	Info          string
	Pty           bool
	State         State
	StartedUnixNs int64
	StartedMonoNs int64
	EndedUnixNs   int64
	Status        uint32 // as wait(2) gives it; valid when State is Exited
	Cause         Cause
	CauseSignal   uint8
	// Evicted entries have no files left; OutSize and ErrSize are what their
	// spools were.
	Evicted          bool
	OutSize, ErrSize int64
	// FeedBase is the stdin offset of Feed's first byte; FeedEnded says that
	// nothing will be fed behind what is there.
	FeedBase  int64
	FeedEnded bool

	// Descriptors, nil when not there (any more). The receiver owns them.
	Stdin, Feed, Stdout, Stderr, Master, RelayR, RelayW *os.File
}

// Exit is the end of a process.
type Exit struct {
	ID          uint64
	Status      uint32
	EndedUnixNs int64
	Cause       Cause
	CauseSignal uint8
}

func (e *encoder) spawn(s *Spawn) {
	e.str(s.Key)
	e.flag(s.Auto)
	e.str(s.Path)
	e.strs(s.Argv)
	e.strs(s.Env)
	e.str(s.Dir)
	e.flag(s.Switch)
	e.u32(s.UID)
	e.u32(s.GID)
	e.flag(s.Pty)
	e.u16(s.Cols)
	e.u16(s.Rows)
	e.flag(s.Stdin)
	e.u8(uint8(len(s.Rlimits)))
	for _, r := range s.Rlimits {
		e.u8(r.Resource)
		e.u64(r.Soft)
		e.u64(r.Hard)
	}
	e.str(s.Info)
}

func (d *decoder) spawn() (*Spawn, error) {
	s := &Spawn{
		Key: d.str(), Auto: d.flag(), Path: d.str(), Argv: d.strs(), Env: d.strs(), Dir: d.str(),
		Switch: d.flag(), UID: d.u32(), GID: d.u32(), Pty: d.flag(), Cols: d.u16(), Rows: d.u16(), Stdin: d.flag(),
	}
	n := d.u8()
	if n > rlimitsMax {
		return nil, errMessage
	}
	for range n {
		s.Rlimits = append(s.Rlimits, Rlimit{Resource: d.u8(), Soft: d.u64(), Hard: d.u64()})
	}
	s.Info = d.str()
	if err := d.done(); err != nil {
		return nil, err
	}
	if s.Key == "" || len(s.Key) > keyBytesMax || len(s.Info) > infoBytesMax || s.Path == "" || len(s.Argv) == 0 {
		return nil, errMessage
	}
	return s, nil
}

func (e *encoder) entry(x *Entry, mask uint8) {
	e.u64(x.ID)
	e.str(x.Key)
	e.flag(x.Auto)
	e.u32(uint32(x.PID))
	e.strs(x.Argv)
	e.str(x.Dir)
	e.str(x.Info)
	e.flag(x.Pty)
	e.u8(uint8(x.State))
	e.i64(x.StartedUnixNs)
	e.i64(x.StartedMonoNs)
	e.i64(x.EndedUnixNs)
	e.u32(x.Status)
	e.u8(uint8(x.Cause))
	e.u8(x.CauseSignal)
	e.flag(x.Evicted)
	e.i64(x.OutSize)
	e.i64(x.ErrSize)
	e.i64(x.FeedBase)
	e.flag(x.FeedEnded)
	e.u8(mask)
}

func (d *decoder) entry() (Entry, uint8, error) {
	x := Entry{
		ID: d.u64(), Key: d.str(), Auto: d.flag(), PID: int(d.u32()), Argv: d.strs(), Dir: d.str(), Info: d.str(), Pty: d.flag(),
		State: State(d.u8()), StartedUnixNs: d.i64(), StartedMonoNs: d.i64(), EndedUnixNs: d.i64(), Status: d.u32(),
		Cause: Cause(d.u8()), CauseSignal: d.u8(), Evicted: d.flag(), OutSize: d.i64(), ErrSize: d.i64(),
		FeedBase: d.i64(), FeedEnded: d.flag(),
	}
	mask := d.u8()
	return x, mask, d.done()
}

func (e *encoder) exit(x Exit) {
	e.u64(x.ID)
	e.u32(x.Status)
	e.i64(x.EndedUnixNs)
	e.u8(uint8(x.Cause))
	e.u8(x.CauseSignal)
}

func (d *decoder) exit() (Exit, error) {
	x := Exit{ID: d.u64(), Status: d.u32(), EndedUnixNs: d.i64(), Cause: Cause(d.u8()), CauseSignal: d.u8()}
	return x, d.done()
}
