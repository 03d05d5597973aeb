package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/binary"
)

// Bounds of the program that `make build` makes.
const (
	programBytesMax = 75 << 20
	initBytesMax    = 4 << 20   // at which Go collects its first garbage, before main
	ownInitBytesMax = 256 << 10 // of one package of ours: a regular expression is 10 to 400 KB
)

var initLine = regexp.MustCompile(`(?m)^init (\S+) .* (\d+) bytes, \d+ allocs$`)

var smallFlags = regexp.MustCompile(`(?m)^SMALL\s*:= (.*)$`)

// A client command pays for what all packages of the program set up before it.
func TestWeight(t *testing.T) {
	if testing.Short() {
		t.Skip("links the program")
	}
	if _, err := binary.Install(t.TempDir()); errs.Is(err, errs.Unsupported) {
		t.Skip("no `make build` has put the guest and gVisor into the tree")
	}
	packed := filepath.Join(t.TempDir(), "skete")
	makefile, err := os.ReadFile("../../Makefile")
	small := smallFlags.FindSubmatch(makefile)
	if err != nil || small == nil {
		t.Fatalf("the Makefile has no SMALL: %v", err)
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-tags", "packed", "-ldflags", "-s -w", "-o", packed}, strings.Fields(string(small[1]))...)
	build := exec.Command("go", append(args, ".")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(packed)
	if err != nil || info.Size() > programBytesMax {
		t.Errorf("%d bytes, %v; at most %d", info.Size(), err, programBytesMax)
	}
	version := exec.Command(packed, "version")
	version.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := version.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, trace)
	}
	lines, sum := initLine.FindAllStringSubmatch(string(trace), -1), 0
	for _, l := range lines {
		n, _ := strconv.Atoi(l[2])
		sum += n
		if strings.HasPrefix(l[1], "github.com/skete-dev/") && n > ownInitBytesMax {
			t.Errorf("%s sets up %d bytes in every process", l[1], n)
		}
	}
	if len(lines) < 20 || sum == 0 || sum > initBytesMax {
		t.Errorf("%d packages set up %d bytes; at most %d", len(lines), sum, initBytesMax)
	}
	t.Logf("%d bytes; %d packages set up %d bytes", info.Size(), len(lines), sum)

	// It is gVisor in no way, and says so.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, err := exec.CommandContext(ctx, packed, "__runsc", "--version").CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), "a program of its own") {
		t.Errorf("%v %s", err, out)
	}
}
