package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
)

// keyboard reads keys from a terminal in raw mode. start and stop belong to
// one goroutine; between stop and start the terminal is as it was found.
type keyboard struct {
	in   *os.File
	out  io.Writer // the terminal, which is asked to mark what is pasted
	keys chan []screen.Key

	old    *term.State
	wake   *os.File // its end wakes the reader from poll
	done   chan struct{}
	wg     sync.WaitGroup
	reader screen.Reader
}

func newKeyboard(in *os.File, out io.Writer) *keyboard {
	return &keyboard{in: in, out: out, keys: make(chan []screen.Key)}
}

// pressed delivers keys; on nil it never does.
func (k *keyboard) pressed() <-chan []screen.Key {
	if k == nil {
		return nil
	}
	return k.keys
}

func (k *keyboard) start() error {
	old, err := term.MakeRaw(int(k.in.Fd()))
	if err != nil {
		return errs.Wrap(errs.Unsupported, err, "this terminal has no raw mode")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	k.old, k.wake, k.done = old, w, make(chan struct{})
	_, _ = io.WriteString(k.out, screen.PasteOn) // a terminal that does not know it ignores it
	k.wg.Go(func() {
		defer r.Close()
		k.read(int(r.Fd()), k.done)
	})
	return nil
}

// read reads until wake's other end is closed. It waits for input with poll:
// a read that has begun cannot be taken back, and would eat a key that is
// meant for an editor.
func (k *keyboard) read(wake int, done <-chan struct{}) {
	buf := make([]byte, 1024)
	fds := []unix.PollFd{{Fd: int32(k.in.Fd()), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}} //nolint:gosec // descriptors fit
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
		if fds[1].Revents != 0 {
			return
		}
		if fds[0].Revents == 0 {
			continue
		}
		n, err := unix.Read(int(k.in.Fd()), buf)
		if n <= 0 && err != unix.EINTR {
			return // the terminal is gone
		}
		keys := k.reader.Read(buf[:max(n, 0)])
		if len(keys) == 0 {
			continue
		}
		select {
		case k.keys <- keys:
		case <-done:
			return
		}
	}
}

func (k *keyboard) stop() {
	if k.wake == nil {
		return
	}
	close(k.done)
	_ = k.wake.Close()
	k.wake = nil
	k.wg.Wait()
	_, _ = io.WriteString(k.out, screen.PasteOff)
	_ = term.Restore(int(k.in.Fd()), k.old)
}

// edit lets the person change the arguments of a call in their editor.
func (w *runWatcher) edit(ctx context.Context, ask screen.Ask) error {
	args, err := w.argsOf(ctx, ask)
	if err != nil {
		return err
	}
	w.keys.stop()
	defer func() { _ = w.keys.start() }() // fails only if the terminal is gone: then reads fail too
	if err := w.term.Close(); err != nil {
		return err
	}
	changed, err := w.editor(ctx, args)
	if err != nil {
		return err
	}
	if bytes.Equal(changed, args) {
		w.dialog.Say("nothing was changed: a approves it as it is")
		return nil
	}
	return w.decide(ctx, api.Decide{Call: ask.Call, Thread: ask.Thread, Decision: api.DecisionEdit, Args: changed})
}

// view prints all that a call would do above what changes.
func (w *runWatcher) view(ctx context.Context, ask screen.Ask) error {
	args, err := w.wholeArgs(ctx, ask)
	if err != nil {
		return err
	}
	if err := w.draw(viewOf(w.App).Render(screen.Whole(ask, args))); err != nil {
		return err
	}
	w.dialog.Viewed(ask, args)
	return nil
}

// wholeArgs returns a call's arguments. Large ones are not in the news.
func (w *runWatcher) wholeArgs(ctx context.Context, ask screen.Ask) (json.RawMessage, error) {
	if ask.Args != nil {
		return ask.Args, nil
	}
	open, err := w.r.Approvals(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range open {
		if a.Call == ask.Call && (ask.Thread == "" || a.Thread == ask.Thread) {
			return a.Args, nil
		}
	}
	return nil, errs.New(errs.Conflict, "it was decided elsewhere meanwhile")
}

// argsOf returns a call's arguments, readable.
func (w *runWatcher) argsOf(ctx context.Context, ask screen.Ask) ([]byte, error) {
	args, err := w.wholeArgs(ctx, ask)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, args, "", "  "); err != nil {
		return []byte("{}"), nil
	}
	return out.Bytes(), nil
}

// editor opens a file with text and returns what became of it: a JSON object.
func (w *runWatcher) editor(ctx context.Context, text []byte) ([]byte, error) {
	f, err := os.CreateTemp("", "skete-*.json")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(append(text, '\n')); err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	out, _ := w.Terminal()
	// Through a shell, since people put arguments into EDITOR.
	cmd := exec.CommandContext(ctx, "sh", "-c", editorOf(os.Getenv)+` "$0"`, f.Name())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = w.In, out, out
	if err := cmd.Run(); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the editor failed; nothing was decided").WithHint("set EDITOR to one that works here")
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		return nil, err
	}
	data = bytes.TrimSpace(data)
	var object map[string]any
	if json.Unmarshal(data, &object) != nil || object == nil {
		return nil, errs.New(errs.Invalid, "that is no JSON object; nothing was decided")
	}
	return data, nil
}

func editorOf(env func(string) string) string {
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if v := env(name); v != "" {
			return v
		}
	}
	return "vi"
}
