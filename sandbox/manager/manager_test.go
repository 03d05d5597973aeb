package manager_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/quota"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverDirEnv); dir != "" {
		os.Exit(serveUntilKilled(dir))
	}
	if text := os.Getenv(warmServerEnv); text != "" {
		os.Exit(warmUntilKilled(text))
	}
	if text := os.Getenv(cyclingServerEnv); text != "" {
		os.Exit(cycleUntilKilled(text))
	}
	goleak.VerifyTestMain(m)
}

func create(t *testing.T, m *manager.Manager, tenant string, s sandbox.Spec) sandbox.Info {
	t.Helper()
	info, err := m.Create(t.Context(), tenant, sandbox.CreateRequest{Spec: s})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	patience.Until(t, 20*time.Second, what, ok)
}

func TestCreate_fillsInAndReports(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	got := create(t, m, "t", sandbox.Spec{Name: "mine", Env: map[string]string{"A": "1"}})
	want := sandbox.Info{
		ID: got.ID, Tenant: "t", State: sandbox.Running, Provider: "fake-user-kernel", Isolation: sandbox.UserKernel,
		Spec: sandbox.Spec{
			Name: "mine", Template: "host", Provider: "auto", CPUs: 1, MemoryMB: 512, DiskMB: 2048, PidsMax: 512,
			Env: map[string]string{"A": "1"}, Workdir: "/workspace", Network: "none", IdleTimeout: 30 * time.Minute,
		},
		CreatedAt: got.CreatedAt, StartedAt: got.StartedAt, LastUsedAt: got.LastUsedAt, BootMS: got.BootMS, RootfsHash: "hash-of-host",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got.BootMS <= 0 || got.CreatedAt.IsZero() || got.StartedAt.Before(got.CreatedAt) {
		t.Errorf("boot %v ms, created %v, started %v", got.BootMS, got.CreatedAt, got.StartedAt)
	}
	w.check(t, m, "t")
}

func TestLife_everyChange(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{}).ID
	ctx := t.Context()
	step := func(what string, f func(context.Context, string, sandbox.ID) (sandbox.Info, error), want sandbox.State) {
		t.Helper()
		for range 2 { // each is no error when it is so already
			if i, err := f(ctx, "t", id); err != nil || i.State != want {
				t.Fatalf("%s: %s, %v; want %s", what, i.State, err, want)
			}
		}
		w.check(t, m, "t")
	}
	step("pause", m.Pause, sandbox.Paused)
	step("resume", m.Resume, sandbox.Running)
	step("start of a running one", m.Start, sandbox.Running)
	step("stop", m.Stop, sandbox.Stopped)
	_, err := m.Pause(ctx, "t", id)
	wantClass(t, "pause of a stopped one", err, errs.Conflict)
	step("start", m.Start, sandbox.Running)
	step("pause", m.Pause, sandbox.Paused)
	_, err = m.Start(ctx, "t", id)
	wantClass(t, "start of a paused one", err, errs.Conflict)
	step("stop of a paused one", m.Stop, sandbox.Stopped)
	for range 2 {
		if err := m.Destroy(ctx, "t", id); err != nil {
			t.Fatal(err)
		}
	}
	i, err := m.Get(ctx, "t", id)
	if err != nil || i.State != sandbox.Destroyed || i.Reason != sandbox.ReasonDestroyed || i.EndedAt.IsZero() {
		t.Errorf("after destroy: %+v, %v", i, err)
	}
	for what, f := range map[string]func(context.Context, string, sandbox.ID) (sandbox.Info, error){
		"start": m.Start, "stop": m.Stop, "pause": m.Pause, "resume": m.Resume,
	} {
		_, err := f(ctx, "t", id)
		wantClass(t, what+" after destroy", err, errs.NotFound)
	}
	w.check(t, m, "t")
}

