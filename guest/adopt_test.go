package guest_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

func adoption(change func(*wire.AdoptRequest)) *wire.AdoptRequest {
	r := &wire.AdoptRequest{
		Sandbox: "sbx_new", Hostname: "sbx-new", TimeUnixNs: time.Now().UnixNano(), Entropy: bytes.Repeat([]byte{7}, 64),
		Env: map[string][]byte{"COLOUR": []byte("green\xff")},
	}
	if change != nil {
		change(r)
	}
	return r
}

func (m *machine) adopt(r *wire.AdoptRequest) (*wire.AdoptResponse, error) {
	res, err := m.client.Control.Adopt(background(m.t), connect.NewRequest(r))
	if err != nil {
		return nil, wire.Err(err)
	}
	return res.Msg, nil
}

func (m *machine) mustAdopt(r *wire.AdoptRequest) *wire.AdoptResponse {
	m.t.Helper()
	res, err := m.adopt(r)
	if err != nil {
		m.t.Fatal(err)
	}
	return res
}

// killSupervise kills it and waits for the next one. Calls break meanwhile.
func (m *machine) killSupervise() {
	m.t.Helper()
	before := m.hello().SuperviseStarts
	if err := unix.Kill(m.supervise(), unix.SIGKILL); err != nil {
		m.t.Fatal(err)
	}
	for end := time.Now().Add(patience.Of(20 * time.Second)); ; {
		h, err := m.client.Hello(background(m.t))
		if err == nil && h.SuperviseStarts > before {
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("no new supervise within 20 s: %v, %v", h, err)
		}
	}
}

const show = `printf '%s|%s|%s|%s' "$SKETE_SANDBOX" "$COLOUR" "$OLD" "$PWD"`

func TestAdopt_holdsForEveryLaterCommandAndTheNextSupervise(t *testing.T) {
	m := start(t, options{change: func(b *wire.Boot) {
		b.Env = maps.Clone(b.Env)
		b.Env["OLD"] = "yes"
	}})
	first := m.hello()
	other := filepath.Join(m.dir, "other")
	if err := os.Mkdir(other, 0o777); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	res := m.mustAdopt(adoption(func(r *wire.AdoptRequest) {
		r.Workdir = []byte(other)
		r.Env["PATH"] = []byte(path)
	}))
	if res.BootId == "" || res.BootId == first.BootId {
		t.Errorf("boot id %q, before %q", res.BootId, first.BootId)
	}
	if res.ClockSet {
		t.Error("a machine on its host's kernel has set the host's clock")
	}
	want := "sbx_new|green\xff||" + other
	for _, when := range []string{"at once", "after supervise died"} {
		if h := m.hello(); h.BootId != res.BootId || string(h.Workdir) != other {
			t.Errorf("%s: hello says %q in %q", when, h.BootId, h.Workdir)
		}
		if r := m.mustExec(&wire.StartRequest{Argv: sh(show)}); r.out.String() != want {
			t.Errorf("%s: %q, want %q", when, &r.out, want)
		}
		st, err := m.client.File.Stat(background(t), connect.NewRequest(&wire.StatRequest{Path: []byte(".")}))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(st.Msg.Entry.Path); got != other {
			t.Errorf("%s: files begin at %q, want %q", when, got, other)
		}
		if when == "at once" {
			m.killSupervise()
		}
	}
}

func TestAdopt_withoutNamesKeepsThem(t *testing.T) {
	m := start(t, options{change: func(b *wire.Boot) {
		b.Env = maps.Clone(b.Env)
		b.Env["OLD"] = "yes"
	}})
	first := m.hello()
	res := m.mustAdopt(adoption(func(r *wire.AdoptRequest) { r.Sandbox, r.KeepBootId = "", true }))
	if res.BootId != first.BootId {
		t.Errorf("boot id %q was not kept: %q", first.BootId, res.BootId)
	}
	if r := m.mustExec(&wire.StartRequest{Argv: sh(show)}); r.out.String() != "sbx_test||yes|"+m.boot.Workdir {
		t.Errorf("got %q", &r.out)
	}
	again := m.mustAdopt(adoption(func(r *wire.AdoptRequest) { r.Sandbox = "" }))
	if third := m.mustAdopt(adoption(nil)); again.BootId == first.BootId || third.BootId == again.BootId {
		t.Errorf("boot ids %q, %q, %q", first.BootId, again.BootId, third.BootId)
	}
}

