package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/process/spool"
	"github.com/skete-dev/skete/guest/wire"
)

// This file turns a request to start a command into everything that init
// needs to fork it, or into an error that says what to change.
//
// It decides and changes nothing. A planner is safe for concurrent use.

// planner knows the sandbox's defaults.
type planner struct {
	Boot wire.Boot
	// Shell names the user's shell.
	Shell func() string
}

// Limits of a request.
const (
	keyBytesMax     = 128
	argvMax         = 4096
	envMax          = 4096
	argumentsMax    = 128 << 10 // argv and environment together, in bytes
	pathBytesMax    = 4095
	timeoutMax      = 366 * 24 * 3600 * 1000 // ms
	ptySizeMax      = 1000
	pathDefault     = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	terminalDefault = "xterm-256color"
)

// rlimits that a request may set, by name.
var rlimits = map[string]uint8{
	"nofile": unix.RLIMIT_NOFILE, "fsize": unix.RLIMIT_FSIZE, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU,
	"as": unix.RLIMIT_AS, "data": unix.RLIMIT_DATA, "stack": unix.RLIMIT_STACK, "nproc": unix.RLIMIT_NPROC, "memlock": unix.RLIMIT_MEMLOCK,
}

// checkKey says whether a key has the form of one.
func checkKey(key string) error {
	ok := len(key) >= 1 && len(key) <= keyBytesMax
	for _, r := range []byte(key) {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.IndexByte("._:-", r) >= 0)
	}
	if !ok {
		return errs.New(errs.Invalid, "a key is 1 to %d of A-Z a-z 0-9 . _ : -", keyBytesMax)
	}
	return nil
}

// Plan checks a request and decides everything that init needs.
func (p planner) Plan(req *wire.StartRequest, autoKey func() string) (*pair.Spawn, error) {
	s := &pair.Spawn{Key: req.Key, Stdin: req.Stdin || req.Pty != nil, Fingerprint: string(req.Fingerprint)}
	if s.Key == "" {
		s.Key, s.Auto = autoKey(), true
	} else if err := checkKey(s.Key); err != nil {
		return nil, err
	}
	if err := checkRequest(req); err != nil {
		return nil, err
	}
	if err := p.chooseUser(req, s); err != nil {
		return nil, err
	}
	var err error
	if s.Dir, err = p.workdir(string(req.Cwd)); err != nil {
		return nil, err
	}
	for _, a := range req.Argv {
		s.Argv = append(s.Argv, string(a))
	}
	env := p.environment(req, s.Key)
	if s.Env, err = flatten(env, s.Argv); err != nil {
		return nil, err
	}
	if s.Path, err = lookPath(s.Argv[0], env["PATH"], s.Dir); err != nil {
		return nil, err
	}
	if req.Pty != nil {
		s.Pty, s.Cols, s.Rows = true, uint16(req.Pty.Cols), uint16(req.Pty.Rows)
	}
	for _, l := range req.Rlimits {
		s.Rlimits = append(s.Rlimits, pair.Rlimit{Resource: rlimits[l.Name], Soft: l.Soft, Hard: l.Hard})
	}
	info, err := proto.Marshal(&wire.StartRequest{
		User: p.user(req), TimeoutMs: req.TimeoutMs, SpoolBytesMax: req.SpoolBytesMax, Overflow: req.Overflow, Background: req.Background,
	})
	s.Info = string(info)
	return s, err
}