func TestTenants_seeOnlyTheirOwn(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	ctx := t.Context()
	id := create(t, m, "t", sandbox.Spec{}).ID
	calls := map[string]func() error{
		"get":       func() error { _, err := m.Get(ctx, "eve", id); return err },
		"update":    func() error { _, err := m.Update(ctx, "eve", id, sandbox.UpdateRequest{}); return err },
		"start":     func() error { _, err := m.Start(ctx, "eve", id); return err },
		"stop":      func() error { _, err := m.Stop(ctx, "eve", id); return err },
		"pause":     func() error { _, err := m.Pause(ctx, "eve", id); return err },
		"resume":    func() error { _, err := m.Resume(ctx, "eve", id); return err },
		"destroy":   func() error { return m.Destroy(ctx, "eve", id) },
		"guest":     func() error { _, _, err := m.Guest(ctx, "eve", id); return err },
		"dial":      func() error { _, err := m.Dial(ctx, "eve", id, 80); return err },
		"no tenant": func() error { _, err := m.Get(ctx, "", id); return err },
	}
	for what, call := range calls {
		wantClass(t, what, call(), errs.NotFound)
	}
	if page, err := m.List(ctx, "eve", sandbox.Filter{}); err != nil || len(page.Items) != 0 {
		t.Errorf("eve lists %v, %v", page.Items, err)
	}
	for _, tenant := range []string{"", "a/b", "a\nb", strings.Repeat("t", 65), "\xff"} {
		_, err := m.Create(ctx, tenant, sandbox.CreateRequest{})
		wantClass(t, fmt.Sprintf("tenant %.10q", tenant), err, errs.Invalid)
	}
	if got := w.ids(); !slices.Equal(got, []sandbox.ID{id}) {
		t.Errorf("machines %v", got)
	}
}

func TestCreate_sameKeySameSandbox(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	var wg sync.WaitGroup
	ids := make([]sandbox.ID, 20)
	for i := range ids {
		wg.Go(func() {
			info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k"})
			if err != nil || info.State != sandbox.Running {
				t.Errorf("%s, %v", info.State, err)
			}
			ids[i] = info.ID
		})
	}
	wg.Wait()
	if slices.Sort(ids); ids[0] != ids[len(ids)-1] {
		t.Errorf("one key gave %v", slices.Compact(ids))
	}
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k", Spec: sandbox.Spec{MemoryMB: 100}})
	wantClass(t, "same key, another spec", err, errs.Conflict)
	other, err := m.Create(t.Context(), "u", sandbox.CreateRequest{Key: "k"})
	if err != nil || other.ID == ids[0] {
		t.Errorf("same key of another tenant: %s, %v", other.ID, err)
	}
	_ = m.Close()
	m = w.open(t, w.config(nil))
	again, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k"})
	if err != nil || again.ID != ids[0] {
		t.Errorf("same key after a restart: %s, %v; want %s", again.ID, err, ids[0])
	}
	if w.creates != 2 {
		t.Errorf("%d machines were made", w.creates)
	}
	for _, key := range []string{strings.Repeat("k", 256), "a\nb", "\xff"} {
		_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: key})
		wantClass(t, fmt.Sprintf("key %.10q", key), err, errs.Invalid)
	}
}

func TestCreate_failureLeavesNothing(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	w.setBoot(func(context.Context, sandbox.ID) error { return errs.New(errs.Unavailable, "no luck") })
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k"})
	wantClass(t, "failing boot", err, errs.Unavailable)
	w.check(t, m, "t")
	w.setBoot(nil)
	if _, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k"}); err != nil {
		t.Errorf("the same key after a failure: %v", err)
	}
	w.check(t, m, "t")
}

func TestCreate_retriesACleanupThatFails(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	w.setBoot(func(context.Context, sandbox.ID) error { return errors.New("no luck") })
	w.setDestroy(func(sandbox.ID) error { return errors.New("stuck") })
	if _, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k"}); err == nil {
		t.Fatal("no error")
	}
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k"})
	wantClass(t, "the same key while the leftovers are there", err, errs.Conflict)
	w.setDestroy(nil)
	eventually(t, "the leftovers are removed", func() bool {
		page, _ := m.List(t.Context(), "t", sandbox.Filter{})
		return len(page.Items) == 0
	})
	w.check(t, m, "t")
}

