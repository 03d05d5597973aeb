package recipe

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/template/apt"
	"github.com/skete-dev/skete/template/service"
)

// Bounds of steps.
const (
	stepTimeout   = time.Hour
	callTimeout   = 2 * time.Minute
	lastLinesMax  = 20
	lastBytesMax  = 4 << 10
	outputPiece   = 8 << 10
	spoolBytesMax = 64 << 20
)

// notKept is what a template does not keep of a sandbox's root: places that
// belong to a running machine.
var notKept = []string{"proc", "sys", "dev", "run", "tmp", "workspace", ".skete", "var/lib/skete-guest"}

const packagesDir = "/workspace/.packages"

// worker does what steps need inside one sandbox.
type worker struct {
	guest  *wire.Client
	recipe Recipe
	output func(string)
}

// failedError is a command that did not end well.
type failedError struct{ how, last string }

func (e *failedError) Error() string { return e.how }

// env of a command: the recipe's, and that there is no user to answer questions.
func (w *worker) env() map[string][]byte {
	env := map[string][]byte{"DEBIAN_FRONTEND": []byte("noninteractive")}
	for k, v := range w.recipe.Env {
		env[k] = []byte(v)
	}
	return env
}

// command runs a shell's text to its end.
func (w *worker) command(ctx context.Context, user, text string, timeout time.Duration) error {
	return w.exec(ctx, &wire.StartRequest{
		Argv: [][]byte{[]byte("/bin/sh"), []byte("-ec"), []byte(text)}, Env: w.env(), Cwd: []byte("/"), User: user,
		TimeoutMs: timeout.Milliseconds(), SpoolBytesMax: spoolBytesMax, Overflow: wire.Overflow_OVERFLOW_DROP,
	})
}

func (w *worker) exec(ctx context.Context, start *wire.StartRequest) error {
	stream, err := w.guest.Process.Exec(ctx, connect.NewRequest(start))
	if err != nil {
		return wire.Err(err)
	}
	defer stream.Close()
	var last lastLines
	text := pieces{send: w.output}
	for stream.Receive() {
		m := stream.Msg()
		if out := m.GetOutput(); out != nil {
			text.add(out.Data)
			last.add(out.Data)
		}
		if p := m.GetExited(); p != nil {
			text.flush()
			return ended(p, last.text())
		}
	}
	if err := stream.Err(); err != nil {
		return wire.Err(err)
	}
	return errs.New(errs.Unavailable, "the sandbox went away in the middle of the step")
}

func ended(p *wire.ProcessInfo, last string) error {
	e := p.GetExit()
	switch {
	case p.State != wire.ProcessState_PROCESS_STATE_EXITED || e == nil:
		return errs.New(errs.Unavailable, "the sandbox restarted in the middle of the step")
	case e.Reason != "":
		return &failedError{e.Reason, last}
	case e.Code != 0:
		return &failedError{fmt.Sprintf("exit status %d", e.Code), last}
	}
	return nil
}

// pieces passes output on in whole characters.
type pieces struct {
	rest []byte
	send func(string)
}

func (p *pieces) add(b []byte) {
	p.rest = append(p.rest, b...)
	n := len(p.rest)
	for cut := 1; cut <= utf8.UTFMax && cut <= n; cut++ { // a character that is not whole yet waits
		if utf8.RuneStart(p.rest[n-cut]) {
			if !utf8.FullRune(p.rest[n-cut:]) {
				n -= cut
			}
			break
		}
	}
	for piece := range slices.Chunk(p.rest[:n], outputPiece) {
		p.send(strings.ToValidUTF8(string(piece), "\uFFFD"))
	}
	p.rest = append([]byte(nil), p.rest[n:]...)
}

func (p *pieces) flush() {
	if len(p.rest) > 0 {
		p.send(strings.ToValidUTF8(string(p.rest), "\uFFFD"))
	}
	p.rest = nil
}

// lastLines keeps the end of what was written.
type lastLines struct{ b []byte }