func checkRequest(req *wire.StartRequest) error {
	switch {
	case len(req.Argv) == 0 || len(req.Argv[0]) == 0:
		return errs.New(errs.Invalid, "argv is empty")
	case len(req.Argv) > argvMax:
		return errs.New(errs.Invalid, "argv has more than %d elements", argvMax)
	case len(req.Env) > envMax:
		return errs.New(errs.Invalid, "env has more than %d variables", envMax)
	case len(req.Fingerprint) > pair.FingerprintBytesMax:
		return errs.New(errs.Invalid, "fingerprint has more than %d bytes", pair.FingerprintBytesMax)
	case len(req.Rlimits) > len(rlimits):
		return errs.New(errs.Invalid, "more than %d rlimits", len(rlimits))
	case req.TimeoutMs < 0 || req.TimeoutMs > timeoutMax:
		return errs.New(errs.Invalid, "timeout: %d ms is not in 0 to %d", req.TimeoutMs, int64(timeoutMax))
	case req.SpoolBytesMax < 0 || req.SpoolBytesMax > spool.BytesMost:
		return errs.New(errs.Invalid, "spool_bytes_max is not in 0..%d", spool.BytesMost)
	case req.Overflow < 0 || req.Overflow > wire.Overflow_OVERFLOW_WAIT:
		return errs.New(errs.Invalid, "unknown overflow %d", req.Overflow)
	case req.Pty != nil && !validSize(req.Pty):
		return errs.New(errs.Invalid, "a terminal has 1..%d columns and rows", ptySizeMax)
	}
	for _, a := range req.Argv {
		if strings.IndexByte(string(a), 0) >= 0 {
			return errs.New(errs.Invalid, "argv holds a NUL byte")
		}
	}
	for k, v := range req.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(string(v), 0) >= 0 {
			return errs.New(errs.Invalid, "%.100q is not a variable, or its value holds a NUL byte", k)
		}
	}
	for _, l := range req.Rlimits {
		if _, ok := rlimits[l.Name]; !ok {
			return errs.New(errs.Invalid, "unknown rlimit %.40q", l.Name)
		}
		if l.Soft > l.Hard {
			return errs.New(errs.Invalid, "rlimit %s: soft is larger than hard", l.Name)
		}
	}
	return nil
}

// validSize says whether a terminal may have this size.
func validSize(s *wire.PtySize) bool {
	return s != nil && s.Cols >= 1 && s.Cols <= ptySizeMax && s.Rows >= 1 && s.Rows <= ptySizeMax
}

// user is whom a request means.
func (p planner) user(req *wire.StartRequest) string {
	return cmp.Or(req.User, p.Boot.DefaultUser, p.Boot.User)
}

// chooseUser sets the credentials. Where init is not root (the process
// provider of a plain user) every command runs as that user.
func (p planner) chooseUser(req *wire.StartRequest, s *pair.Spawn) error {
	b := p.Boot
	switch user := p.user(req); {
	case user == b.User:
		s.UID, s.GID = b.UID, b.GID
	case user != "root":
		return errs.New(errs.NotFound, "no user %.40q", user).WithExit(errs.NotRunnable)
	case !b.Root:
		return errs.New(errs.Denied, "root was not granted to this sandbox").WithHint("create it with root granted").WithExit(errs.NotRunnable)
	}
	s.Switch = os.Getuid() == 0
	return nil
}

func (p planner) workdir(cwd string) (string, error) {
	if cwd == "" {
		cwd = p.Boot.Workdir
	}
	if len(cwd) > pathBytesMax || strings.IndexByte(cwd, 0) >= 0 {
		return "", errs.New(errs.Invalid, "the working directory is no path")
	}
	if !filepath.IsAbs(cwd) {
		cwd = filepath.Join(p.Boot.Workdir, cwd)
	}
	return filepath.Clean(cwd), nil // whether it is there, the fork will tell
}

// environment is the request's over the sandbox's over our own defaults.
func (p planner) environment(req *wire.StartRequest, key string) map[string]string {
	b := p.Boot
	env := map[string]string{
		"PATH": pathDefault, "HOME": b.Home, "USER": b.User, "LOGNAME": b.User, "SHELL": p.Shell(), "LANG": "C.UTF-8",
	}
	if req.Pty != nil {
		env["TERM"] = terminalDefault
	}
	maps.Copy(env, b.Env)
	if p.user(req) == "root" {
		env["HOME"], env["USER"], env["LOGNAME"] = "/root", "root", "root"
	}
	for k, v := range req.Env {
		env[k] = string(v)
	}
	env[sandboxName], env[keyName] = b.Sandbox, key
	return env
}

