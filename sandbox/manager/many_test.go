package manager_test

import (
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/sandbox/qemu"
)

// forksAtOnce is as many forks as a test of this host's machines asks for.
var forksAtOnce = map[string]int{gvisor.Name: sandbox.ForkMax, qemu.Name: 10}

// running counts the tenant's machines that are up.
func (r *real) running() (n int) {
	page, err := r.List(r.t.Context(), "t", sandbox.Filter{PageSize: 2 * sandbox.ForkMax})
	if err != nil {
		return 0
	}
	for _, i := range page.Items {
		if i.State == sandbox.Running {
			n++
		}
	}
	return n
}

// As many forks as one request may ask for, all at once: each goes on from
// where the one was, is alive, and is no other. How long all of them take is
// the machine's affair; that none comes up for so long as one may take is not.
func TestFork_manyRealOnesAtOnce(t *testing.T) { onReal(t, testForkMany) }

func testForkMany(t *testing.T, r *real) {
	n := forksAtOnce[r.name]
	// The less memory a machine has, the more often its guest must look at it: with
	// 64 MB an idle one with a command costs 3.5 % of a processor, with 256 MB 0.8 %,
	// and a hundred of the small ones keep two busy. That is not what is tested here.
	spec := sandbox.Spec{MemoryMB: 256, DiskMB: 64}
	if r.name == qemu.Name {
		spec.MemoryMB = 192 // all of which its kernel may come to use
	}
	orig := r.serving(spec, "never=mono:24h")
	var before told
	r.ask(orig.ID, &before)
	ctx, cancel := patience.Steps(t.Context(), realBoot, r.running)
	defer cancel()
	begun := time.Now()
	forks, err := r.Fork(ctx, "t", orig.ID, sandbox.ForkRequest{Count: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d forks in %s", len(forks), time.Since(begun))
	seen := map[string]bool{}
	for _, i := range append(forks, orig) {
		if len(i.Notes) != len(orig.Notes) {
			t.Errorf("notes of %s: %q", i.ID, i.Notes)
		}
		var now told
		r.ask(i.ID, &now)
		if now.Token != before.Token || now.Asked != before.Asked+1 {
			t.Errorf("%s does not go on: %+v, before %+v", i.ID, now, before)
		}
		for _, unique := range []string{now.Random, now.Hostname} {
			if seen[unique] {
				t.Errorf("%s shares %q with another", i.ID, unique)
			}
			seen[unique] = true
		}
	}
	if len(forks) != n {
		t.Errorf("%d forks, want %d", len(forks), n)
	}
}
