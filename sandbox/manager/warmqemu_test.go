package manager_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/qemu"
)

// Two who ask at once get a warm virtual machine each: their own by name,
// environment, clock and files. Both are replaced, and nothing is left.
func TestLiveWarm_ofVirtualMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines: not in a short run")
	}
	p := newPlant(t, qemu.Name)
	m, shut, err := p.open(t.Context(), 2)
	must(t, err)
	defer shut()
	s := &warmServer{Manager: m}
	begun := time.Now()
	must(t, s.full(t.Context(), 2))
	t.Logf("two are warm after %s", time.Since(begun).Round(time.Millisecond))

	ids := map[sandbox.ID]bool{}
	p.named(ids)
	var infos [2]sandbox.Info
	var wg sync.WaitGroup
	for n, who := range []string{"first", "second"} {
		wg.Go(func() {
			var err error
			begun := time.Now()
			if infos[n], err = m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Env: map[string]string{"WHO": who}}}); err != nil {
				t.Error(err)
			}
			t.Logf("the %s has its machine after %s", who, time.Since(begun).Round(time.Millisecond))
		})
	}
	wg.Wait()
	if claims, misses := s.claims(); claims != 2 || misses != 0 {
		t.Errorf("%d claims and %d misses", claims, misses)
	}
	boots := map[string]bool{}
	for n, who := range []string{"first", "second"} {
		id := infos[n].ID
		name := strings.ReplaceAll(string(id), "_", "-")
		want := who + "\n" + name + "\n" + name
		if got := s.shell(t, id, `echo "$WHO"; hostname; cat /etc/hostname; ls -A /workspace /tmp | grep -v :; true`); strings.TrimSpace(got) != want {
			t.Errorf("the %s sees %q, want %q", who, got, want)
		}
		boots[bootID(t, m, id)] = true
		at := s.shell(t, id, "date +%s")
		if off := time.Now().Unix() - parseSeconds(t, at); off < -2 || off > 2 {
			t.Errorf("the clock of the %s is off by %d s", who, off)
		}
	}
	if len(boots) != 2 {
		t.Error("both have one boot id")
	}
	begun = time.Now()
	must(t, s.full(t.Context(), 2))
	t.Logf("two more are warm after %s", time.Since(begun).Round(time.Millisecond))
	p.named(ids)
	shut()
	p.sweep(t)
	p.nothing(t, ids)
}
