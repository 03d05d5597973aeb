package pair

import "os"

// Spawn asks for a command. Everything is decided by supervise: Path is the
// program's file, Env the whole environment.
type Spawn struct {
	Key string
	// Auto marks a key that supervise made up: no client can repeat it, so it is
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
	// Fingerprint is the caller's, given back in Entry also after an eviction;
	// at most FingerprintBytesMax.
	Fingerprint string
}

// Rlimit is a resource limit of a command; Resource is the kernel's number.
type Rlimit struct {
	Resource   uint8
	Soft, Hard uint64
}

const (
	infoBytesMax        = 4 << 10
	KeyBytesMax         = 128
	FingerprintBytesMax = 64
	rlimitsMax          = 16
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
	Fingerprint   string
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

func (e *Encoder) Spawn(s *Spawn) {
	e.Str(s.Key)
	e.Flag(s.Auto)
	e.Str(s.Path)
	e.Strs(s.Argv)
	e.Strs(s.Env)
	e.Str(s.Dir)
	e.Flag(s.Switch)
	e.U32(s.UID)
	e.U32(s.GID)
	e.Flag(s.Pty)
	e.U16(s.Cols)
	e.U16(s.Rows)
	e.Flag(s.Stdin)
	e.U8(uint8(len(s.Rlimits)))
	for _, r := range s.Rlimits {
		e.U8(r.Resource)
		e.U64(r.Soft)
		e.U64(r.Hard)
	}
	e.Str(s.Info)
	e.Str(s.Fingerprint)
}

func (d *Decoder) Spawn() (*Spawn, error) {
	s := &Spawn{
		Key: d.Str(), Auto: d.Flag(), Path: d.Str(), Argv: d.Strs(), Env: d.Strs(), Dir: d.Str(),
		Switch: d.Flag(), UID: d.U32(), GID: d.U32(), Pty: d.Flag(), Cols: d.U16(), Rows: d.U16(), Stdin: d.Flag(),
	}
	n := d.U8()
	if n > rlimitsMax {
		return nil, ErrMessage
	}
	for range n {
		s.Rlimits = append(s.Rlimits, Rlimit{Resource: d.U8(), Soft: d.U64(), Hard: d.U64()})
	}
	s.Info, s.Fingerprint = d.Str(), d.Str()
	if err := d.Done(); err != nil {
		return nil, err
	}
	if s.Key == "" || len(s.Key) > KeyBytesMax || len(s.Info) > infoBytesMax || len(s.Fingerprint) > FingerprintBytesMax || s.Path == "" || len(s.Argv) == 0 {
		return nil, ErrMessage
	}
	return s, nil
}

func (e *Encoder) Entry(x *Entry, mask uint8) {
	e.U64(x.ID)
	e.Str(x.Key)
	e.Flag(x.Auto)
	e.U32(uint32(x.PID))
	e.Strs(x.Argv)
	e.Str(x.Dir)
	e.Str(x.Info)
	e.Str(x.Fingerprint)
	e.Flag(x.Pty)
	e.U8(uint8(x.State))
	e.I64(x.StartedUnixNs)
	e.I64(x.StartedMonoNs)
	e.I64(x.EndedUnixNs)
	e.U32(x.Status)
	e.U8(uint8(x.Cause))
	e.U8(x.CauseSignal)
	e.Flag(x.Evicted)
	e.I64(x.OutSize)
	e.I64(x.ErrSize)
	e.I64(x.FeedBase)
	e.Flag(x.FeedEnded)
	e.U8(mask)
}

func (d *Decoder) Entry() (Entry, uint8, error) {
	x := Entry{
		ID: d.U64(), Key: d.Str(), Auto: d.Flag(), PID: int(d.U32()), Argv: d.Strs(), Dir: d.Str(), Info: d.Str(), Fingerprint: d.Str(), Pty: d.Flag(),
		State: State(d.U8()), StartedUnixNs: d.I64(), StartedMonoNs: d.I64(), EndedUnixNs: d.I64(), Status: d.U32(),
		Cause: Cause(d.U8()), CauseSignal: d.U8(), Evicted: d.Flag(), OutSize: d.I64(), ErrSize: d.I64(),
		FeedBase: d.I64(), FeedEnded: d.Flag(),
	}
	mask := d.U8()
	return x, mask, d.Done()
}

func (e *Encoder) Exit(x Exit) {
	e.U64(x.ID)
	e.U32(x.Status)
	e.I64(x.EndedUnixNs)
	e.U8(uint8(x.Cause))
	e.U8(x.CauseSignal)
}

func (d *Decoder) Exit() (Exit, error) {
	x := Exit{ID: d.U64(), Status: d.U32(), EndedUnixNs: d.I64(), Cause: Cause(d.U8()), CauseSignal: d.U8()}
	return x, d.Done()
}

// Bit numbers of the descriptors, see the fd* masks.
const (
	SlotStdin = iota
	SlotFeed
	SlotStdout
	SlotStderr
	SlotMaster
	SlotRelayR
	SlotRelayW
)

// Scope of a signal.
type Scope uint8

// Scopes.
const (
	ScopeGroup  Scope = iota + 1 // the command's process group
	ScopeLeader                  // its first process alone
)
