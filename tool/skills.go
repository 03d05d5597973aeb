package tool

import "context"

// Skills are folders that teach how a kind of work is done, as a run found them when it
// began. Safe for concurrent use.
type Skills interface {
	// Learn returns what a skill says, and puts its files into the machine. It may be
	// repeated. NotFound (errs): there is none of that name.
	Learn(ctx context.Context, name string) (Lesson, error)
	// Unlisted is how many there are that the prompt's list has no room for.
	Unlisted() int
	// Find returns those that a query fits best, the best first.
	Find(ctx context.Context, query string) ([]SkillEntry, error)
}

// SkillEntry is a skill as a list shows it.
type SkillEntry struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Lesson is what a skill says.
type Lesson struct {
	Instructions string
	Dir          string   // where its files are
	Files        []string // beneath Dir
	Needs        string   // what it says that it needs, in words
	// Changed: its files are not as they were when the run began.
	Changed bool
}
