package manager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/service"
)

// used opens a server whose template is used as u says.
func used(t *testing.T, u template.Use, warm int) (*host, *warmServer) {
	t.Helper()
	h := newHost(t)
	h.Rootfs.Use = u
	s := h.open(t, warm)
	t.Cleanup(func() { must(t, s.Close()) })
	return h, s
}

func (s *warmServer) make(t *testing.T, spec sandbox.Spec) sandbox.Info {
	t.Helper()
	info, err := s.Create(t.Context(), "t", sandbox.CreateRequest{Spec: spec})
	must(t, err)
	t.Cleanup(func() { must(t, s.Destroy(context.Background(), "t", info.ID)) })
	return info
}

// began is what the command that the template starts has written; "" = there
// is none.
func (s *warmServer) began(t *testing.T, id sandbox.ID) string {
	t.Helper()
	stream, err := s.guest(t, id).Process.Attach(t.Context(), connect.NewRequest(&wire.AttachRequest{Key: service.Key, NoFollow: true}))
	must(t, err)
	defer stream.Close()
	var out strings.Builder
	for stream.Receive() {
		out.Write(stream.Msg().GetOutput().GetData())
	}
	if err := wire.Err(stream.Err()); err != nil && !errs.Is(err, errs.NotFound) {
		t.Fatal(err)
	}
	return out.String()
}

func TestUse_userAndDirectory(t *testing.T) {
	t.Parallel()
	_, s := used(t, template.Use{User: "root", Workdir: "/home"}, 0)
	if _, err := s.Create(t.Context(), "t", sandbox.CreateRequest{}); !errs.Is(err, errs.Denied) || !strings.Contains(errs.Hint(err), "--root") {
		t.Errorf("a sandbox without root from a template that wants it: %v", err)
	}
	info := s.make(t, sandbox.Spec{Root: true})
	if info.Spec.Workdir != "/home" {
		t.Errorf("it says its directory is %q", info.Spec.Workdir)
	}
	const who = `echo $(id -u) $HOME $USER $(pwd)`
	if got := s.shell(t, info.ID, who); got != "0 /root root /home" {
		t.Errorf("commands run as %s", got)
	}
	g := s.guest(t, info.ID)
	out := g.File.Write(t.Context())
	must(t, out.Send(&wire.WriteRequest{Header: &wire.WriteRequest_Header{Path: []byte("file"), Mode: 0o600}, Data: []byte("x")}))
	_, err := out.CloseAndReceive()
	must(t, err)
	if got := s.shell(t, info.ID, "stat -c %u /home/file"); got != "0" {
		t.Errorf("files that are written through the API belong to %s, and not to whom commands run as", got)
	}
	start := &wire.StartRequest{Argv: [][]byte{[]byte("sh"), []byte("-c"), []byte(who)}, User: "user", Cwd: []byte("/")}
	if res, err := g.Exec(t.Context(), start); err != nil || res.Stdout != "1000 /home/user user /\n" {
		t.Errorf("a command that asks for the user: %v, %+v", err, res)
	}
	if got := s.shell(t, s.make(t, sandbox.Spec{Root: true, Workdir: "/workspace"}).ID, "pwd"); got != "/workspace" {
		t.Errorf("the specification does not win: %s", got)
	}
}

func TestUse_startsAndWaits(t *testing.T) {
	t.Parallel()
	_, s := used(t, template.Use{
		Start: "echo begun $WHO in $(pwd) by $(id -u); sleep 0.3; echo $$ >/workspace/up; exec sleep 1000", Ready: "test -s /workspace/up", Workdir: "/tmp",
	}, 0)
	info := s.make(t, sandbox.Spec{Env: map[string]string{"WHO": "me"}, Persist: true})
	if got := s.shell(t, info.ID, "kill -0 $(cat /workspace/up) && rm /workspace/up && echo alive"); got != "alive" {
		t.Errorf("it is not there when the sandbox is: %q", got)
	}
	const want = "begun me in /tmp by 1000\n"
	if got := s.began(t, info.ID); got != want {
		t.Errorf("it wrote %q", got)
	}
	_, err := s.Stop(t.Context(), "t", info.ID)
	must(t, err)
	_, err = s.Start(t.Context(), "t", info.ID)
	must(t, err)
	if got := s.began(t, info.ID) + s.shell(t, info.ID, "kill -0 $(cat /workspace/up); echo $?"); got != want+"0" {
		t.Errorf("after another start: %q", got)
	}
	if got := s.began(t, s.make(t, sandbox.Spec{NoStart: true}).ID); got != "" {
		t.Errorf("it was started against the specification: %q", got)
	}
}