// held makes boots wait until they are let go.
func (w *world) held() (reached chan sandbox.ID, letGo chan struct{}) {
	reached, letGo = make(chan sandbox.ID, 100), make(chan struct{})
	w.setBoot(func(ctx context.Context, id sandbox.ID) error {
		reached <- id
		select {
		case <-letGo:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return reached, letGo
}

func TestCreate_cancelledLeavesNothing(t *testing.T) {
	w := newWorld(t)
	reached, _ := w.held()
	m := w.open(t, w.config(nil))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	_, err := m.Create(ctx, "t", sandbox.CreateRequest{Key: "k"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled create: %v", err)
	}
	w.check(t, m, "t")
	if n := len(w.ids()); n != 0 {
		t.Errorf("%d machines are left", n)
	}
}

func TestCreate_livesOnForTheOtherCaller(t *testing.T) {
	w := newWorld(t)
	reached, letGo := w.held()
	m := w.open(t, w.config(nil))
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { _, err := m.Create(ctx, "t", sandbox.CreateRequest{Key: "k"}); first <- err }()
	<-reached
	second := make(chan error)
	started := make(chan struct{})
	go func() {
		close(started)
		_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Key: "k"})
		second <- err
	}()
	<-started
	eventually(t, "the second caller waits too", func() bool { return manager.Waiters(m, "t") == 2 })
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("first caller: %v", err)
	}
	close(letGo)
	if err := <-second; err != nil {
		t.Errorf("second caller: %v", err)
	}
	w.check(t, m, "t")
}

func TestDestroy_winsOverACreateUnderWay(t *testing.T) {
	w := newWorld(t)
	reached, _ := w.held()
	m := w.open(t, w.config(nil))
	made := make(chan error)
	go func() { _, err := m.Create(t.Context(), "t", sandbox.CreateRequest{}); made <- err }()
	id := <-reached
	if err := m.Destroy(t.Context(), "t", id); err != nil {
		t.Errorf("destroy: %v", err)
	}
	wantClass(t, "the create", <-made, errs.Conflict)
	w.check(t, m, "t")
}

func TestClose_undoesACreateUnderWay(t *testing.T) {
	w := newWorld(t)
	reached, _ := w.held()
	m := w.open(t, w.config(nil))
	running := make(chan error)
	go func() { _, err := m.Create(t.Context(), "t", sandbox.CreateRequest{}); running <- err }()
	<-reached
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	wantClass(t, "the create", <-running, errs.Unavailable)
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	wantClass(t, "create after close", err, errs.Unavailable)
	w.setBoot(nil)
	m = w.open(t, w.config(nil))
	w.check(t, m, "t")
}

func TestStart_coalesces(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{}).ID
	if _, err := m.Stop(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if i, err := m.Start(t.Context(), "t", id); err != nil || i.State != sandbox.Running {
				t.Errorf("%s, %v", i.State, err)
			}
		})
	}
	wg.Wait()
	if w.creates != 2 {
		t.Errorf("%d machines were made, want one for the create and one for all starts", w.creates)
	}
	w.check(t, m, "t")
}

func TestStart_failureKeepsTheWorkspace(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{}).ID
	if _, err := m.Stop(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	w.setBoot(func(context.Context, sandbox.ID) error { return errs.New(errs.Unavailable, "no luck") })
	_, err := m.Start(t.Context(), "t", id)
	wantClass(t, "failing start", err, errs.Unavailable)
	if i, _ := m.Get(t.Context(), "t", id); i.State != sandbox.Failed || i.Reason != "start: no luck" {
		t.Errorf("after a failing start: %s (%s)", i.State, i.Reason)
	}
	w.check(t, m, "t")
	w.setBoot(nil)
	if i, err := m.Start(t.Context(), "t", id); err != nil || i.State != sandbox.Running || i.Reason != "" {
		t.Errorf("next start: %s (%s), %v", i.State, i.Reason, err)
	}
	w.check(t, m, "t")
}

