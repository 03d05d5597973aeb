package manager_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/process"
	"github.com/skete-dev/skete/store"
)

// The environment of this test binary, started again as a server.
const (
	serverDirEnv   = "SKETE_MANAGER_TEST_SERVER"
	serverSeedEnv  = "SKETE_MANAGER_TEST_SEED"
	serverGuestEnv = "SKETE_MANAGER_TEST_GUEST"
)

// server is a manager on real parts: the embedded store and real guests as
// processes of this host.
type server struct {
	*manager.Manager
	store    *store.Store
	provider *process.Provider
}

func openServer(ctx context.Context, dir, guest string) (*server, error) {
	s, err := store.Open(ctx, store.Config{Dir: filepath.Join(dir, "store")})
	if err != nil {
		return nil, err
	}
	registry, err1 := s.KV(ctx, "sandboxes")
	leases, err2 := s.Leases(ctx)
	p, err3 := process.New(process.Config{Dir: filepath.Join(dir, "process"), Allow: true})
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	m, err := openSettled(ctx, manager.Config{
		Dir: filepath.Join(dir, "sandboxes"), Node: "one", Providers: []sandbox.Provider{p},
		Templates: fakeTemplates{}, Volumes: dirVolumes(filepath.Join(dir, "volumes")), Registry: registry, Leases: leases, Guest: guest,
	})
	if err != nil {
		return nil, errors.Join(err, p.Close(), s.Close())
	}
	return &server{m, s, p}, nil
}

func (s *server) Close() error {
	return errors.Join(s.Manager.Close(), s.provider.Close(), s.store.Close())
}

// dirVolumes are plain directories below one.
type dirVolumes string

func (d dirVolumes) path(id string) string { return filepath.Join(string(d), id) }

func (d dirVolumes) Create(_ context.Context, id string, _ int64, _ sandbox.Form) (sandbox.Volume, error) {
	return sandbox.Volume{Path: d.path(id), Enforced: true, Method: "test"}, os.MkdirAll(d.path(id), 0o777)
}

func (d dirVolumes) Attach(_ context.Context, id string, _ sandbox.Form) (sandbox.Volume, error) {
	if _, err := os.Stat(d.path(id)); err != nil {
		return sandbox.Volume{}, errs.Wrap(errs.NotFound, err, "no volume %s", id)
	}
	return sandbox.Volume{Path: d.path(id), Enforced: true, Method: "test"}, nil
}

func (d dirVolumes) Copy(_ context.Context, from, to string) error {
	return errors.Join(os.RemoveAll(d.path(to)), exec.Command("cp", "-a", d.path(from), d.path(to)).Run())
}
func (d dirVolumes) Detach(context.Context, string) error         { return nil }
func (d dirVolumes) Remove(_ context.Context, id string) error    { return os.RemoveAll(d.path(id)) }
func (d dirVolumes) Usage(context.Context, string) (int64, error) { return 0, nil }
func (d dirVolumes) List(context.Context) (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// serveUntilKilled is the child: it does random things and says each when it
// is acknowledged, before it begins the next.
func serveUntilKilled(dir string) int {
	ctx := context.Background()
	s, err := openServer(ctx, dir, os.Getenv(serverGuestEnv))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	seed, _ := strconv.ParseUint(os.Getenv(serverSeedEnv), 10, 64)
	r := rand.New(rand.NewPCG(seed, 0))
	var ids []sandbox.ID
	fmt.Println("open")
	for {
		what := []string{"create", "stop", "start", "destroy"}[r.IntN(4)]
		var id sandbox.ID
		if len(ids) > 0 {
			id = ids[r.IntN(len(ids))]
		}
		if what == "create" || id == "" {
			info, err := s.Create(ctx, "t", sandbox.CreateRequest{})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			ids = append(ids, info.ID)
			fmt.Println("create", info.ID)
			continue
		}
		fmt.Println("begin", what, id)
		switch what {
		case "stop":
			_, err = s.Stop(ctx, "t", id)
		case "start":
			_, err = s.Start(ctx, "t", id)
		case "destroy":
			err = s.Destroy(ctx, "t", id)
			ids = slices.DeleteFunc(ids, func(i sandbox.ID) bool { return i == id })
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, what, err)
			return 1
		}
		fmt.Println(what, id)
	}
}

// acked is what a killed server has said of a sandbox.
type acked struct {
	state  sandbox.State
	unsure bool // a change had begun
}

// runAndKill runs a server until it has said n things.
func runAndKill(t *testing.T, dir, guest string, seed, n int, said map[sandbox.ID]*acked) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverDirEnv+"="+dir, serverGuestEnv+"="+guest, serverSeedEnv+"="+strconv.Itoa(seed))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for s := bufio.NewScanner(out); s.Scan(); lines++ {
		note(said, strings.Fields(s.Text()))
		if lines == n {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); lines < n {
		t.Fatalf("the server ended by itself: %v\n%s", err, stderr.String())
	}
}

