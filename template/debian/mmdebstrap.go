package debian

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/apt"
)

const (
	program       = "mmdebstrap"
	lastLinesMax  = 12
	lineBytesMax  = 400
	copyBytesEach = 256 << 10
)

// leftOut is what is not read in a sandbox; licences stay.
var leftOut = []string{
	"path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright", "path-exclude=/usr/share/man/*",
	"path-exclude=/usr/share/info/*", "path-exclude=/usr/share/locale/*", "path-include=/usr/share/locale/locale.alias",
	"path-exclude=/usr/share/lintian/*",
}

// build runs mmdebstrap and imports the tar that it writes.
func (m *Maker) build(ctx context.Context, r Ready, say func(string)) (info template.Info, err error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return info, errs.Wrap(errs.Unsupported, err, "the template %s is made by mmdebstrap, which is not installed", r.Name).
			WithHint("`skete doctor --fix`, or apt install mmdebstrap; or `skete template pull` an image instead")
	}
	dir, err := os.MkdirTemp(m.c.Dir, r.Name+"-")
	if err != nil {
		return info, errs.Wrap(errs.Internal, err, "cannot make a directory")
	}
	defer func() {
		if rerr := os.RemoveAll(dir); rerr != nil {
			m.c.Log.Warn("cannot remove what was left of a template", "error", rerr)
		}
	}()
	suite := m.Suite()
	sources := m.Sources(suite)
	if len(sources) == 0 {
		return info, errs.New(errs.Unsupported, "no archive of %s is known here", suite).
			WithHint("name one: `templates: {mirror: …}` in skete.yaml; a host of that release needs none")
	}
	say(fmt.Sprintf("making the template %s: %s from %s", r.Name, suite, sources[0].URI))
	return m.run(ctx, path, dir, r, suite, sources, say)
}

// arguments of mmdebstrap. Sources are read from stdin, the tar goes to stdout.
func arguments(r Ready, suite string) []string {
	args := []string{"--variant=" + cmp.Or(r.Variant, "minbase"), "--format=tar"}
	if len(r.Packages) > 0 {
		args = append(args, "--include="+strings.Join(r.Packages, ","))
	}
	if os.Geteuid() == 0 {
		args = append(args, "--mode=root")
	} else {
		args = append(args, "--mode=unshare")
	}
	for _, rule := range leftOut {
		args = append(args, "--dpkgopt="+rule)
	}
	return append(args, suite, "-", "-")
}

func (m *Maker) run(ctx context.Context, path, dir string, r Ready, suite string, sources apt.Sources, say func(string)) (template.Info, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, arguments(r, suite)...)
	cmd.Env = environment(dir)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(sources.Text())
	cmd.SysProcAttr = alone()
	cmd.Cancel = func() error { return stop(cmd.Process) }
	cmd.WaitDelay = 10 * time.Second
	said := &lastLines{say: say}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return template.Info{}, err
	}
	p := &tarProgram{cmd: cmd, out: bufio.NewReaderSize(out, copyBytesEach)}
	if err := p.start(); err != nil {
		return template.Info{}, errs.Wrap(errs.Unsupported, err, "mmdebstrap cannot be started")
	}
	info, err := m.c.Store.Import(ctx, r.Name, p)
	cancel() // an import that failed early has not read all
	wait := p.end()
	switch {
	case err == nil:
		say(fmt.Sprintf("the template %s is there: %d MiB", r.Name, info.Bytes>>20))
		return info, nil
	case p.failed != nil:
		return template.Info{}, explain(p.failed, said.lines, sources)
	case wait != nil && errors.Is(err, io.ErrUnexpectedEOF):
		return template.Info{}, explain(wait, said.lines, sources)
	}
	return template.Info{}, err
}

// tarProgram is mmdebstrap as a reader of its tar: the end of the tar counts
// only when the program has ended well.
type tarProgram struct {
	cmd    *exec.Cmd
	out    *bufio.Reader
	failed error // how it ended, if badly

	started chan error
	ended   chan struct{}
	once    sync.Once
	wait    chan struct{}
	err     error
}

// start starts the program from a thread that lives as long as the program
// does: the kernel ends the program together with the thread (Pdeathsig).
func (p *tarProgram) start() error {
	p.started, p.ended, p.wait = make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := p.cmd.Start()
		p.started <- err
		if err == nil {
			<-p.wait // all of stdout was read, or it is not read any more
			p.err = p.cmd.Wait()
		}
		close(p.ended)
	}()
	return <-p.started
}