func TestMachine_deathIsNoted(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	for persist, want := range map[bool]sandbox.State{false: sandbox.Failed, true: sandbox.Stopped} {
		id := create(t, m, "t", sandbox.Spec{Persist: persist}).ID
		w.machine(id).end(sandbox.ReasonOutOfMemory)
		eventually(t, "the death is noted", func() bool {
			i, _ := m.Get(t.Context(), "t", id)
			return i.State == want && i.Reason == sandbox.ReasonOutOfMemory
		})
		_, _, err := m.Guest(t.Context(), "t", id)
		wantClass(t, "guest of a dead one", err, errs.Conflict)
		if errs.Hint(err) == "" {
			t.Error("no hint how to start it")
		}
	}
	w.check(t, m, "t")
}

func TestQuota(t *testing.T) {
	w := newWorld(t)
	c := w.config(nil)
	c.Limits = sandbox.Limits{Sandboxes: 5, TenantMemoryMB: 2000, CPUsMax: 8, MemoryMBMax: 2000, TenantCPUs: 4}
	m := w.open(t, c)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := []sandbox.ID{}
	for range 30 {
		wg.Go(func() {
			i, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{MemoryMB: 100, CPUs: 0.1}})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, i.ID)
			} else if !errs.Is(err, errs.Limit) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 5 {
		t.Errorf("%d of 30 creates won, the quota is 5", len(won))
	}
	create(t, m, "u", sandbox.Spec{}) // another tenant is not concerned
	if err := m.Destroy(t.Context(), "t", won[0]); err != nil {
		t.Fatal(err)
	}
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{MemoryMB: 1700}})
	wantClass(t, "more memory than is left", err, errs.Limit)
	_, err = m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{CPUs: 3.7}})
	wantClass(t, "more cpus than are left", err, errs.Limit)
	big := create(t, m, "t", sandbox.Spec{MemoryMB: 1600, CPUs: 0.1})
	// A stopped one costs no memory, and cannot start while that is taken.
	if _, err := m.Stop(t.Context(), "t", big.ID); err != nil {
		t.Fatal(err)
	}
	_ = m.Destroy(t.Context(), "t", won[1])
	other := create(t, m, "t", sandbox.Spec{MemoryMB: 1500, CPUs: 0.1})
	_, err = m.Start(t.Context(), "t", big.ID)
	wantClass(t, "start without memory left", err, errs.Limit)
	if err := m.Destroy(t.Context(), "t", other.ID); err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
	m = w.open(t, c) // the count survives a restart
	if _, err := m.Start(t.Context(), "t", big.ID); err != nil {
		t.Errorf("start with memory left: %v", err)
	}
	create(t, m, "t", sandbox.Spec{MemoryMB: 100, CPUs: 0.1})
	_, err = m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{MemoryMB: 32, CPUs: 0.1}})
	wantClass(t, "the sixth", err, errs.Limit)
	w.check(t, m, "t", "u")
}

func TestSelector(t *testing.T) {
	w := newWorld(t)
	c := w.config(nil, sandbox.None, sandbox.UserKernel, sandbox.MicroVM)
	m := w.open(t, c)
	w.mu.Lock()
	w.probeErr["fake-microvm"] = errs.New(errs.Unsupported, "no KVM").WithHint("load the kvm module")
	w.mu.Unlock()
	m = reopen(t, w, m, c)
	if i := create(t, m, "t", sandbox.Spec{}); i.Isolation != sandbox.UserKernel || i.Provider != "fake-user-kernel" {
		t.Errorf("auto gave %s (%s)", i.Provider, i.Isolation)
	}
	if i := create(t, m, "t", sandbox.Spec{Require: sandbox.Container}); i.Isolation != sandbox.UserKernel {
		t.Errorf("container or stronger gave %s", i.Isolation)
	}
	if i := create(t, m, "t", sandbox.Spec{Provider: "fake-none"}); i.Isolation != sandbox.None {
		t.Errorf("fake-none gave %s", i.Isolation)
	}
	before := len(w.ids())
	for what, s := range map[string]sandbox.Spec{
		"require microvm":          {Require: sandbox.MicroVM},
		"broken provider by name":  {Provider: "fake-microvm"},
		"named, but not so strong": {Provider: "fake-none", Require: sandbox.UserKernel},
	} {
		_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: s})
		wantClass(t, what, err, errs.Unsupported)
		if s.Provider != "fake-none" && (!strings.Contains(errs.Public(err), "no KVM") || !strings.Contains(errs.Hint(err), "load the kvm module")) {
			t.Errorf("%s: %q, hint %q: the cause is missing", what, errs.Public(err), errs.Hint(err))
		}
		if !strings.Contains(errs.Public(err), "fake-user-kernel (user-kernel)") {
			t.Errorf("%s: %q does not say what there is", what, errs.Public(err))
		}
	}
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Provider: "docker"}})
	wantClass(t, "unknown provider", err, errs.Invalid)
	if got := len(w.ids()); got != before {
		t.Errorf("refused creates made %d machines", got-before)
	}
	names := []string{}
	for _, p := range m.Probes(t.Context()) {
		names = append(names, fmt.Sprint(p.Name, " ", p.Err == nil))
	}
	if d := cmp.Diff([]string{"fake-microvm false", "fake-user-kernel true", "fake-none true"}, names); d != "" {
		t.Error(d)
	}
	if p, err := m.Default(t.Context()); err != nil || p.Name != "fake-user-kernel" {
		t.Errorf("default is %s, %v", p.Name, err)
	}
}

