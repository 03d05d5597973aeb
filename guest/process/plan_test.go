package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/wire"
)

// planner is a sandbox of the test.

func testPlanner(root bool) planner {
	return planner{Shell: findShell, Boot: wire.Boot{
		Sandbox: "sbx_x", User: "user", UID: 1000, GID: 1000, Home: "/home/user", Workdir: "/", Root: root, Env: map[string]string{"A": "box", "B": "box"},
	}}
}

func madeKey() string { return "made" }

func bytesOf(args ...string) [][]byte {
	var list [][]byte
	for _, a := range args {
		list = append(list, []byte(a))
	}
	return list
}

func TestPlan_refusesWhatIsAbsurd(t *testing.T) {
	sh := bytesOf("sh")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	var many []*wire.Rlimit
	for range 20 {
		many = append(many, &wire.Rlimit{Name: "core"})
	}
	for name, c := range map[string]struct {
		req  *wire.StartRequest
		want errs.Class
	}{
		"no argv":                {&wire.StartRequest{}, errs.Invalid},
		"empty name":             {&wire.StartRequest{Argv: bytesOf("")}, errs.Invalid},
		"NUL in argv":            {&wire.StartRequest{Argv: bytesOf("sh", "a\x00b")}, errs.Invalid},
		"too many arguments":     {&wire.StartRequest{Argv: bytesOf(make([]string, argvMax+1)...)}, errs.Invalid},
		"too large":              {&wire.StartRequest{Argv: bytesOf("sh", strings.Repeat("x", argumentsMax))}, errs.Invalid},
		"key with newline":       {&wire.StartRequest{Key: "a\nb", Argv: sh}, errs.Invalid},
		"key with slash":         {&wire.StartRequest{Key: "../x", Argv: sh}, errs.Invalid},
		"long key":               {&wire.StartRequest{Key: strings.Repeat("k", 129), Argv: sh}, errs.Invalid},
		"env name with =":        {&wire.StartRequest{Argv: sh, Env: map[string][]byte{"A=B": nil}}, errs.Invalid},
		"empty env name":         {&wire.StartRequest{Argv: sh, Env: map[string][]byte{"": nil}}, errs.Invalid},
		"NUL in env":             {&wire.StartRequest{Argv: sh, Env: map[string][]byte{"A": {0}}}, errs.Invalid},
		"NUL in cwd":             {&wire.StartRequest{Argv: sh, Cwd: []byte("/\x00")}, errs.Invalid},
		"long cwd":               {&wire.StartRequest{Argv: sh, Cwd: []byte("/" + strings.Repeat("x", 5000))}, errs.Invalid},
		"unknown user":           {&wire.StartRequest{Argv: sh, User: "bob"}, errs.NotFound},
		"root":                   {&wire.StartRequest{Argv: sh, User: "root"}, errs.Denied},
		"flat terminal":          {&wire.StartRequest{Argv: sh, Pty: &wire.PtySize{Cols: 80}}, errs.Invalid},
		"huge terminal":          {&wire.StartRequest{Argv: sh, Pty: &wire.PtySize{Cols: 80, Rows: 1001}}, errs.Invalid},
		"unknown rlimit":         {&wire.StartRequest{Argv: sh, Rlimits: []*wire.Rlimit{{Name: "x"}}}, errs.Invalid},
		"soft over hard":         {&wire.StartRequest{Argv: sh, Rlimits: []*wire.Rlimit{{Name: "core", Soft: 2, Hard: 1}}}, errs.Invalid},
		"many rlimits":           {&wire.StartRequest{Argv: sh, Rlimits: many}, errs.Invalid},
		"negative timeout":       {&wire.StartRequest{Argv: sh, TimeoutMs: -1}, errs.Invalid},
		"negative spool":         {&wire.StartRequest{Argv: sh, SpoolBytesMax: -1}, errs.Invalid},
		"unknown overflow":       {&wire.StartRequest{Argv: sh, Overflow: 77}, errs.Invalid},
		"unknown command":        {&wire.StartRequest{Argv: bytesOf("no-such-command")}, errs.NotFound},
		"unknown path":           {&wire.StartRequest{Argv: bytesOf("/no/such")}, errs.NotFound},
		"not executable":         {&wire.StartRequest{Argv: bytesOf(filepath.Join(dir, "plain"))}, errs.Denied},
		"not executable in PATH": {&wire.StartRequest{Argv: bytesOf("plain"), Env: map[string][]byte{"PATH": []byte(dir)}}, errs.Denied},
		"a directory":            {&wire.StartRequest{Argv: bytesOf(dir)}, errs.Denied},
	} {
		if _, err := testPlanner(false).Plan(c.req, madeKey); !errs.Is(err, c.want) {
			t.Errorf("%s: %v is %q, want %q", name, err, errs.Of(err), c.want)
		}
	}
	if _, err := testPlanner(true).Plan(&wire.StartRequest{Argv: sh, User: "root"}, madeKey); err != nil {
		t.Errorf("root where it is granted: %v", err)
	}
}

