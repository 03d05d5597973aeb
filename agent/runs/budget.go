package runs

import (
	"time"

	"github.com/skete-dev/skete/thread"
)

// stepsMax is the budget of who states none.
const stepsMax = 500

// BudgetOf prefers what was asked for to what the agent's file says.
func BudgetOf(asked, file thread.Budget) thread.Budget {
	b := thread.Budget{Steps: Pick(asked.Steps, file.Steps), Tokens: Pick(asked.Tokens, file.Tokens), CostUSD: Pick(asked.CostUSD, file.CostUSD), Wall: Pick(asked.Wall, file.Wall)}
	if b.Steps == 0 {
		b.Steps = stepsMax
	}
	return b
}

// Pick returns the first value that is something.
func Pick[T comparable](values ...T) (none T) {
	for _, v := range values {
		if v != none {
			return v
		}
	}
	return none
}

// Within keeps a budget inside of what is left of another.
func Within(b, left thread.Budget) thread.Budget {
	least := func(x, y int) int {
		if x == 0 || (y != 0 && y < x) {
			return y
		}
		return x
	}
	b.Steps, b.Tokens = least(b.Steps, left.Steps), least(b.Tokens, left.Tokens)
	if b.CostUSD == 0 || (left.CostUSD > 0 && left.CostUSD < b.CostUSD) {
		b.CostUSD = left.CostUSD
	}
	if b.Wall == 0 || (left.Wall > 0 && left.Wall < b.Wall) {
		b.Wall = left.Wall
	}
	return b
}

// Left is what remains of a run's budget; 0 stays "no bound".
func Left(s *State, now time.Time) thread.Budget {
	b := s.Run.Budget
	rest := thread.Budget{}
	if b.Steps > 0 {
		rest.Steps = max(b.Steps-s.Run.Steps-s.Run.Below, 1)
	}
	if b.Tokens > 0 {
		rest.Tokens = max(b.Tokens-s.Run.Usage.Total(), 1)
	}
	if b.CostUSD > 0 {
		rest.CostUSD = max(b.CostUSD-s.Run.CostUSD, 1e-9)
	}
	if b.Wall > 0 {
		rest.Wall = max(b.Wall-s.Elapsed(now), time.Second)
	}
	return rest
}
