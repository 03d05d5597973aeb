package replay

import "strings"

// Prefix begins the names of models that play a recorded run:
// "replay/THREAD#RUN", and for a sub-agent "replay/THREAD".
const Prefix = "replay/"

// Is reports whether a model's name is that of a recorded run.
func Is(model string) bool { return strings.HasPrefix(model, Prefix) }

// Sub is the model of a sub-agent: in a replay the one that plays the
// sub-agent of then.
func Sub(model, call string) string {
	if !Is(model) {
		return model
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(model, Prefix), "#")
	return Prefix + id + "/" + call
}