func TestPlan_defaultUser(t *testing.T) {
	p := testPlanner(true)
	p.Boot.DefaultUser = "root"
	for asked, want := range map[string]struct {
		uid  uint32
		home string
	}{"": {0, "HOME=/root"}, "root": {0, "HOME=/root"}, "user": {1000, "HOME=/home/user"}} {
		s, err := p.Plan(&wire.StartRequest{Argv: bytesOf("sh"), User: asked}, madeKey)
		if err != nil || s.UID != want.uid || !strings.Contains(strings.Join(s.Env, "\n"), want.home) {
			t.Errorf("%q runs as %d, %v: %v", asked, s.UID, s.Env, err)
		}
	}
	p.Boot.Root = false // a boot file that contradicts itself
	if _, err := p.Plan(&wire.StartRequest{Argv: bytesOf("sh")}, madeKey); !errs.Is(err, errs.Denied) {
		t.Errorf("root by default without being granted: %v", err)
	}
}

func TestPlan_requestBeatsSandboxBeatsDefaults(t *testing.T) {
	s, err := testPlanner(false).Plan(&wire.StartRequest{Key: "k", Argv: bytesOf("sh"), Env: map[string][]byte{"B": []byte("req"), "SKETE_SANDBOX": []byte("lie")}, Pty: &wire.PtySize{Cols: 80, Rows: 24}}, madeKey)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(s.Env, "\n")
	want := "A=box\nB=req\nHOME=/home/user\nLANG=C.UTF-8\nLOGNAME=user\nPATH=" + pathDefault + "\nSHELL=" + findShell() +
		"\nSKETE_PROCESS=k\nSKETE_SANDBOX=sbx_x\nTERM=xterm-256color\nUSER=user"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func FuzzPlan(f *testing.F) {
	for _, r := range []*wire.StartRequest{
		{Key: "a", Argv: bytesOf("sh", "-c", "true"), Env: map[string][]byte{"A": []byte("b")}},
		{Argv: bytesOf("./x"), Cwd: []byte("/tmp"), Pty: &wire.PtySize{Cols: 1, Rows: 1}, Rlimits: []*wire.Rlimit{{Name: "core"}}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	c := testPlanner(false)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r wire.StartRequest
		if proto.Unmarshal(data, &r) != nil {
			return
		}
		s, err := c.Plan(&r, madeKey)
		if err != nil {
			if errs.Of(err) == errs.Internal {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, v := range append(append([]string{s.Path, s.Dir}, s.Argv...), s.Env...) {
			if strings.IndexByte(v, 0) >= 0 {
				t.Fatalf("NUL got through: %q", v)
			}
		}
		if checkKey(s.Key) != nil || s.Path == "" || s.UID != 1000 {
			t.Fatalf("%+v", s)
		}
	})
}

// A full disk is called a full disk, not a want of processes.
func TestError_namesTheDisk(t *testing.T) {
	s := &pair.Spawn{Argv: []string{"make"}, Dir: t.TempDir()}
	for errno, want := range map[unix.Errno]string{
		unix.ENOSPC: "the disk under the sandbox is full", unix.EROFS: "takes no writes", unix.ENOMEM: "no room for another process",
	} {
		err := spawnError(errno, s)
		if errs.Of(err) != errs.Limit || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v (%s), want %q", errno, err, errs.Of(err), want)
		}
	}
}