// An emulated processor is ten times slower: it is taken only for a spec that
// asks for it, though its isolation is the strongest that works.
func TestSelector_autoNeverEmulates(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil, sandbox.UserKernel, sandbox.MicroVMEmulated))
	for what, c := range map[string]struct {
		spec sandbox.Spec
		want sandbox.Isolation
	}{
		"auto":                     {sandbox.Spec{}, sandbox.UserKernel},
		"at least a user kernel":   {sandbox.Spec{Require: sandbox.UserKernel}, sandbox.UserKernel},
		"an emulated one, please":  {sandbox.Spec{Require: sandbox.MicroVMEmulated}, sandbox.MicroVMEmulated},
		"an emulated one, by name": {sandbox.Spec{Provider: "fake-microvm-emulated"}, sandbox.MicroVMEmulated},
	} {
		if i := create(t, m, "t", c.spec); i.Isolation != c.want {
			t.Errorf("%s gave %s", what, i.Isolation)
		}
	}
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Require: sandbox.MicroVM}})
	wantClass(t, "hardware, where there is none", err, errs.Unsupported)
}

func reopen(t *testing.T, w *world, m *manager.Manager, c manager.Config) *manager.Manager {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return w.open(t, c)
}

func TestSelector_autoNeverFallsToNoIsolation(t *testing.T) {
	w := newWorld(t)
	w.probeErr["fake-user-kernel"] = errs.New(errs.Unsupported, "broken")
	m := w.open(t, w.config(nil, sandbox.UserKernel, sandbox.None))
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	wantClass(t, "auto with only no isolation working", err, errs.Unsupported)
	// An operator who gave the server nothing else has chosen it.
	w2 := newWorld(t)
	m2 := w2.open(t, w2.config(nil, sandbox.None))
	if i := create(t, m2, "t", sandbox.Spec{}); i.Isolation != sandbox.None {
		t.Errorf("auto gave %s", i.Isolation)
	}
}

func TestSelector_probesOnceForMany(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { m.Probes(t.Context()) })
	}
	wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.probes != 1 {
		t.Errorf("%d probes", w.probes)
	}
}

func TestCreate_refusesWhatTheTemplateHasNot(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	create(t, m, "t", sandbox.Spec{Language: "python"})
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Language: "ruby"}})
	wantClass(t, "language without tools", err, errs.Unsupported)
	_, err = m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Template: "nix"}})
	wantClass(t, "unknown template", err, errs.NotFound)
	w.check(t, m, "t")
}

