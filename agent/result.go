package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
)

// Key is what the effects of a call are keyed by: the same for ever, and
// another one for every thread.
func Key(id thread.ID, call string) string {
	const keyMax = 100
	key := strings.ReplaceAll(string(id), "/", ".") + "." + call
	if len(key) <= keyMax {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "call_" + hex.EncodeToString(sum[:])
}

// resultTokensMax is how much of one result the model sees. What a program wrote costs no
// tokens, and its last lines count as they are, however long.
func (r *Runner) resultTokensMax() int {
	limit := r.s.Agent.Limits.ResultTokensMax
	if limit <= 0 {
		limit = resultTokens
	}
	most := prompt.Window(r.s, r.c.Model.Info()) / 6
	if r.s.Agent.Program != nil {
		return most
	}
	return min(limit, most)
}

// final is what a run hands in.
type final struct {
	text   string
	result json.RawMessage
}

// answer reads the result out of the last step.
func (r *Runner) answer(ctx context.Context) (final, error) {
	if c := r.s.Final(); c != nil && r.schema != nil {
		result, _ := r.schema.FromCall(c.EffectiveArgs()) // the tool accepted it
		return final{text: clip.Text(string(result), textMax), result: result}, nil
	}
	last := r.s.Last()
	if last == nil {
		return final{}, errs.New(errs.Internal, "a run of %s is done without a step", r.c.Thread)
	}
	m, err := prompt.Message(ctx, r.c.Blobs, last)
	if err != nil {
		return final{}, err
	}
	f := final{text: clip.Text(m.String(), textMax)}
	if r.schema != nil {
		f.result, _ = r.schema.FromText(m.String())
	}
	return f, nil
}

// modelText is what people read when the model failed for good.
func modelText(err error) string {
	text := errs.Public(err)
	if hint := errs.Hint(err); hint != "" {
		text += " (" + hint + ")"
	}
	return clip.Text(text, textMax)
}