func note(said map[sandbox.ID]*acked, words []string) {
	if len(words) == 3 { // begin what id
		said[sandbox.ID(words[2])].unsure = true
		return
	}
	if len(words) != 2 {
		return
	}
	states := map[string]sandbox.State{"create": sandbox.Running, "start": sandbox.Running, "stop": sandbox.Stopped, "destroy": sandbox.Destroyed}
	said[sandbox.ID(words[1])] = &acked{state: states[words[0]]}
}

// A server on real parts is killed with -9 again and again in the middle of
// its work. What it acknowledged holds; what it did not is done or undone; the
// host holds what the next server lists, and nothing else.
func TestKill_convergesOnRealParts(t *testing.T) {
	if testing.Short() {
		t.Skip("kills real servers for some seconds")
	}
	guest, dir := guesttest.Binary(t), t.TempDir()
	said := map[sandbox.ID]*acked{}
	for round := range 6 {
		runAndKill(t, dir, guest, round, 3+round*3, said)
	}
	s, err := openServer(t.Context(), dir, guest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for id, a := range said {
		if i, err := s.Get(t.Context(), "t", id); err != nil || !a.unsure && i.State != a.state {
			t.Errorf("%s is %s, %v; %s was acknowledged", id, i.State, err, a.state)
		}
	}
	page, err := s.List(t.Context(), "t", sandbox.Filter{PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var running, kept []string
	for _, i := range page.Items {
		switch kept = append(kept, string(i.ID)); i.State {
		case sandbox.Running:
			running = append(running, string(i.ID))
			c, release, err := s.Guest(t.Context(), "t", i.ID)
			if err != nil {
				t.Errorf("guest of %s: %v", i.ID, err)
				continue
			}
			if _, err := c.Hello(t.Context()); err != nil {
				t.Errorf("hello of %s: %v", i.ID, err)
			}
			release()
		case sandbox.Stopped, sandbox.Failed:
		default:
			t.Errorf("%s is %s", i.ID, i.State)
		}
	}
	t.Logf("%d acknowledged, %d kept, %d run", len(said), len(kept), len(running))
	wantOnHost(t, s, dir, running, kept)
	for _, i := range page.Items {
		if err := s.Destroy(t.Context(), "t", i.ID); err != nil {
			t.Errorf("destroy %s: %v", i.ID, err)
		}
	}
	wantOnHost(t, s, dir, nil, nil)
}

func wantOnHost(t *testing.T, s *server, dir string, running, kept []string) {
	t.Helper()
	s.Probes(t.Context()) // what a server boots when it starts is no sandbox
	ids, err := s.provider.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var machines []string
	for _, id := range ids {
		machines = append(machines, string(id))
	}
	volumes, err := dirVolumes(filepath.Join(dir, "volumes")).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(dir, "sandboxes", "sbx_*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range dirs {
		dirs[i] = filepath.Base(d)
	}
	set := func(names []string) map[string]bool {
		m := map[string]bool{}
		for _, n := range names {
			m[n] = true
		}
		return m
	}
	same(t, "machines", set(machines), set(running))
	same(t, "directories", set(dirs), set(running))
	same(t, "volumes", set(volumes), set(kept))
}

// A command goes on while the server is away, and is found again.
func TestRestart_commandsGoOn(t *testing.T) {
	guest, dir := guesttest.Binary(t), t.TempDir()
	s, err := openServer(t.Context(), dir, guest)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Create(t.Context(), "t", sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	c, release, err := s.Guest(t.Context(), "t", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Process.Start(t.Context(), connect.NewRequest(&wire.StartRequest{
		Key: "job", Argv: [][]byte{[]byte("sh"), []byte("-c"), []byte("echo before; read x; echo after $x; exit 7")}, Stdin: true,
	}))
	release()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openServer(t.Context(), dir, guest); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if c, release, err = s.Guest(t.Context(), "t", info.ID); err != nil {
		t.Fatal(err)
	}
	if _, err = c.Process.Input(t.Context(), connect.NewRequest(&wire.InputRequest{Key: "job", Data: []byte("it\n"), Eof: true})); err != nil {
		t.Fatal(err)
	}
	stream, err := c.Process.Attach(t.Context(), connect.NewRequest(&wire.AttachRequest{Key: "job"}))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	var exit *wire.Exit
	for exit == nil && stream.Receive() {
		out = append(out, stream.Msg().GetOutput().GetData()...)
		exit = stream.Msg().GetExited().GetExit()
	}
	if string(out) != "before\nafter it\n" || exit.GetCode() != 7 {
		t.Errorf("output %q, exit %v, %v", out, exit, stream.Err())
	}
	_ = stream.Close()
	release()
	if err := s.Destroy(t.Context(), "t", info.ID); err != nil {
		t.Error(err)
	}
}
