package manager_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/template"
)

// warmServerEnv holds a host, as JSON, for this binary started again as a
// server that is killed.
const warmServerEnv = "SKETE_MANAGER_TEST_WARM_SERVER"

// warmBoot is how long filling a pool of real machines may take, by the reference's time.
const warmBoot = 2 * time.Minute

// host is what servers on real parts with a pool of gVisor's machines share.
type host struct {
	Dir, Guest, Exe, Runsc string
	Rootfs                 template.Rootfs
}

func newHost(t *testing.T) *host {
	t.Helper()
	if testing.Short() {
		t.Skip("boots real machines")
	}
	h := &host{
		Dir: t.TempDir(), Guest: guesttest.Binary(t), Rootfs: sandboxtest.Rootfs(t),
		Exe:   sandboxtest.Build(t, "github.com/skete-dev/skete/sandbox/gvisor/internal/runsctest"),
		Runsc: sandboxtest.Build(t, "github.com/skete-dev/skete/cmd/skete-runsc"),
	}
	p, err := h.provider()
	if err != nil {
		t.Skip(err)
	}
	defer p.Close()
	if err := p.Probe(t.Context()); err != nil {
		t.Skipf("gVisor does not boot here: %v", err)
	}
	t.Cleanup(func() { // of a test that failed in the middle
		p, err := h.provider()
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		ids, _ := p.List(context.Background())
		for _, id := range ids {
			t.Errorf("the machine %s is left", id)
			if err := p.Destroy(context.Background(), id); err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

func (h *host) provider() (*gvisor.Provider, error) {
	return gvisor.New(gvisor.Config{Dir: filepath.Join(h.Dir, "gvisor"), Exe: h.Exe, Runsc: h.Runsc})
}

// warmServer is a manager on real parts: the embedded store and gVisor.
type warmServer struct {
	*manager.Manager
	store    *store.Store
	provider *gvisor.Provider
}

// serve opens a server that keeps n machines warm.
func (h *host) serve(ctx context.Context, n int) (*warmServer, error) {
	s, err := store.Open(ctx, store.Config{Dir: filepath.Join(h.Dir, "store")})
	if err != nil {
		return nil, err
	}
	registry, err1 := s.KV(ctx, "sandboxes")
	leases, err2 := s.Leases(ctx)
	p, err3 := h.provider()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	c := manager.Config{
		Dir: filepath.Join(h.Dir, "sandboxes"), Node: "one", Providers: []sandbox.Provider{p}, Registry: registry, Leases: leases,
		Templates: oneTemplate{rootfs: h.Rootfs}, Volumes: dirVolumes(filepath.Join(h.Dir, "volumes")), Guest: h.Guest,
	}
	if n > 0 {
		c.Warm = pool.Config{Sizes: []pool.Size{{Size: n}}, AtOnce: 2}
	}
	m, err := openSettled(ctx, c)
	if err != nil {
		return nil, errors.Join(err, p.Close(), s.Close())
	}
	return &warmServer{m, s, p}, nil
}

func (s *warmServer) Close() error {
	return errors.Join(s.Manager.Close(), s.provider.Close(), s.store.Close())
}

// full returns when n machines are warm and none is being made or ended.
func (s *warmServer) full(ctx context.Context, n int) error {
	ctx, cancel := patience.Context(ctx, warmBoot)
	defer cancel()
	for {
		warm, busy := 0, 0
		for _, k := range s.Pool().Kinds {
			warm, busy = warm+k.Warm, busy+k.Making+k.Ending
		}
		if warm == n && busy == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d are warm, %d are busy: %w", warm, busy, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *warmServer) claims() (claims, misses uint64) {
	for _, k := range s.Pool().Kinds {
		claims, misses = claims+k.Claims, misses+k.Misses
	}
	return claims, misses
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *host) open(t *testing.T, n int) *warmServer {
	t.Helper()
	s, err := h.serve(t.Context(), n)
	must(t, err)
	return s
}

// machines lists what the host runs, but for what a server boots when it starts
// to see whether that works.
func (s *warmServer) machines(t *testing.T) map[sandbox.ID]bool {
	t.Helper()
	s.Probes(t.Context())
	ids, err := s.provider.List(t.Context())
	must(t, err)
	all := map[sandbox.ID]bool{}
	for _, id := range ids {
		all[id] = true
	}
	return all
}

func (s *warmServer) guest(t *testing.T, id sandbox.ID) sandboxtest.Guest {
	t.Helper()
	c, release, err := s.Guest(t.Context(), "t", id)
	must(t, err)
	t.Cleanup(release)
	return sandboxtest.Guest{Client: c}
}

func (s *warmServer) shell(t *testing.T, id sandbox.ID, line string) string {
	t.Helper()
	res, err := s.guest(t, id).Exec(t.Context(), sandboxtest.Start("sh", "-c", line))
	if err != nil || res.Code != 0 {
		t.Fatalf("%q: %v, %+v", line, err, res)
	}
	return strings.TrimSpace(res.Stdout)
}

// called is the machine after which a sandbox's host is named: gVisor renames
// one only for a process with CAP_SYS_ADMIN, and none inside has it. It is at
// least no other sandbox's.
func (s *warmServer) called(t *testing.T, id sandbox.ID) sandbox.ID {
	t.Helper()
	return sandbox.ID(strings.ReplaceAll(s.shell(t, id, "uname -n"), "-", "_"))
}

// nothing fails the test if the host still has anything of these machines, or
// of any other.
func (h *host) nothing(t *testing.T, ids map[sandbox.ID]bool) {
	t.Helper()
	for _, name := range []string{"gvisor", "sandboxes", "volumes"} {
		left, err := filepath.Glob(filepath.Join(h.Dir, name, "sbx_*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	}
	sandboxtest.Leaks(t, filepath.Join(h.Dir, "gvisor"), slices.Collect(maps.Keys(ids))...)
}

// look prints what a sandbox sees of itself, and all that may be left
// in it from before.
const look = `printf '%s,' "$WHO" "$ONE"; pwd; ls /workspace /tmp /home/user; ps -e -o comm= 2>/dev/null | grep -c sleep; true`

func TestLiveWarm_aSandboxIsItsOwnAndLeavesNoTrace(t *testing.T) {
	h := newHost(t)
	s := h.open(t, 3)
	closed := false
	defer func() {
		if !closed {
			_ = s.Close()
		}
	}()
	must(t, s.full(t.Context(), 3))
	seen := s.machines(t)
	var boots []string
	for n, who := range []string{"first", "second"} {
		warm := s.machines(t)
		env := map[string]string{"WHO": who}
		if n == 0 {
			env["ONE"] = "only here"
		}
		info, err := s.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Env: env, Workdir: "/tmp"}})
		must(t, err)
		if claims, misses := s.claims(); claims != uint64(n+1) || misses != 0 {
			t.Errorf("%d claims and %d misses: it was booted cold", claims, misses)
		}
		if s.machines(t)[info.ID] {
			t.Error("it has a machine of its own name: it was booted cold")
		}
		g := s.guest(t, info.ID)
		hello, err := g.Hello(t.Context())
		must(t, err)
		boots = append(boots, hello.BootId)
		ps, err := g.Process.List(t.Context(), connect.NewRequest(&wire.ListProcessesRequest{}))
		must(t, err)
		if len(ps.Msg.Processes) > 0 {
			t.Errorf("commands of before: %v", ps.Msg.Processes)
		}
		want := fmt.Sprintf("%s,%s,/tmp\n/home/user:\n\n/tmp:\n\n/workspace:\n0", who, env["ONE"])
		if got := s.shell(t, info.ID, look); got != want {
			t.Errorf("the %s sees\n%s\nwant\n%s", who, got, want)
		}
		if name := s.called(t, info.ID); !warm[name] {
			t.Errorf("it is called %s", name)
		}
		start := sandboxtest.Start("sh", "-c", "echo secret > /workspace/a; echo secret > /tmp/b; echo secret > ~/c; sleep 1000")
		start.Key = "job"
		_, err = g.Process.Start(t.Context(), connect.NewRequest(start))
		must(t, err)
		must(t, s.full(t.Context(), 3))
		maps.Copy(seen, s.machines(t))
		must(t, s.Destroy(t.Context(), "t", info.ID))
		for id := range s.machines(t) {
			delete(warm, id)
		}
		if len(warm) != 1 {
			t.Errorf("gone after the destroy: %v", warm)
		}
	}
	if boots[0] == boots[1] {
		t.Error("two sandboxes have one boot id")
	}
	must(t, s.Close())
	closed = true
	h.nothing(t, seen)
}

// warmUntilKilled is the child: it fills its pool, gives one away, says so, and
// goes on to refill.
func warmUntilKilled(text string) int {
	var h host
	err := json.Unmarshal([]byte(text), &h)
	var s *warmServer
	if err == nil {
		s, err = h.serve(context.Background(), 3)
	}
	if err == nil {
		err = s.full(context.Background(), 3)
	}
	var info sandbox.Info
	if err == nil {
		info, err = s.Create(context.Background(), "t", sandbox.CreateRequest{})
	}
	if err == nil {
		if claims, _ := s.claims(); claims != 1 {
			err = errors.New("it was booted cold")
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(info.ID)
	select {}
}

// runWarmAndKill runs a server until it has given one machine away, and for a
// while longer.
func (h *host) runWarmAndKill(t *testing.T, longer time.Duration) sandbox.ID {
	t.Helper()
	text, err := json.Marshal(h)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), warmServerEnv+"="+string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		<-time.After(longer)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatalf("the server ended by itself: %v\n%s", err, stderr.String())
	}
	return sandbox.ID(strings.TrimSpace(line))
}

func TestLiveWarm_afterAKillTheNextServerHasOrEndsWhatWasWarm(t *testing.T) {
	h := newHost(t)
	// At once, and while the pool makes another.
	for _, longer := range []time.Duration{0, 450 * time.Millisecond} {
		id := h.runWarmAndKill(t, longer)
		p, err := h.provider()
		must(t, err)
		ids, err := p.List(t.Context())
		must(t, errors.Join(err, p.Close()))
		before := map[sandbox.ID]bool{}
		for _, id := range ids {
			before[id] = true
		}

		s := h.open(t, 3)
		if err := s.full(t.Context(), 3); err != nil {
			t.Error(err)
		}
		after := s.machines(t)
		kept := 0
		for id := range after {
			if before[id] {
				kept++
			}
		}
		if len(after) != 4 || kept < 3 { // the sandbox's, and two that were warm
			t.Errorf("of %d machines %d are left, and %d new", len(before), kept, len(after)-kept)
		}
		if got := s.shell(t, id, "echo goes on"); got != "goes on" {
			t.Errorf("the sandbox says %q", got)
		}
		info, err := s.Create(t.Context(), "t", sandbox.CreateRequest{})
		must(t, err)
		if claims, misses := s.claims(); claims != 1 || misses != 0 {
			t.Errorf("%d claims, %d misses", claims, misses)
		}
		if name := s.called(t, info.ID); !after[name] {
			t.Errorf("it is called %s", name)
		}
		must(t, s.Close())

		// One that keeps none warm has only the sandboxes.
		s = h.open(t, 0)
		if left := s.machines(t); len(left) != 2 {
			t.Errorf("beside two sandboxes: %v", left)
		}
		maps.Copy(after, before)
		for _, id := range []sandbox.ID{id, info.ID} {
			must(t, s.Destroy(t.Context(), "t", id))
		}
		must(t, s.Close())
		h.nothing(t, after)
	}
}

// One that is killed with warm machines, and a next one that wants none.
func TestLiveWarm_afterAKillWithoutAPoolNothingIsLeft(t *testing.T) {
	h := newHost(t)
	id := h.runWarmAndKill(t, 0)
	s := h.open(t, 0)
	seen := s.machines(t)
	if len(seen) != 1 {
		t.Errorf("beside the sandbox: %v", seen)
	}
	must(t, s.Destroy(t.Context(), "t", id))
	must(t, s.Close())
	h.nothing(t, seen)
}
