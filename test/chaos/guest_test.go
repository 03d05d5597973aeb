package chaos

import (
	"fmt"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/skete-dev/skete/internal/scratch"
)

// Guest stands in for the machines: it outlives the processes that are killed
// and counts what they do to it. Its methods are called over net/rpc.
type Guest struct {
	mu       sync.Mutex
	finished map[string]bool     // calls whose results are durable
	attempts map[string]int      // by process and call
	effects  map[string]int      // by call
	args     map[string]string   // by call, of its effect
	results  map[string]string   // by key, of keyed calls
	keys     map[string]string   // by call, so that a call has one key
	machines map[string]string   // by key of their making
	checks   map[string][]string // by tenant: keys, in the order in which they came
	wrong    []string
}

// Touch is one run of a tool in the guest.
type Touch struct {
	Process         int
	Tool, Call, Key string // Call is unique in the tenant
	Args            string
	Once            bool
}

func startGuest(t *testing.T) (g *Guest, socket string) {
	t.Helper()
	dir, err := scratch.Dir("chaos") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g = &Guest{
		finished: map[string]bool{}, attempts: map[string]int{}, effects: map[string]int{},
		args: map[string]string{}, results: map[string]string{}, keys: map[string]string{}, machines: map[string]string{}, checks: map[string][]string{},
	}
	s := rpc.NewServer()
	must(t, s.Register(g))
	socket = filepath.Join(dir, "guest.sock")
	l, err := net.Listen("unix", socket)
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.ServeConn(conn) }) // until the process dies
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return g, socket
}

// complain notes what must not happen. Precondition: the lock is held.
func (g *Guest) complain(format string, args ...any) {
	g.wrong = append(g.wrong, fmt.Sprintf(format, args...))
}

// note counts one run of a call. Precondition: the lock is held.
func (g *Guest) note(t Touch) {
	if g.finished[t.Call] {
		g.complain("%s %s ran again in process %d although its result was durable", t.Tool, t.Call, t.Process)
	}
	run := fmt.Sprint(t.Process, " ", t.Call)
	if g.attempts[run]++; g.attempts[run] > 1 {
		g.complain("%s %s ran twice in process %d", t.Tool, t.Call, t.Process)
	}
	if known := g.keys[t.Call]; known != "" && known != t.Key {
		g.complain("%s %s had the key %s and has %s", t.Tool, t.Call, known, t.Key)
	}
	g.keys[t.Call] = t.Key
}

// Look reads.
func (g *Guest) Look(t Touch, answer *string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note(t)
	*answer = "seen " + t.Call
	return nil
}

// Act happens once per key, no matter which process asks and how often.
func (g *Guest) Act(t Touch, answer *string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note(t)
	if _, known := g.results[t.Key]; !known {
		g.effects[t.Call]++
		g.args[t.Call] = t.Args
		g.results[t.Key] = "did " + t.Call + " with " + t.Args
	}
	*answer = g.results[t.Key]
	return nil
}

// Fire happens whenever it is asked for.
func (g *Guest) Fire(t Touch, answer *string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note(t)
	g.effects[t.Call]++
	g.args[t.Call] = t.Args
	*answer = "fired " + t.Call
	return nil
}

// Check runs a command once per key: the first one of a tenant fails.
func (g *Guest) Check(t Touch, exit *int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, key := range g.checks[t.Call] {
		if key == t.Key {
			*exit = btoi(i == 0)
			return nil
		}
	}
	*exit = btoi(len(g.checks[t.Call]) == 0)
	g.checks[t.Call] = append(g.checks[t.Call], t.Key)
	return nil
}

// Machine makes the machine of a key once, or says which it is.
func (g *Guest) Machine(key string, id *string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.machines[key] == "" {
		g.machines[key] = fmt.Sprintf("machine%d", len(g.machines)+1)
	}
	*id = g.machines[key]
	return nil
}

// finish notes calls whose results are durable.
func (g *Guest) finish(calls ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range calls {
		g.finished[c] = true
	}
}