func TestUse_whatDoesNotGetReadyIsNoSandbox(t *testing.T) {
	t.Parallel()
	h, s := used(t, template.Use{Start: "echo sad words; exit 7", Ready: "false", ReadyTimeout: time.Second}, 0)
	_, err := s.Create(t.Context(), "t", sandbox.CreateRequest{})
	for _, part := range []string{"not ready in 1s", "status 7", "sad words"} {
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	if left, err := s.List(t.Context(), "t", sandbox.Filter{}); err != nil || len(left.Items) > 0 {
		t.Errorf("left: %v, %v", left.Items, err)
	}
	h.nothing(t, s.machines(t))
	looked := s.make(t, sandbox.Spec{NoStart: true})
	if looked.State != sandbox.Running {
		t.Errorf("without starting it: %s", looked.State)
	}
}

func TestUse_startIsNoCommand(t *testing.T) {
	t.Parallel()
	_, s := used(t, template.Use{Ready: "no-such-thing 2>/dev/null || { echo gone; exit 4; }", ReadyTimeout: time.Second}, 0)
	_, err := s.Create(t.Context(), "t", sandbox.CreateRequest{})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(fmt.Sprint(err), "gone") {
		t.Errorf("without `start` the last words are those of `ready`: %v", err)
	}
}

// What a template starts is ready in a warm machine before a sandbox has it, if its
// commands see what the sandbox's do; it is started once.
func TestUse_beforeTheSandbox(t *testing.T) {
	t.Parallel()
	_, s := used(t, template.Use{
		Start: "echo begun $WHO; echo x >>/tmp/started; exec sleep 1000", Ready: "test -s /tmp/started",
	}, 1)
	started := func(spec sandbox.Spec) (begun bool, wrote string) {
		t.Helper()
		must(t, s.full(t.Context(), 1))
		before := time.Now()
		id := s.make(t, spec).ID
		res, err := s.guest(t, id).Process.Get(t.Context(), connect.NewRequest(&wire.GetProcessRequest{Key: service.Key}))
		if errs.Is(wire.Err(err), errs.NotFound) {
			return false, ""
		}
		must(t, wire.Err(err))
		if n := s.shell(t, id, "wc -l </tmp/started"); n != "1" {
			t.Errorf("it was started %s times", n)
		}
		return time.Unix(0, res.Msg.Process.GetStartedUnixNs()).Before(before), s.began(t, id)
	}
	if begun, wrote := started(sandbox.Spec{}); !begun || wrote != "begun\n" {
		t.Errorf("begun before the sandbox: %v; it wrote %q", begun, wrote)
	}
	for range 2 { // booted, since there is no other, and then in a warm one
		if begun, wrote := started(sandbox.Spec{Env: map[string]string{"WHO": "me"}}); begun || wrote != "begun me\n" {
			t.Errorf("with an environment of its own, begun before the sandbox: %v; it wrote %q", begun, wrote)
		}
	}
	if claims, _ := s.claims(); claims != 2 {
		t.Errorf("%d sandboxes have machines that were warm", claims)
	}
	if _, wrote := started(sandbox.Spec{NoStart: true}); wrote != "" {
		t.Errorf("against the specification it wrote %q", wrote)
	}
}

func TestUse_inWarmMachines(t *testing.T) {
	t.Parallel()
	_, s := used(t, template.Use{Start: "echo begun $WHO; exec sleep 1000", Ready: `test "$WHO" = good`, ReadyTimeout: time.Second}, 1)
	for _, who := range []string{"good", "bad"} {
		must(t, s.full(t.Context(), 1))
		warm := s.machines(t)
		info, err := s.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Env: map[string]string{"WHO": who}}})
		if claims, _ := s.claims(); claims == 0 {
			t.Fatal("it was booted cold")
		}
		if who == "good" {
			must(t, err)
			// It is ready by what it was given, not by what it wrote.
			eventually(t, "it writes", func() bool { return s.began(t, info.ID) != "" })
			if got := s.began(t, info.ID); got != "begun good\n" {
				t.Errorf("it wrote %q", got)
			}
			must(t, s.Destroy(t.Context(), "t", info.ID))
			continue
		}
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), "begun bad") {
			t.Errorf("%v", err)
		}
		must(t, s.full(t.Context(), 1))
		for id := range s.machines(t) {
			if warm[id] {
				t.Errorf("the machine %s is there still", id)
			}
		}
	}
}
