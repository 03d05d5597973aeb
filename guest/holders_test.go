package guest_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
)

// holdDatabase opens a database in WAL mode, writes a row and holds it open;
// it says so in its log. TERM closes it in order, as a good program does.
const holdDatabase = `
import signal, sqlite3, sys, time
db = sqlite3.connect("app.db")
db.execute("pragma journal_mode=wal")
db.execute("create table if not exists t(who text)")
db.execute("insert into t values (?)", (sys.argv[1],))
db.commit()
signal.signal(signal.SIGTERM, lambda *a: (db.close(), sys.exit(0)))
print("holding", db.execute("select count(*) from t").fetchone()[0], flush=True)
while True: time.sleep(0.05)
`

// query asks a database with the host's own sqlite, through the file system.
func query(t *testing.T, py, db, sql string) string {
	t.Helper()
	out, err := exec.Command(py, "-c", "import sqlite3,sys; print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall())", db, sql).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Fault 10: SQLite in WAL, held open by a service and by another process,
// while the database is put back under them.
func TestHolders_databaseInWALIsPutBackUnderAServiceAndAnother(t *testing.T) {
	py := python(t, "sqlite3")
	m := start(t, options{})
	m.write("hold.py", holdDatabase)
	db := filepath.Join(m.boot.Workdir, "app.db")
	names := []string{db, db + "-wal", db + "-shm"}
	managed := &wire.ServiceDeclaration{Name: "db", Argv: argv(py, "hold.py", "managed")}
	managed.Readiness = &wire.Readiness{Probe: &wire.Readiness_Log{Log: &wire.LogReadiness{Pattern: "^holding"}}}
	before := m.declare(managed)
	web := m.declare(shell("web", "sleep 1000"))

	saved := map[string]string{} // the state to go back to: one row, still in the WAL
	keep := func(name string) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		saved[name] = string(data)
	}
	keep(db)
	keep(db + "-wal")
	if len(saved[db+"-wal"]) == 0 {
		t.Fatal("the row is not in the log of the database")
	}
	if _, err := m.client.Process.Start(background(t), connect.NewRequest(&wire.StartRequest{Key: "other", Argv: argv(py, "hold.py", "other")})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another holds it too", func() bool { return m.get("other").Stdout.Size > 0 })
	res, err := m.client.Service.Holders(background(t), connect.NewRequest(&wire.HoldersRequest{Paths: argv(names...)}))
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]bool{}
	for _, h := range res.Msg.Holders {
		owners[h.Service] = true
		if h.Replaced || len(h.Paths) != 3 {
			t.Errorf("before: %v", h)
		}
	}
	if len(owners) != 2 || !owners["db"] || !owners[""] {
		t.Errorf("the holders are %v", res.Msg.Holders)
	}

	// The undo: stop all, put the files back by renames, tell, let go.
	if _, err := m.client.Control.Quiesce(background(t), connect.NewRequest(&wire.QuiesceRequest{})); err != nil {
		t.Fatal(err)
	}
	for name, text := range saved {
		m.write(filepath.Base(name), text)
	}
	if err := os.Remove(db + "-shm"); err != nil {
		t.Fatal(err)
	}
	restarted := m.restartHolders(false, names...)
	if len(restarted.Restarted) != 1 || restarted.Restarted[0].Name != "db" {
		t.Errorf("restarted %v", restarted.Restarted)
	}
	if len(restarted.Unmanaged) != 1 || restarted.Unmanaged[0].Pid != m.get("other").Pid || !restarted.Unmanaged[0].Replaced {
		t.Errorf("unmanaged %v", restarted.Unmanaged)
	}
	if i := m.service("db"); i.Pid != 0 && i.State == wire.ServiceState_SERVICE_STATE_READY {
		t.Errorf("it was started in a freeze: %v", i)
	}
	// The log that was put back is still there: the holder was killed and could not remove it.
	if data, err := os.ReadFile(db + "-wal"); err != nil || string(data) != saved[db+"-wal"] {
		t.Fatalf("the log of the database has %d bytes, %v", len(data), err)
	}
	if _, err := m.client.Control.Thaw(background(t), connect.NewRequest(&wire.ThawRequest{})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ready again", func() bool {
		i := m.service("db")
		return i.State == wire.ServiceState_SERVICE_STATE_READY && i.Pid != before.Pid
	})
	if i := m.service("db"); i.Restarts != 1 || i.LastExit.GetSignal() != 9 {
		t.Errorf("%v", i)
	}
	if i := m.service("web"); i.Pid != web.Pid || i.Restarts != 0 {
		t.Errorf("who held nothing was restarted: %v", i)
	}
	// Row one was put back; the service has added its second; "other" is undone.
	if got := query(t, py, db, "select who from t order by rowid"); got != "[('managed',), ('managed',)]" {
		t.Errorf("the database has %s", got)
	}
	if m.get("other").State != wire.ProcessState_PROCESS_STATE_RUNNING {
		t.Error("who is unmanaged was ended though nobody said so")
	}
	if again := m.restartHolders(true, names...); len(again.Restarted) != 0 || len(again.Unmanaged) != 1 {
		t.Errorf("a second time: %v", again)
	}
	if i := m.wait("other"); i.Exit.GetSignal() != 9 {
		t.Errorf("%v", i)
	}
	if got := query(t, py, db, "pragma integrity_check"); got != "[('ok',)]" {
		t.Errorf("the database is broken: %s", got)
	}
}

