package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// jetstreamDir is the embedded server's part of the data directory.
const jetstreamDir = "jetstream"

// Free disk space that the embedded store leaves alone. JetStream must never
// meet a full disk: it would hang its writers and stay off until a restart.
const (
	reserveMin   = 32 << 20
	reserveMax   = 4 << 30
	headroomMin  = 4 << 20 // to open at all
	writeFreeMin = 8 << 20 // below this much free space a write is refused
	// settleFreeMin is writeFreeMin of what changes or removes what there is.
	settleFreeMin = 2 << 20
	// With so much free space the disk is not full before we look again.
	plenty    = 1 << 30
	plentyFor = 100 * time.Millisecond
)

func startServer(c Config, storeMax int64) (*server.Server, error) {
	srv, err := server.NewServer(options(c, storeMax))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot set up the store")
	}
	srv.SetLoggerV2(&natsLog{log: c.Log.With("part", "nats")}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(readyTimeout) || !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, errs.New(errs.Corrupt, "the store did not open").WithHint("the server's log says why")
	}
	return srv, nil
}

func options(c Config, storeMax int64) *server.Options {
	return &server.Options{
		ServerName:         "skete",
		DontListen:         true,
		NoSigs:             true,
		NoLog:              true,
		NoSystemAccount:    true,
		JetStream:          true,
		StoreDir:           filepath.Join(c.Dir, jetstreamDir),
		JetStreamMaxMemory: memoryStoreBytes,
		JetStreamMaxStore:  storeMax,
		MaxPayload:         messageBytesMax,
		SyncAlways:         c.SyncInterval == 0,
		SyncInterval:       c.SyncInterval,
	}
}

// storeBytesMax decides how large the store may grow: all of the disk but a
// reserve, and more than it holds already; at most limit, if not 0. What the disk
// really has free counts at each write (Store.room): it may be full now and have
// room in a minute. So the ballast is given up if that is what it takes to open.
func (s *Store) storeBytesMax(dir string, limit int64) (int64, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, errs.Wrap(classOf(err), err, "cannot make the store's directory")
	}
	total, free, err := diskSpace(dir)
	if err != nil {
		return 0, errs.Wrap(errs.Internal, err, "cannot look at the store's disk")
	}
	s.ballast = newBallast(s.c.Dir, total)
	if free < headroomMin && s.ballast.drop() {
		s.c.Log.Error("the disk of the data directory is full: what was kept back for this is used now", "free_bytes", free)
		if _, free, err = diskSpace(dir); err != nil {
			return 0, errs.Wrap(errs.Internal, err, "cannot look at the store's disk")
		}
	}
	if free < headroomMin {
		return 0, errs.New(errs.Unavailable, "the server's disk is full: its data directory has %d MB left", free>>20).
			WithHint("free some space there, or move SKETE_HOME")
	}
	reserve := min(max(total/20, reserveMin), reserveMax)
	room := max(total-reserve, dirBytes(dir)+headroomMin)
	if limit > 0 {
		room = min(room, limit)
	}
	return room, nil
}

func diskSpace(dir string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}

// dirBytes adds up the files beneath dir; what cannot be read counts nothing.
func dirBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// spare refuses a new key while the store is nearly full: the rest is for
// those who change and remove what is there.
func (s *Store) spare() error {
	if s.srv == nil {
		return nil // the operator of that server bounds it
	}
	// A request would answer the same, and take as long as the write that waits for it.
	if s.srv.GlobalAccount().JetStreamUsage().Store > uint64(s.bytesMax)/10*9 {
		return fullError(nil)
	}
	return nil
}

// Bounds of the memory limit that Open sets.
const (
	memoryLimitMin = 128 << 20
	memoryLimitMax = 512 << 20
)

// memoryLimit is 60 % of what the process may use, at most 512 MiB: the
// server's own working set is far below, and the sandboxes need the rest.
func memoryLimit(total int64) int64 {
	return min(max(total/10*6, memoryLimitMin), memoryLimitMax)
}

// memoryTotal is the smallest of the host's memory and the limits of the
// cgroups that we are in.
func memoryTotal() int64 {
	var si unix.Sysinfo_t
	total := int64(memoryLimitMax) * 2
	if unix.Sysinfo(&si) == nil {
		total = int64(si.Totalram) * int64(si.Unit)
	}
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return total
	}
	for _, file := range memoryLimitFiles(string(cgroups)) {
		if n, ok := readLimit(file); ok {
			total = min(total, n)
		}
	}
	return total
}

// memoryLimitFiles lists the files that may limit a process whose
// /proc/self/cgroup reads so, from its own cgroup up to the root.
func memoryLimitFiles(procCgroup string) (files []string) {
	for line := range strings.Lines(procCgroup) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		root, name := "", ""
		switch {
		case part[1] == "":
			root, name = "/sys/fs/cgroup", "memory.max"
		case strings.Contains(","+part[1]+",", ",memory,"):
			root, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := filepath.Clean("/" + part[2]); ; dir = filepath.Dir(dir) {
			files = append(files, filepath.Join(root, dir, name))
			if dir == "/" {
				break
			}
		}
	}
	return files
}

func readLimit(file string) (int64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" is no number
	return n, err == nil && n > 0
}

// stateFile replaces name atomically and durably.
func stateFile(dir, name, content string) error {
	tmp, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err = tmp.WriteString(content); err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