// Variables in the environment of every command. The key also tells whose a
// process is that has left the command's session.
const (
	sandboxName = "SKETE_SANDBOX"
	keyName     = "SKETE_PROCESS"
)

func flatten(env map[string]string, argv []string) ([]string, error) {
	size := 0
	for _, a := range argv {
		size += len(a) + 1
	}
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
		size += len(k) + len(v) + 2
	}
	if size > argumentsMax {
		return nil, errs.New(errs.Invalid, "arguments and environment have %d bytes, more than %d", size, argumentsMax)
	}
	sort.Strings(list)
	return list, nil
}

// lookPath finds the program as execvp would: only a name without a slash is
// looked up. Whether the user may run it is for exec to say.
func lookPath(name, path, dir string) (string, error) {
	if len(name) > pathBytesMax {
		return "", errs.New(errs.Invalid, "the command's name is too long")
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, checkProgram(name)
	}
	denied := false
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		file := filepath.Join(d, name)
		err := checkProgram(file)
		if err == nil {
			return file, nil
		}
		denied = denied || errs.Is(err, errs.Denied)
	}
	if denied {
		return "", errs.New(errs.Denied, "not executable: %.200q", name).WithExit(errs.NotRunnable)
	}
	return "", errs.New(errs.NotFound, "command not found: %.200s", printable(name)).WithExit(errs.NotThere)
}

func checkProgram(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return errs.New(errs.NotFound, "command not found: %.200s", printable(file)).WithExit(errs.NotThere)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return errs.New(errs.Denied, "not executable: %.200q", file).WithExit(errs.NotRunnable)
	}
	return nil
}

// printable shows a name without quotes where that is safe.
func printable(s string) string {
	q := fmt.Sprintf("%q", s)
	if q == `"`+s+`"` {
		return s
	}
	return q
}

// spawnError says in words what fork and exec said in a number.
func spawnError(err error, s *pair.Spawn) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	if info, serr := os.Stat(s.Dir); serr != nil || !info.IsDir() {
		return errs.Wrap(errs.Invalid, err, "no working directory %.200q", s.Dir).WithExit(errs.NotRunnable)
	}
	name := s.Argv[0]
	switch errno {
	case unix.ENOENT:
		return errs.Wrap(errs.NotFound, err, "command not found: %.200q, or the interpreter in its first line", name).WithExit(errs.NotThere)
	case unix.EACCES, unix.EPERM:
		return errs.Wrap(errs.Denied, err, "permission denied: %.200q or its working directory", name).WithExit(errs.NotRunnable)
	case unix.ENOEXEC:
		return errs.Wrap(errs.Denied, err, "not executable: %.200q", name).WithExit(errs.NotRunnable)
	case unix.EAGAIN:
		return errs.Wrap(errs.Limit, err, "process limit reached")
	case unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO: // of the file of its output, or of the program
		return errs.Wrap(errs.Limit, err, "cannot start %.200q: the disk under the sandbox is full, or takes no writes", name).
			WithHint("remove files in the sandbox, or see to room on the server's disk: `skete status` shows it")
	case unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		return errs.Wrap(errs.Limit, err, "the machine has no room for another process")
	case unix.E2BIG:
		return errs.Wrap(errs.Invalid, err, "arguments and environment are too large").WithExit(errs.NotRunnable)
	case unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL:
		return errs.Wrap(errs.Invalid, err, "cannot start %.200q: %v", name, errno).WithExit(errs.NotRunnable)
	}
	return errs.Wrap(errs.Internal, err, "cannot start %.200q: %v", name, errno)
}

// findShell is what SHELL is set to.
func findShell() string {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}
