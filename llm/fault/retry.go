package fault

import (
	"net/http"
	"strings"
	"time"

	"github.com/skete-dev/skete/internal/pattern"
)

// resetMax bounds what a server may ask for: more is a mistake.
const resetMax = time.Hour

// Reset returns when the rate limits of the two vendors' own headers allow
// more, for refusals without a retry-after: the latest reset of a limit that is
// used up. 0 = they do not say.
func Reset(h http.Header, now time.Time) time.Duration {
	var wait time.Duration
	for name, values := range h {
		if len(values) == 0 || values[0] != "0" {
			continue
		}
		name = strings.ToLower(name)
		var reset string
		switch {
		case strings.HasPrefix(name, "anthropic-ratelimit-") && strings.HasSuffix(name, "-remaining"):
			reset = h.Get(strings.TrimSuffix(name, "-remaining") + "-reset")
		case strings.HasPrefix(name, "x-ratelimit-remaining-"):
			reset = h.Get("x-ratelimit-reset-" + strings.TrimPrefix(name, "x-ratelimit-remaining-"))
		}
		if t, err := time.Parse(time.RFC3339, reset); err == nil {
			wait = max(wait, t.Sub(now))
		} else if d, err := time.ParseDuration(reset); err == nil {
			wait = max(wait, d)
		}
	}
	return min(wait, resetMax)
}

var afterReset = pattern.Lazy(`(?i)try again in (\d+(?:\.\d+)?) ?(ms|s|m)\b`)

// ResetText finds "try again in 1.5s" in the text of a failure inside a
// stream, where there is no header. 0 = it does not say.
func ResetText(text string) time.Duration {
	m := afterReset().FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	d, err := time.ParseDuration(m[1] + strings.ToLower(m[2]))
	if err != nil {
		return 0
	}
	return min(d, resetMax)
}