func (l *lastLines) add(b []byte) {
	l.b = append(l.b, b...)
	if extra := len(l.b) - 2*lastBytesMax; extra > 0 {
		l.b = slices.Delete(l.b, 0, extra)
	}
}

func (l *lastLines) text() string {
	b := l.b[max(0, len(l.b)-lastBytesMax):]
	lines := strings.Split(strings.TrimRight(strings.ToValidUTF8(string(b), "\uFFFD"), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-lastLinesMax):], "\n")
}

// write writes a small file as root.
func (w *worker) write(ctx context.Context, name string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out := w.guest.File.Write(ctx)
	err := out.Send(&wire.WriteRequest{Header: &wire.WriteRequest_Header{Path: []byte(name), User: "root", Mode: 0o644, MakeParents: true}, Data: data})
	if err != nil && !errors.Is(err, io.EOF) {
		return wire.Err(err)
	}
	_, err = out.CloseAndReceive()
	return wire.Err(err)
}

// upload unpacks what fill writes into a directory, as root.
func (w *worker) upload(ctx context.Context, dir string, fill func(*tar.Writer) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, pw := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		tw := tar.NewWriter(pw)
		err := fill(tw)
		if err == nil {
			err = tw.Close()
		}
		pw.CloseWithError(err)
	}()
	defer func() { _ = r.Close(); <-packed }()
	out := w.guest.File.Upload(ctx)
	err := out.Send(&wire.UploadRequest{Header: &wire.UploadRequest_Header{Path: []byte(dir), User: "root", BytesMax: contextBytesMax}})
	buf := make([]byte, wire.ChunkBytes)
	for err == nil {
		n, rerr := io.ReadFull(r, buf)
		if n > 0 {
			err = out.Send(&wire.UploadRequest{Data: buf[:n]})
		}
		if rerr != nil {
			if !errors.Is(rerr, io.EOF) && !errors.Is(rerr, io.ErrUnexpectedEOF) {
				return rerr // of fill
			}
			break
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return wire.Err(err)
	}
	_, err = out.CloseAndReceive()
	return wire.Err(err)
}

// copyFiles puts the recipe's files in their places.
func (w *worker) copyFiles(ctx context.Context, f *Folder) error {
	for _, x := range f.Recipe.Files {
		dir, base, err := x.target(f.root)
		if err != nil {
			return err
		}
		var names []string
		err = w.upload(ctx, dir, func(tw *tar.Writer) error {
			return walk(ctx, f.root, x.From, func(e entry) error {
				name := path.Join(base, e.rel)
				if name == "." {
					return nil
				}
				if len(names) == 0 || base == "" && !strings.Contains(name, "/") {
					names = append(names, path.Join(dir, name))
				}
				return e.pack(f.root, tw, name, e.mode(x.mode()))
			})
		})
		if err != nil {
			return fmt.Errorf("copy %s to %s: %w", x.From, x.To, err)
		}
		if x.Owner == "" || len(names) == 0 {
			continue
		}
		argv := [][]byte{[]byte("chown"), []byte("-hR"), []byte(x.Owner), []byte("--")}
		for _, name := range names {
			argv = append(argv, []byte(name))
		}
		if err := w.exec(ctx, &wire.StartRequest{Argv: argv, Cwd: []byte("/"), User: "root", TimeoutMs: callTimeout.Milliseconds()}); err != nil {
			return err
		}
	}
	return nil
}

// target says in which directory something is put, and by which name; "" =
// what is inside of it is put there.
func (x File) target(root *os.Root) (dir, base string, err error) {
	info, err := root.Lstat(x.From)
	if err != nil {
		return "", "", err
	}
	to := path.Clean(x.To)
	switch into := strings.HasSuffix(x.To, "/"); {
	case info.IsDir():
		return to, "", nil
	case into:
		return to, path.Base(x.From), nil
	}
	return path.Dir(to), path.Base(to), nil
}