func TestList_pages(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	var want []sandbox.ID
	for i := range 25 {
		want = append(want, create(t, m, "t", sandbox.Spec{Metadata: map[string]string{"even": fmt.Sprint(i%2 == 0)}}).ID)
	}
	slices.Reverse(want)
	read := func(f sandbox.Filter) (ids []sandbox.ID) {
		for {
			page, err := m.List(t.Context(), "t", f)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range page.Items {
				ids = append(ids, i.ID)
			}
			if f.PageToken = page.Next; f.PageToken == "" {
				return ids
			}
		}
	}
	if d := cmp.Diff(want, read(sandbox.Filter{PageSize: 7})); d != "" {
		t.Error(d)
	}
	if got := read(sandbox.Filter{Metadata: map[string]string{"even": "true"}}); len(got) != 13 {
		t.Errorf("%d of 25 are even", len(got))
	}
	if err := m.Destroy(t.Context(), "t", want[3]); err != nil {
		t.Fatal(err)
	}
	if got := read(sandbox.Filter{States: []sandbox.State{sandbox.Destroyed}}); !slices.Equal(got, want[3:4]) {
		t.Errorf("destroyed: %v", got)
	}
	if got := read(sandbox.Filter{}); slices.Contains(got, want[3]) || len(got) != 24 {
		t.Errorf("the list has %d, or the destroyed one", len(got))
	}
	for what, f := range map[string]sandbox.Filter{
		"token":     {PageToken: "x"},
		"longtoken": {PageToken: strings.Repeat("A", 1000)},
		"size":      {PageSize: -1},
		"large":     {PageSize: 1001},
		"state":     {States: []sandbox.State{"happy"}},
	} {
		_, err := m.List(t.Context(), "t", f)
		wantClass(t, what, err, errs.Invalid)
	}
}

func TestUpdate(t *testing.T) {
	w := newWorld(t)
	c := w.config(nil)
	c.Limits.TTLMax = time.Hour
	m := w.open(t, c)
	id := create(t, m, "t", sandbox.Spec{}).ID
	ttl, idle, long := 10*time.Minute, time.Minute, 2*time.Hour
	i, err := m.Update(t.Context(), "t", id, sandbox.UpdateRequest{TTL: &ttl, IdleTimeout: &idle, Metadata: map[string]string{"a": "b"}})
	if err != nil || i.Spec.TTL != ttl || i.Spec.IdleTimeout != idle || i.Spec.Metadata["a"] != "b" {
		t.Errorf("%+v, %v", i.Spec, err)
	}
	if left := time.Until(i.ExpiresAt); left < 9*time.Minute || left > ttl {
		t.Errorf("expires in %s", left)
	}
	zero := time.Duration(0)
	if i, err = m.Update(t.Context(), "t", id, sandbox.UpdateRequest{TTL: &zero}); err != nil || i.Spec.TTL != time.Hour {
		t.Errorf("ttl 0 gave %s, %v; want the server's maximum", i.Spec.TTL, err)
	}
	_, err = m.Update(t.Context(), "t", id, sandbox.UpdateRequest{TTL: &long})
	wantClass(t, "ttl over the maximum", err, errs.Invalid)
	_, err = m.Update(t.Context(), "t", id, sandbox.UpdateRequest{Metadata: map[string]string{"": ""}})
	wantClass(t, "bad metadata", err, errs.Invalid)
	m = reopen(t, w, m, c)
	if again, err := m.Get(t.Context(), "t", id); err != nil || !again.ExpiresAt.Equal(i.ExpiresAt) || again.Spec.Metadata["a"] != "b" {
		t.Errorf("after a restart %+v, %v", again, err)
	}
}

// What the server itself knows a sandbox by no client can say, change or take away.
func TestMetadata_ofTheServer(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	const key = sandbox.OwnPrefix + "plugin"
	forged := map[string]string{key: "theirs"}
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Metadata: forged}})
	wantClass(t, "a create that says it", err, errs.Invalid)
	i, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Metadata: map[string]string{"a": "b"}}, Own: map[string]string{key: "ours"}})
	if err != nil || i.Spec.Metadata[key] != "ours" || i.Spec.Metadata["a"] != "b" {
		t.Fatalf("%+v, %v", i.Spec.Metadata, err)
	}
	_, err = m.Update(t.Context(), "t", i.ID, sandbox.UpdateRequest{Metadata: forged})
	wantClass(t, "an update that says it", err, errs.Invalid)
	if i, err = m.Update(t.Context(), "t", i.ID, sandbox.UpdateRequest{Metadata: map[string]string{"c": "d"}}); err != nil || len(i.Spec.Metadata) != 2 || i.Spec.Metadata[key] != "ours" {
		t.Errorf("after an update %+v, %v", i.Spec.Metadata, err)
	}
	_, err = m.Fork(t.Context(), "t", i.ID, sandbox.ForkRequest{Changes: sandbox.Changes{Metadata: forged}})
	wantClass(t, "a fork that says it", err, errs.Invalid)
}

