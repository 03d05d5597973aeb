package doctor

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
)

// healthy is a host on which all that can be told apart here works.
func healthy(t *testing.T) Host {
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	return Host{
		Home: home, Answers: true,
		Guest:    func() (string, error) { return os.Executable() },
		Language: func(context.Context, string) error { return nil },
		Probe:    func(context.Context) (string, []string, error) { return "user-kernel", nil, nil },
		Volume:   func(context.Context) (string, bool, error) { return "image", true, nil },
	}
}

func find(t *testing.T, checks []Check, name string) Check {
	t.Helper()
	i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no check %q", name)
	}
	return checks[i]
}

func TestRun_saysWhatIsWrong(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	unsupported := errs.New(errs.Unsupported, "no ptrace").WithHint("allow it")
	tests := []struct {
		name   string
		spoil  func(*Host)
		check  string
		status Status
		text   string
	}{
		{"nothing", func(*Host) {}, "gvisor", OK, "user-kernel"},
		{"no microVM yet", func(*Host) {}, "microvm", Warn, "--require microvm"},
		{"gVisor does not boot", func(h *Host) {
			h.Probe = func(context.Context) (string, []string, error) { return "", nil, unsupported }
		}, "gvisor", Error, "no ptrace"},
		{"limits are weaker", func(h *Host) {
			h.Probe = func(context.Context) (string, []string, error) { return "user-kernel", []string{"no limits"}, nil }
		}, "gvisor", Warn, "no limits"},
		{"no guest", func(h *Host) { h.Guest = func() (string, error) { return "", unsupported } }, "guest", Error, "no ptrace"},
		{"no language", func(h *Host) {
			h.Language = func(_ context.Context, l string) error {
				return errs.New(errs.Unsupported, "no %s", l).WithHint("get it")
			}
		}, "language ruby", Warn, "no ruby"},
		{"no quota", func(h *Host) {
			h.Volume = func(context.Context) (string, bool, error) { return "watched", false, nil }
		}, "disk quota", Warn, "watched"},
		{"volume fails", func(h *Host) {
			h.Volume = func(context.Context) (string, bool, error) { return "", false, errors.New("broken disk") }
		}, "disk quota", Error, "broken disk"},
		{"port taken", func(h *Host) { h.Answers, h.Listen = false, busy.Addr().String() }, "server", Error, busy.Addr().String()},
		{"open data directory", func(h *Host) { _ = os.Chmod(h.Home, 0o777) }, "data directory", Error, "others may write"},
		{"no data directory yet", func(h *Host) { h.Home += "/not/yet" }, "data directory", OK, "will be made"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := healthy(t)
			tt.spoil(&h)
			checks := Run(t.Context(), h)
			c := find(t, checks, tt.check)
			if c.Status != tt.status || !strings.Contains(c.Detail, tt.text) {
				t.Errorf("%+v", c)
			}
			if c.Status == Error && Worst(checks) != Error {
				t.Errorf("the worst is %s", Worst(checks))
			}
		})
	}
}

func TestFix_mendsOnlyWhatItMay(t *testing.T) {
	h := healthy(t)
	if err := os.Chmod(h.Home, 0o777); err != nil {
		t.Fatal(err)
	}
	checks := Run(t.Context(), h)
	for i := range checks {
		checks[i].packages = nil // nothing is installed by a test
	}
	var out bytes.Buffer
	if err := Fix(t.Context(), checks, &out); err != nil {
		t.Fatal(err)
	}
	if c := find(t, Run(t.Context(), h), "data directory"); c.Status != OK {
		t.Errorf("%+v", c)
	}
	if got := out.String(); got != "doctor: fixing data directory\n" {
		t.Errorf("it did %q", got)
	}
}
