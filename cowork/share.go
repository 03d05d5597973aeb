package cowork

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/skete-dev/skete/thread"
)

// This file keeps what all nodes use together within the limits of the workflow: what is
// promised to attempts under way is not given to others.

// amount is what limits bound: steps, tokens, and billionths of a dollar, so that parts of
// it add up.
type amount [3]int

var amountReasons = [...]string{ReasonSteps, ReasonTokens, ReasonCost}

const dollar = 1e9

func amountOf(steps, tokens int, usd float64) amount {
	a := amount{steps, tokens, int(math.Round(usd * dollar))}
	if usd > 0 {
		a[2] = max(a[2], 1) // 0 would be no limit
	}
	return a
}

func amountOfBudget(b thread.Budget) amount { return amountOf(b.Steps, b.Tokens, b.CostUSD) }

// limits are those of the workflow, 0 = none.
func (s *State) limits() amount { return amountOfBudget(thread.Budget(s.Workflow.Limits)) }

// spent is what the attempts that have ended spent.
func (s *State) spent() amount {
	return amountOf(s.Spent.Steps, s.Spent.Usage.Total(), s.Spent.CostUSD)
}

// unpromised is what limits leave that is neither spent nor promised to an attempt under way.
func (s *State) unpromised() amount {
	left, spent := s.limits(), s.spent()
	for i := range left {
		left[i] -= spent[i]
	}
	for _, n := range s.nodes {
		for _, i := range n.items {
			if a := i.running(); a != nil && n.Human == nil {
				for j, promised := range amountOfBudget(a.Budget) {
					left[j] -= promised
				}
			}
		}
	}
	return left
}

// shares says what the agents among those that can begin may use, of as many of them, in their
// order, as can get something: equal parts of what is left, but no more than the node may use,
// which leaves more to the others. The rest has to wait for what those under way leave. If none
// are under way the first one gets something: all is not used.
func (s *State) shares(list []beginning) []amount {
	var wishes []amount
	for _, b := range list {
		if b.n.Human == nil {
			wishes = append(wishes, amountOfBudget(thread.Budget(b.n.Limits)))
		}
	}
	limits, left, agents := s.limits(), s.unpromised(), len(wishes)
	for i, most := range limits {
		if most > 0 {
			agents = max(min(agents, left[i]), 0)
		}
	}
	wishes = wishes[:agents]
	for i, most := range limits {
		if most > 0 {
			divide(wishes, i, left[i])
		}
	}
	return wishes
}

// divide replaces wishes, 0 = as much as there is, by parts of what is left, which are at
// least 1. Precondition: there are not more of them than is left.
func divide(wishes []amount, i, left int) {
	order := make([]int, len(wishes)) // the modest first
	for at := range order {
		order[at] = at
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(uint(wishes[a][i]-1), uint(wishes[b][i]-1)) // 0 comes last
	})
	for done, at := range order {
		others := len(order) - done
		part := (left + others - 1) / others
		if wish := wishes[at][i]; wish > 0 {
			part = min(part, wish)
		}
		wishes[at][i] = part
		left -= part
	}
}

// budget is what an attempt may use: its share where the workflow has limits, else what the
// node may.
func (s *State) budget(n *node, share amount, now time.Time) thread.Budget {
	l := s.Workflow.Limits
	b := thread.Budget(n.Limits)
	if l.Steps > 0 {
		b.Steps = share[0]
	}
	if l.Tokens > 0 {
		b.Tokens = share[1]
	}
	if l.CostUSD > 0 {
		b.CostUSD = float64(share[2]) / dollar
	}
	if rest := l.Wall - s.Elapsed(now); l.Wall > 0 && (b.Wall == 0 || rest < b.Wall) {
		b.Wall = max(rest, time.Second)
	}
	return b
}