func TestGuestAndDial(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{}).ID
	a, releaseA, errA := m.Guest(t.Context(), "t", id)
	b, releaseB, errB := m.Guest(t.Context(), "t", id)
	if errA != nil || errB != nil || a != b {
		t.Fatalf("two clients of one machine (%v, %v)", errA, errB)
	}
	releaseA()
	releaseA() // counts once
	releaseB()
	conn, err := m.Dial(t.Context(), "t", id, 8080)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(conn); string(got) != "port 8080\n" {
		t.Errorf("read %q", got)
	}
	_ = conn.Close()
	for _, port := range []uint32{0, 65536, 1 << 20} {
		_, err := m.Dial(t.Context(), "t", id, port)
		wantClass(t, fmt.Sprintf("port %d", port), err, errs.Invalid)
	}
	if _, err := m.Pause(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	_, _, err = m.Guest(sandbox.LetSleep(t.Context()), "t", id)
	wantClass(t, "guest of a paused one that the call lets sleep", err, errs.Conflict)
	isState(t, m, id, sandbox.Paused, "")
	if conn, err = m.Dial(t.Context(), "t", id, 8080); err != nil {
		t.Fatalf("a paused one does not wake: %v", err)
	}
	_ = conn.Close()
	isState(t, m, id, sandbox.Running, "")
	sleeper := create(t, m, "t", sandbox.Spec{NoWake: true}).ID
	if _, err := m.Pause(t.Context(), "t", sleeper); err != nil {
		t.Fatal(err)
	}
	_, _, err = m.Guest(t.Context(), "t", sleeper)
	wantClass(t, "guest of a paused one that shall not wake", err, errs.Conflict)
}

