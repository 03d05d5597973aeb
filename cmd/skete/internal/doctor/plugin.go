package doctor

import (
	"fmt"
	"strings"
)

// plugins looks whether the plug-ins of the server can be used.
func (h Host) plugins() Check {
	const name = "plug-ins"
	if h.Plugins == nil {
		return info(name, "", "not looked at")
	}
	n, problems, err := h.Plugins()
	switch {
	case err != nil:
		return bad(name, err)
	case len(problems) > 0:
		text := problems[0]
		if more := len(problems) - 1; more > 0 {
			text += fmt.Sprintf(" (and %d more)", more)
		}
		return warn(name, "`skete plugin validate FOLDER` says all of it; agents that name one of these are refused their calls", "%d can be used; others cannot: %s", n, strings.TrimSpace(text))
	}
	return ok(name, "%d", n)
}