// end waits for the program and says how it ended.
func (p *tarProgram) end() error {
	p.once.Do(func() { close(p.wait) })
	<-p.ended
	return p.err
}

func (p *tarProgram) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if err == nil || n > 0 {
		return n, nil
	}
	if werr := p.end(); werr != nil {
		p.failed = werr
		return 0, errs.Wrap(errs.Internal, werr, "mmdebstrap failed")
	}
	return 0, err
}

// environment holds what apt and dpkg need and nothing of the server's own.
func environment(dir string) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
		// Times are not later than this, so that a day's templates are equal.
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", time.Now().UTC().Truncate(24*time.Hour).Unix()),
	}
	if os.Geteuid() == 0 {
		env = append(env, "TMPDIR="+dir) // without root others must be able to enter it: the system's then
	}
	return append(env, apt.ProxyEnv()...)
}

// alone puts the program into namespaces of its own: when it, or we, are
// killed, nothing of it runs on and nothing stays mounted. Without root
// mmdebstrap does so itself.
func alone() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if os.Geteuid() == 0 {
		a.Unshareflags = syscall.CLONE_NEWNS
		a.Cloneflags = syscall.CLONE_NEWPID
	}
	return a
}

// stop ends the program and what it started.
func stop(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// lastLines passes the lines that are meant for people on, and keeps the last.
type lastLines struct {
	say     func(string)
	lines   []string
	partial []byte
}

func (l *lastLines) Write(b []byte) (int, error) {
	for _, c := range b {
		switch {
		case c == '\n' || c == '\r':
			l.line(strings.TrimSpace(string(l.partial)))
			l.partial = l.partial[:0]
		case len(l.partial) < lineBytesMax:
			l.partial = append(l.partial, c)
		}
	}
	return len(b), nil
}

func (l *lastLines) line(text string) {
	if text == "" {
		return
	}
	if len(l.lines) == lastLinesMax {
		l.lines = slices.Delete(l.lines, 0, 1)
	}
	l.lines = append(l.lines, text)
	if rest, ok := strings.CutPrefix(text, "I: "); ok && !strings.Contains(rest, "/") {
		l.say(rest) // what names directories of the host is of no use to anybody
	}
}

// explain makes an error that says what to do of what mmdebstrap and apt said.
func explain(err error, lines []string, sources apt.Sources) error {
	text := strings.Join(lines, "\n")
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
	}
	last := strings.Join(slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return strings.HasPrefix(s, "I: ") }), "; ")
	switch cause := fmt.Errorf("%w: %s", err, last); {
	case has("No space left on device", "Disk quota exceeded", "enough free space"):
		return errs.Wrap(errs.Limit, cause, "no space is left on the host to make the template").WithHint("a template needs up to 2 GiB while it is made")
	case has("NO_PUBKEY", "is not signed", "keyring"):
		return errs.Wrap(errs.Unsupported, cause, "the host has not the keys of %s", sources[0].URI).
			WithHint("apt install debian-archive-keyring (or ubuntu-keyring)")
	case has("Unable to locate package", "has no installation candidate"):
		return errs.Wrap(errs.Unavailable, cause, "%s lacks a package that the template needs", sources[0].URI).
			WithHint("set another mirror: `templates: {mirror: URL}` in the configuration")
	case has("Could not resolve", "Temporary failure resolving", "Could not connect", "Unable to connect", "Connection failed", "Connection timed out",
		"Cannot initiate", "Failed to fetch", "unable to access", "does not have a Release file", "apt-get update"):
		return errs.Wrap(errs.Unavailable, cause, "the mirror %s does not answer as it should", sources[0].URI).
			WithHint("is there a network? `templates: {mirror: URL}` in the configuration names another mirror; `skete template import` takes a tar made elsewhere")
	case has("unshare", "subuid", "newuidmap", "user namespaces"):
		return errs.Wrap(errs.Unsupported, cause, "mmdebstrap cannot make user namespaces on this host").
			WithHint("run the server as root, or apt install uidmap and give this user a line in /etc/subuid and /etc/subgid")
	default:
		return errs.Wrap(errs.Internal, cause, "mmdebstrap failed: %.300s", last)
	}
}