func TestEvents_resumeAndResync(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	sub := subscribe(t, m, 0)
	create(t, m, "eve", sandbox.Spec{})
	id := create(t, m, "t", sandbox.Spec{}).ID
	if _, err := m.Stop(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	var states []sandbox.State
	var seqs []uint64
	for range 4 {
		ev, err := sub.Next(t.Context())
		if err != nil || ev.Info.ID != id {
			t.Fatalf("%+v, %v", ev, err)
		}
		states, seqs = append(states, ev.Info.State), append(seqs, ev.Seq)
	}
	if d := cmp.Diff([]sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Stopped, sandbox.Destroyed}, states); d != "" {
		t.Error(d)
	}
	again := subscribe(t, m, seqs[1]+1)
	if ev, err := again.Next(t.Context()); err != nil || ev.Seq != seqs[2] {
		t.Errorf("resumed at %d, want %d (%v)", ev.Seq, seqs[2], err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sub.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if ev, err := subscribe(t, m, 1<<60).Next(t.Context()); err != nil || !ev.Resync {
		t.Errorf("from a number that is yet to come: %+v, %v; want a resync", ev, err)
	}
	m2 := reopen(t, w, m, w.config(nil))
	late := subscribe(t, m2, seqs[2])
	for _, want := range []uint64{seqs[2], seqs[3]} {
		if ev, err := late.Next(t.Context()); err != nil || ev.Seq != want || ev.Resync {
			t.Errorf("after a restart: %+v, %v; want number %d", ev, err, want)
		}
	}
	_, err := sub.Next(t.Context())
	wantClass(t, "next after close", err, errs.Unavailable)
}

// Events that a crash has lost are told by the next server: how each sandbox is
// then, and that those are gone of which there is no record.
func TestEvents_lostInACrash(t *testing.T) {
	w := newWorld(t)
	c := w.config(nil)
	m := w.open(t, c)
	id := create(t, m, "t", sandbox.Spec{}).ID
	told := create(t, m, "t", sandbox.Spec{}).ID
	lost := &lossyLog{Log: w.events}
	lossy := c
	lossy.Events = lost
	m = reopen(t, w, m, lossy)
	from := w.last(t)
	lost.lose.Store(true)
	if _, err := m.Stop(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	w.events.Append(sandbox.NewEvent(time.Now(), "one", 9, sandbox.Info{ID: "sbx_gone", Tenant: "t", State: sandbox.Creating}))
	w.events.Append(sandbox.NewEvent(time.Now(), "two", 9, sandbox.Info{ID: "sbx_far", Tenant: "t", State: sandbox.Creating}))
	m = reopen(t, w, m, c)
	m = reopen(t, w, m, c) // and once
	w.events.Append(sandbox.NewEvent(time.Now(), "one", 1, sandbox.Info{ID: "sbx_end", Tenant: "t", State: sandbox.Creating}))
	got := map[sandbox.ID][]sandbox.State{}
	for sub := subscribe(t, m, from+1); len(got["sbx_end"]) == 0; {
		ev, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got[ev.Info.ID] = append(got[ev.Info.ID], ev.Info.State)
	}
	want := map[sandbox.ID][]sandbox.State{
		id: {sandbox.Stopped}, "sbx_gone": {sandbox.Creating, sandbox.Destroyed}, "sbx_far": {sandbox.Creating}, "sbx_end": {sandbox.Creating},
	}
	delete(got, told) // it may have been attached, which is nothing lost
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// lossyLog loses what is appended, as a crash does.
type lossyLog struct {
	event.Log
	lose atomic.Bool
}

func (l *lossyLog) Append(e event.Event) {
	if !l.lose.Load() {
		l.Log.Append(e)
	}
}

// last is the number of the newest event.
func (w *world) last(t *testing.T) uint64 {
	t.Helper()
	next, err := w.events.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return next - 1
}

// What an event says outlives the sandbox: its environment is not among it.
func TestEvents_withoutTheEnvironment(t *testing.T) {
	e := sandbox.NewEvent(time.Now(), "one", 1, sandbox.Info{ID: "sbx_x", Tenant: "t", Spec: sandbox.Spec{Env: map[string]string{"TOKEN": "s3cret"}}})
	if strings.Contains(string(e.Data), "s3cret") {
		t.Errorf("%s", e.Data)
	}
}

// Hundreds of callers at once, over a few sandboxes and several tenants: it is
// the race detector's test, and nothing may be left over.
func TestConcurrency_nothingIsLeftOver(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	var wg sync.WaitGroup
	tenants := []string{"a", "b", "c"}
	for n := range 30 {
		tenant := tenants[n%len(tenants)]
		wg.Go(func() {
			info, err := m.Create(t.Context(), tenant, sandbox.CreateRequest{Key: fmt.Sprint(n % 6)})
			if err != nil {
				return // destroyed meanwhile
			}
			for k := range 10 {
				switch (n + k) % 7 {
				case 0:
					_, _ = m.Stop(t.Context(), tenant, info.ID)
				case 1:
					_, _ = m.Start(t.Context(), tenant, info.ID)
				case 2:
					_, _ = m.Pause(t.Context(), tenant, info.ID)
				case 3:
					_, _ = m.Resume(t.Context(), tenant, info.ID)
				case 4:
					if f := w.machine(info.ID); f != nil {
						f.end(sandbox.ReasonKilled)
					}
				case 5:
					if _, release, err := m.Guest(t.Context(), tenant, info.ID); err == nil {
						release()
					}
				case 6:
					if k == 9 {
						_ = m.Destroy(t.Context(), tenant, info.ID)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, tenant := range tenants {
		page, err := m.List(t.Context(), tenant, sandbox.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.Items {
			if err := m.Destroy(t.Context(), tenant, i.ID); err != nil {
				t.Error(err)
			}
		}
	}
	w.check(t, m, tenants...)
	for _, tenant := range tenants {
		if left := manager.Used(m, tenant); left != (quota.Usage{}) {
			t.Errorf("the quota of %s still counts %+v", tenant, left)
		}
	}
}
