package sandbox

import (
	"slices"
	"time"
)

// Then says what becomes of a run's own sandbox when the run is over.
type Then string

// What may become of it.
const (
	ThenNothing Then = ""       // it lives as any other does
	ThenStop    Then = "stop"   // its files and their history stay
	ThenRemove  Then = "remove" // it is destroyed
)

// ForRun ties a sandbox to the run that it was made for. It is empty in those
// that people make: nothing is done to them when a run in them is over. Those
// that the server makes for no run alone have Then and Wait.
type ForRun struct {
	// Run is the run, or the newest one of its thread that has worked here.
	Run string `json:"run,omitempty"`
	// Agent is the run's.
	Agent string `json:"agent,omitempty"`
	// Active are the runs that are under way in it, those of other threads too.
	Active []string `json:"active,omitempty"`
	// Then is what is to become of it when no run is under way in it and it was
	// not used for Wait. It is done once: who starts it again has an ordinary one.
	Then Then          `json:"then,omitempty"`
	Wait time.Duration `json:"wait,omitempty"`
}

// IsZero reports whether the sandbox was made by people.
func (f ForRun) IsZero() bool { return f.Run == "" && f.Then == ThenNothing }

// Kept is that of a sandbox for no run that is removed when it was not used for wait.
func Kept(wait time.Duration) ForRun { return ForRun{Then: ThenRemove, Wait: wait} }

// Entered is f when a run begins to work in the sandbox; own: it is of the
// thread that the sandbox was made for. Copies of f stay as they are.
func (f ForRun) Entered(run, agent string, own bool) ForRun {
	if f.Run == "" {
		return f
	}
	if own {
		f.Run, f.Agent, f.Then, f.Wait = run, agent, ThenNothing, 0
	}
	if !slices.Contains(f.Active, run) {
		f.Active = append(slices.Clone(f.Active), run)
	}
	return f
}

// Left is f when a run is over. What is to become of the sandbox is for its own
// run to say.
func (f ForRun) Left(run string, then Then, wait time.Duration) ForRun {
	i := slices.Index(f.Active, run)
	if i < 0 {
		return f
	}
	f.Active = slices.Delete(slices.Clone(f.Active), i, i+1)
	if len(f.Active) == 0 {
		f.Active = nil
	}
	if f.Run != run {
		return f
	}
	if f.Then, f.Wait = then, wait; then == ThenNothing {
		f.Wait = 0
	}
	return f
}

// Waits reports whether something is to become of the sandbox once it rests.
func (f ForRun) Waits() bool { return f.Then != ThenNothing && len(f.Active) == 0 }
