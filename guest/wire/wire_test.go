package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

func TestPreamble_table(t *testing.T) {
	cases := []struct {
		name, answer string
		class        errs.Class // "" = opened
	}{
		{"ok", "OK 65536\n", ""},
		{"ok with bytes of the stream behind it", "OK 1\nhello", ""},
		{"refused with a class", "NO not_found nothing listens on port 80\n", errs.NotFound},
		{"refused with an invented class", "NO root_me please\n", errs.Unavailable},
		{"empty line", "\n", errs.Unavailable},
		{"garbage", "HTTP/1.1 200 OK\n", errs.Unavailable},
		{"nothing, then EOF", "", errs.Unavailable},
		{"a line without end", strings.Repeat("A", 10_000), errs.Unavailable},
		{"NUL bytes", strings.Repeat("\x00", 300), errs.Unavailable},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			host, guest := net.Pipe()
			defer guest.Close()
			go func() {
				if _, err := wire.Accept(guest); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(guest, c.answer)
				if !strings.HasSuffix(c.answer, "hello") {
					guest.Close()
				}
			}()
			err := wire.Connect(host, 80, time.Time{})
			if errs.Of(err) != c.class {
				t.Fatalf("Connect = %v (%s), want class %q", err, errs.Of(err), c.class)
			}
			if strings.HasSuffix(c.answer, "hello") {
				b := make([]byte, 5)
				if _, err := io.ReadFull(host, b); err != nil || string(b) != "hello" {
					t.Errorf("the stream begins with %q, %v: the preamble took bytes of it", b, err)
				}
			}
			if err != nil {
				if _, werr := host.Write([]byte("x")); werr == nil {
					t.Error("the connection is open after an error")
				}
			}
		})
	}
}

func TestPreamble_aSilentGuestRunsIntoTheDeadline(t *testing.T) {
	host, guest := net.Pipe()
	defer guest.Close()
	go func() { _, _ = wire.Accept(guest) }()
	err := wire.Connect(host, 1, time.Now().Add(20*time.Millisecond))
	if !errs.Is(err, errs.Unavailable) {
		t.Fatalf("Connect = %v, want unavailable", err)
	}
}

func TestRefuse_isOneShortPrintableLine(t *testing.T) {
	host, guest := net.Pipe()
	go func() {
		_, _ = wire.Accept(guest)
		_ = wire.Refuse(guest, errs.New(errs.Limit, "a\nb\x00%s", strings.Repeat("x", 500)))
		guest.Close()
	}()
	err := wire.Connect(host, 1, time.Time{})
	if !errs.Is(err, errs.Limit) || strings.ContainsAny(errs.Public(err), "\n\x00") {
		t.Fatalf("Connect = %q (%s)", err, errs.Of(err))
	}
}

func FuzzAccept(f *testing.F) {
	for _, s := range []string{"CONNECT 80\n", "CONNECT 99999999999\n", "CONNECT -1\n", "CONNECT\n", "\n", "CONNECT 65536\nrest"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		host, guest := net.Pipe()
		go func() { _, _ = host.Write(in); host.Close() }()
		port, err := wire.Accept(guest)
		guest.Close()
		if err == nil && !bytes.HasPrefix(in, []byte("CONNECT ")) {
			t.Fatalf("Accept(%q) = %d", in, port)
		}
	})
}

func TestNegotiate(t *testing.T) {
	cases := []struct {
		lo, hi uint32
		want   uint32
		ok     bool
	}{
		{1, 1, 1, true},
		{1, 99, wire.Version, true},
		{wire.Version + 1, 99, 0, false},
		{0, 0, 0, false},
		{2, 1, 0, false},
	}
	for _, c := range cases {
		got, err := wire.Negotiate(c.lo, c.hi)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("Negotiate(%d, %d) = %d, %v", c.lo, c.hi, got, err)
		}
		if err != nil && errs.Hint(err) == "" {
			t.Errorf("Negotiate(%d, %d): no hint for the operator", c.lo, c.hi)
		}
	}
}

