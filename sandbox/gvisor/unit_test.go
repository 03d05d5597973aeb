package gvisor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

func TestNewRefuses(t *testing.T) {
	_, err := New(Config{Dir: t.TempDir(), Exe: "/bin/sh"})
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(errs.Hint(err), "CGO_ENABLED=0") {
		t.Errorf("a dynamic program: %v (%s)", err, errs.Hint(err))
	}
	_, err = New(Config{Dir: t.TempDir(), Exe: "/etc/passwd"})
	if !errs.Is(err, errs.Unsupported) {
		t.Errorf("no program at all: %v", err)
	}
	_, err = New(Config{Dir: "/tmp/a,size=1", Exe: "/bin/sh"})
	if !errs.Is(err, errs.Invalid) {
		t.Errorf("a path that the flags cannot take: %v", err)
	}
}

func TestMountsBelow(t *testing.T) {
	const table = "1 0 0:1 / / rw - ext4 d rw\n2 1 0:2 / /a/b rw - tmpfs t rw\n3 2 0:3 / /a/b/c\\040d rw - tmpfs t rw\n4 1 0:4 / /a/bc rw - tmpfs t rw\nshort\n"
	if diff := cmp.Diff([]string{"/a/b", "/a/b/c\\040d"}, mountsBelow(table, "/a/b")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/a/b/c\\040d"}, mountsBelow(table, "/a/b/c d")); diff != "" {
		t.Error(diff)
	}
}