// folder makes a directory that the sandbox's user may write to.
func (m *machine) folder(name string) {
	m.t.Helper()
	path := filepath.Join(m.boot.Workdir, name)
	if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o777)); err != nil {
		m.t.Fatal(err)
	}
}

func TestRestartHolders_onlyWhoMust(t *testing.T) {
	m := start(t, options{})
	for _, d := range []string{"app", "lib", "gone"} {
		m.folder(d)
	}
	in := func(name, dir, command string) *wire.ServiceDeclaration {
		d := shell(name, command)
		d.Workdir = []byte(dir)
		return d
	}
	pids := map[string]uint32{}
	for _, d := range []*wire.ServiceDeclaration{
		in("app", "app", "sleep 1000"), in("lib", "lib", "sleep 1000"), in("gone", "gone", "sleep 1000"),
		in("writer", "lib", "exec 3>>out; sleep 1000"),
	} {
		i := m.declare(d)
		pids[d.Name] = i.Pid
	}
	m.declare(in("broken", "lib", "exit 1"))
	eventually(t, "it is broken", func() bool { return m.service("broken").State == wire.ServiceState_SERVICE_STATE_CRASH_LOOP })
	stopped := m.declare(shell("stopped", "sleep 1000"))
	if _, err := m.client.Service.Stop(background(t), connect.NewRequest(&wire.StopServiceRequest{Name: stopped.Declaration.Name, WaitMs: waitMS})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the writer writes", func() bool {
		_, err := os.Stat(filepath.Join(m.boot.Workdir, "lib/out"))
		return err == nil
	})
	if err := os.RemoveAll(filepath.Join(m.boot.Workdir, "gone")); err != nil {
		t.Fatal(err)
	}
	m.folder("gone")
	m.write("lib/out", "")
	m.write("app/package.json", "{}")
	m.write("app/index.html", "")
	var paths []string
	for _, p := range []string{"gone", "lib/out", "app/package.json", "app/index.html"} {
		paths = append(paths, filepath.Join(m.boot.Workdir, p))
	}
	got := map[string]string{}
	for _, r := range m.restartHolders(false, paths...).Restarted {
		got[r.Name] = r.Reason
	}
	for name, why := range map[string]string{"app": "configuration", "gone": "replaced", "writer": "replaced", "broken": "not ready"} {
		if !strings.Contains(got[name], why) {
			t.Errorf("%s: %q", name, got[name])
		}
		delete(got, name)
	}
	if len(got) != 0 {
		t.Errorf("restarted too: %v", got)
	}
	eventually(t, "all run anew", func() bool {
		for _, n := range []string{"app", "gone", "writer"} {
			if i := m.service(n); i.State != wire.ServiceState_SERVICE_STATE_READY || i.Pid == pids[n] {
				return false
			}
		}
		return true
	})
	if i := m.service("lib"); i.Pid != pids["lib"] {
		t.Errorf("%v", i)
	}
	if i := m.service("stopped"); i.State != wire.ServiceState_SERVICE_STATE_STOPPED {
		t.Errorf("%v", i)
	}
	source := filepath.Join(m.boot.Workdir, "app/index.html")               // what a dev server watches
	if again := m.restartHolders(false, source); len(again.Restarted) > 1 { // "broken" alone is not ready
		t.Errorf("a changed page restarted %v", again.Restarted)
	}
}

func TestHolders_refusesWhatIsNoPath(t *testing.T) {
	m := start(t, options{})
	for _, p := range []string{"", "relative", "../x"} {
		if _, err := m.client.Service.Holders(background(t), connect.NewRequest(&wire.HoldersRequest{Paths: argv(p)})); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%q: %v", p, err)
		}
	}
}
