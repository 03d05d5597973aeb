package thread

import (
	"crypto/rand"
	"encoding/base32"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// ID names a thread: "thr_" and 20 characters of a–z, 2–7; a sub-agent's is
// its parent's, "/" and the id of the tool call that started it.
type ID string

// RunID names a run: "run_" and 20 such characters.
type RunID string

// DepthMax is how deep sub-agents may nest; a thread's id has at most that
// many calls.
const DepthMax = 4

var (
	letters  = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	idForm   = pattern.Lazy(`^thr_[a-z2-7]{20}(/[A-Za-z0-9_-]{1,64}){0,4}$`)
	runForm  = pattern.Lazy(`^run_[a-z2-7]{20}$`)
	callForm = pattern.Lazy(`^[A-Za-z0-9_-]{1,64}$`)
)

func random(prefix string) string {
	var b [13]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return prefix + letters.EncodeToString(b[:])[:20]
}

// NewID returns a random id, not to be guessed.
func NewID() ID { return ID(random("thr_")) }

// NewRunID returns a random id, not to be guessed.
func NewRunID() RunID { return RunID(random("run_")) }

// ParseID checks the form of s.
func ParseID(s string) (ID, error) {
	if !idForm().MatchString(s) {
		return "", errs.New(errs.Invalid, "%.80q is not a thread id", s).WithHint("ids look like thr_k3j5…; `skete runs` shows them")
	}
	return ID(s), nil
}

// ParseRunID checks the form of s.
func ParseRunID(s string) (RunID, error) {
	if !runForm().MatchString(s) {
		return "", errs.New(errs.Invalid, "%.80q is not a run id", s).WithHint("ids look like run_k3j5…; `skete runs` shows them")
	}
	return RunID(s), nil
}

// IsCallID reports whether s can be the id of a tool call.
func IsCallID(s string) bool { return callForm().MatchString(s) }

// Sub returns the id of the sub-agent's thread that a call starts.
func (id ID) Sub(call string) ID { return id + "/" + ID(call) }

// Root returns the thread at the top of a tree of sub-agents.
func (id ID) Root() ID {
	root, _, _ := strings.Cut(string(id), "/")
	return ID(root)
}

// Parent returns the thread whose call started this one, and the call; "" for a root.
func (id ID) Parent() (parent ID, call string) {
	at := strings.LastIndexByte(string(id), '/')
	if at < 0 {
		return "", ""
	}
	return id[:at], string(id[at+1:])
}

// Depth is 0 for a root.
func (id ID) Depth() int { return strings.Count(string(id), "/") }
