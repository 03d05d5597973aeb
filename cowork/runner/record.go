package runner

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/thread"
)

// ID names a run of a workflow: "wfr_" and 20 characters of a–z, 2–7. Its thread's id has
// the same ones.
type ID string

const (
	idPrefix  = "wfr_"
	runPrefix = "run/"
	textMax   = 2 << 10 // of Run.Text; the log has it whole
)

var (
	letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	idForm  = pattern.Lazy(`^wfr_[a-z2-7]{20}$`)
)

// newID is random, or with a key the same for the same words.
func newID(tenant, key string) ID {
	sum := sha256.Sum256([]byte("workflow\x00" + tenant + "\x00" + key))
	if key == "" {
		_, _ = rand.Read(sum[:]) // never fails
	}
	return ID(idPrefix + letters.EncodeToString(sum[:])[:20])
}

// ParseID checks the form of s.
func ParseID(s string) (ID, error) {
	if !idForm().MatchString(s) {
		return "", errs.New(errs.Invalid, "%.80q is not the id of a workflow's run", s).WithHint("ids look like wfr_k3j5…; `skete workflow list` shows them")
	}
	return ID(s), nil
}

// Thread is where the run's log is.
func (id ID) Thread() thread.ID { return thread.ID("thr_" + strings.TrimPrefix(string(id), idPrefix)) }

// Run is what there is to know about a run of a workflow without reading its log.
type Run struct {
	ID       ID              `json:"id"`
	Tenant   string          `json:"tenant"`
	Node     string          `json:"node"` // of which data directory it is
	Workflow string          `json:"workflow"`
	Version  string          `json:"version,omitempty"`
	Hash     string          `json:"hash"`  // of the definition
	Asked    string          `json:"asked"` // hash of what was asked for
	By       string          `json:"by,omitempty"`
	State    thread.RunState `json:"state"`
	Reason   string          `json:"reason,omitempty"`
	Text     string          `json:"text,omitempty"`
	Created  time.Time       `json:"created"`
	Ended    time.Time       `json:"ended,omitzero"`
}

func recordKey(tenant string, id ID) string { return runPrefix + tenant + "/" + string(id) }

func parseRecord(value []byte) (Run, error) {
	var run Run
	if err := json.Unmarshal(value, &run); err != nil {
		return run, errs.Wrap(errs.Corrupt, err, "the record of a workflow's run cannot be read")
	}
	return run, nil
}

// find returns a run. NotFound.
func (r *Runner) find(ctx context.Context, tenant string, id ID) (Run, uint64, error) {
	if _, err := ParseID(string(id)); err != nil {
		return Run{}, 0, err
	}
	value, revision, err := r.c.Records.Get(ctx, recordKey(tenant, id))
	if errs.Is(err, errs.NotFound) {
		return Run{}, 0, errs.New(errs.NotFound, "no run %.40s of a workflow", id).WithHint("`skete workflow list` shows them")
	}
	if err != nil {
		return Run{}, 0, err
	}
	run, err := parseRecord(value)
	return run, revision, err
}

// ours is find for what is to be changed. Conflict: another node owns it.
func (r *Runner) ours(ctx context.Context, tenant string, id ID) (Run, error) {
	run, _, err := r.find(ctx, tenant, id)
	if err == nil && run.Node != r.c.Node {
		err = errs.OnNode("the workflow's run "+string(id), run.Node)
	}
	return run, err
}

// over writes the end of a run into its record.
func (r *Runner) over(ctx context.Context, tenant string, id ID, state thread.RunState, reason, text string, at time.Time) error {
	for range 10 {
		run, revision, err := r.find(ctx, tenant, id)
		if err != nil || run.State.Final() {
			return err
		}
		run.State, run.Reason, run.Text, run.Ended = state, reason, clip.Text(text, textMax), at
		value, err := json.Marshal(run)
		if err != nil {
			return err
		}
		if _, err = r.c.Records.Update(ctx, recordKey(tenant, id), value, revision); !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	return errs.New(errs.Unavailable, "the record of %s keeps changing", id)
}

// broken ends the record of a run that cannot be driven.
func (r *Runner) broken(run Run, cause error) {
	if err := r.over(r.ctx, run.Tenant, run.ID, thread.RunFailed, string(errs.Of(cause)), errs.Public(cause), r.c.Now().UTC()); err != nil {
		r.c.Log.Warn("the record of a workflow's run could not be ended", "run", run.ID, "err", err)
	}
}