func TestStatus_aClassSurvivesTheWire(t *testing.T) {
	for _, class := range errs.Classes {
		err := errs.Wrap(class, errors.New("/host/path"), "public text")
		got := wire.Err(wire.ToConnect(err))
		if errs.Of(got) != class || errs.Public(got) != "public text" {
			t.Errorf("%s came back as %s %q", class, errs.Of(got), errs.Public(got))
		}
		if strings.Contains(wire.ToConnect(err).Error(), "/host/path") {
			t.Errorf("%s: the cause crossed the wire", class)
		}
	}
	if err := wire.Err(connect.NewError(connect.CodeCanceled, errors.New("x"))); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled came back as %v", err)
	}
	for _, code := range append([]string{""}, errs.Codes...) {
		if got := wire.Err(wire.ToConnect(errs.New(errs.Invalid, "x").WithCode(code))); errs.Code(got) != code {
			t.Errorf("the code %q came back as %q", code, errs.Code(got))
		}
	}
	if got := wire.Err(wire.ToConnect(errs.New(errs.Invalid, "x").WithCode("made_up"))); errs.Code(got) != "" {
		t.Errorf("a guest's own code was taken: %q", errs.Code(got))
	}
	late := fmt.Errorf("exec: %w", context.DeadlineExceeded)
	if err := wire.Err(wire.ToConnect(late)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline that the guest saw first came back as %v", err)
	}
	late = errs.Wrap(errs.Unavailable, late, "the host did not answer")
	if err := wire.Err(wire.ToConnect(late)); errs.Public(err) != "the host did not answer" {
		t.Errorf("a deadline of the guest's own came back as %v", err)
	}
	if err := wire.Err(errors.New("connection reset")); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a broken connection came back as %v", err)
	}
	cut := connect.NewError(connect.CodeInvalidArgument, io.ErrUnexpectedEOF) // a stream cut inside a message
	if err := wire.Err(cut); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a cut stream came back as %v: nobody would try again", err)
	}
	if wire.Err(nil) != nil || wire.ToConnect(nil) != nil {
		t.Error("nil is nil")
	}
}

const goodBoot = `{"sandbox":"sbx_a","hostname":"h","channel":"unix:/x","user":"user","uid":1000,"gid":1000,"home":"/home/user","workdir":"/workspace","root":false,"processes_max":512,"memory_bytes":0,"output_bytes_max":0}`

func TestReadBoot_table(t *testing.T) {
	got, err := wire.ReadBoot(strings.NewReader(goodBoot))
	if err != nil {
		t.Fatal(err)
	}
	want := wire.Boot{Sandbox: "sbx_a", Hostname: "h", Channel: "unix:/x", User: "user", UID: 1000, GID: 1000, Home: "/home/user", Workdir: "/workspace", ProcessesMax: 512}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for name, in := range map[string]string{
		"empty":         "",
		"not an object": "[]",
		"unknown key":   strings.Replace(goodBoot, `"root"`, `"r00t"`, 1),
		"two objects":   goodBoot + goodBoot,
		"no channel":    strings.Replace(goodBoot, "unix:/x", "", 1),
		"wrong type":    strings.Replace(goodBoot, "1000", `"1000"`, 1),
		"too large":     goodBoot + strings.Repeat(" ", 2<<20),
		"truncated":     goodBoot[:40],
	} {
		if b, err := wire.ReadBoot(strings.NewReader(in)); err == nil {
			t.Errorf("%s: accepted as %+v", name, b)
		}
	}
}

func FuzzReadBoot(f *testing.F) {
	f.Add([]byte(goodBoot))
	f.Fuzz(func(t *testing.T, in []byte) {
		if b, err := wire.ReadBoot(bytes.NewReader(in)); err == nil && b.Channel == "" {
			t.Fatal("accepted without a channel")
		}
	})
}