// A key that was used before the copy was made is answered in the copy; one
// that this copy never saw is not found, and nothing runs for it.
func TestAdopt_keepsTheKeysOfThisCopyAndKnowsNoOther(t *testing.T) {
	m := start(t, options{})
	m.mustExec(&wire.StartRequest{Key: "done", Argv: sh("echo one >> log; exit 3")})
	if _, err := m.client.Process.Start(background(t), connect.NewRequest(&wire.StartRequest{Key: "lives", Argv: sh("echo begun; read line; echo $line"), Stdin: true})); err != nil {
		t.Fatal(err)
	}
	m.mustAdopt(adoption(func(r *wire.AdoptRequest) { r.Env = map[string][]byte{"PATH": []byte(os.Getenv("PATH"))} }))
	r := m.mustExec(&wire.StartRequest{Key: "done", Argv: sh("echo two >> log")})
	if got := r.exit.GetExit().GetCode(); got != 3 {
		t.Errorf("a known key answered %d, want the 3 of its first run", got)
	}
	if _, err := m.client.Process.Input(background(t), connect.NewRequest(&wire.InputRequest{Key: "lives", Data: []byte("still here\n")})); err != nil {
		t.Fatal(err)
	}
	if r, err := m.attach(&wire.AttachRequest{Key: "lives"}); err != nil || r.out.String() != "begun\nstill here\n" {
		t.Errorf("attach to what lives: %v, %v", r, err)
	}
	if _, err := m.attach(&wire.AttachRequest{Key: "elsewhere"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("attach to a key of another copy: %v, want not found", err)
	}
	if data, _ := os.ReadFile(filepath.Join(m.boot.Workdir, "log")); string(data) != "one\n" {
		t.Errorf("the command ran as often as %q says", data)
	}
}

func TestAdopt_refusesWhatIsNoIdentity(t *testing.T) {
	m := start(t, options{})
	before := m.hello()
	for name, change := range map[string]func(*wire.AdoptRequest){
		"little entropy":   func(r *wire.AdoptRequest) { r.Entropy = []byte("short") },
		"too much entropy": func(r *wire.AdoptRequest) { r.Entropy = make([]byte, 513) },
		"no time":          func(r *wire.AdoptRequest) { r.TimeUnixNs = 0 },
		"a path as a name": func(r *wire.AdoptRequest) { r.Hostname = "../etc" },
		"a line as an id":  func(r *wire.AdoptRequest) { r.Sandbox = "sbx_a\nb" },
		"no variable":      func(r *wire.AdoptRequest) { r.Env["A=B"] = nil },
		"a NUL":            func(r *wire.AdoptRequest) { r.Env["A"] = []byte("\x00") },
		"a huge variable":  func(r *wire.AdoptRequest) { r.Env["A"] = bytes.Repeat([]byte("a"), 128<<10) },
		"a relative path":  func(r *wire.AdoptRequest) { r.Workdir = []byte("here") },
		"a long host name": func(r *wire.AdoptRequest) { r.Hostname = strings.Repeat("a", 65) },
	} {
		if _, err := m.adopt(adoption(change)); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	after := m.hello()
	if diff := cmp.Diff([]string{before.BootId, string(before.Workdir)}, []string{after.BootId, string(after.Workdir)}); diff != "" {
		t.Errorf("a refused call has changed something: %s", diff)
	}
}