// installText installs the packages of a directory without a network; what
// was not asked for is marked so, and nothing is started meanwhile.
const installText = `policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod 755 "$policy"; ours=1; fi
apt-get -y --no-install-recommends -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold -o APT::Keep-Downloaded-Packages=false --allow-downgrades install %[1]s/*.deb
if [ -n "%[2]s" ]; then apt-mark auto %[2]s >/dev/null; fi
if [ -n "$ours" ]; then rm -f "$policy"; fi
rm -rf %[1]s`

// leaveNetwork takes out what the step's machine was given for its own network: its
// certificate, and settings of package managers. They mean nothing in another machine.
func (w *worker) leaveNetwork(ctx context.Context) error {
	const text = `for f in %s; do
	if [ -f "$f" ] && grep -q '^%[2]s$' "$f"; then sed '/^%[2]s$/,/^%[3]s$/d' "$f" >/tmp/.trust && cat /tmp/.trust >"$f"; fi
done
rm -f /tmp/.trust %s
for f in /etc/skete/* /.cargo/config.toml; do
	if [ -f "$f" ] && head -n 1 "$f" | grep -q "^%s$"; then rm -f "$f"; fi
done`
	line := strings.TrimSpace
	return w.command(ctx, "root", fmt.Sprintf(text, strings.Join(wire.TrustBundles, " "), line(wire.TrustBegin), line(wire.TrustEnd), wire.TrustFile, line(wire.SettingsBegin)), callTimeout)
}

// install brings packages inside and installs them there.
func (w *worker) install(ctx context.Context, debs []apt.Deb) error {
	err := w.upload(ctx, packagesDir, func(tw *tar.Writer) error {
		for _, d := range debs {
			if err := packFile(tw, d.Path); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("bring packages inside: %w", err)
	}
	var auto []string
	for _, d := range debs {
		if d.Auto {
			auto = append(auto, d.Name)
		}
	}
	return w.command(ctx, "root", fmt.Sprintf(installText, packagesDir, strings.Join(auto, " ")), stepTimeout)
}

func packFile(tw *tar.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Name: filepath.Base(name), Typeflag: tar.TypeReg, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}

// root streams the sandbox's root as a tar.
func (w *worker) root(ctx context.Context) io.Reader {
	m := &wire.DownloadRequest{Path: []byte("/"), User: "root", Image: true}
	for _, not := range notKept {
		m.Exclude = append(m.Exclude, []byte(not))
	}
	return &download{ctx: ctx, guest: w.guest, m: m}
}

// download reads the tar of a call that begins with the first read.
type download struct {
	ctx    context.Context
	guest  *wire.Client
	m      *wire.DownloadRequest
	stream *connect.ServerStreamForClient[wire.DownloadResponse]
	rest   []byte
}

func (d *download) Read(b []byte) (int, error) {
	if d.stream == nil {
		var err error
		if d.stream, err = d.guest.File.Download(d.ctx, connect.NewRequest(d.m)); err != nil {
			return 0, wire.Err(err)
		}
	}
	for len(d.rest) == 0 {
		if !d.stream.Receive() {
			err := d.stream.Err()
			_ = d.stream.Close()
			return 0, cmp.Or(wire.Err(err), io.EOF)
		}
		d.rest = d.stream.Msg().Data
	}
	n := copy(b, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// ready starts what the template is for and waits until it is ready.
func (w *worker) ready(ctx context.Context, say func(string)) error {
	r := w.recipe
	if r.Ready == "" {
		return nil
	}
	say("waiting until it is ready: " + oneLine(r.Ready))
	err := service.Begin(ctx, w.guest, service.Service{
		Start: r.Start, Ready: r.Ready, Timeout: r.ReadyTimeout, User: cmp.Or(r.User, "user"), Dir: cmp.Or(r.Workdir, "/workspace"), Env: w.env(),
	})
	if failed, is := errors.AsType[*service.Error](err); is {
		return &failedError{how: failed.How, last: failed.Last}
	}
	return err
}
