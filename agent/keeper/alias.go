package keeper

import (
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/workshop"
)

// What is asked of the Keeper and what it answers, so that its callers need one
// package.
type (
	Start    = runs.Start
	Run      = runs.Run
	Filter   = runs.Filter
	Page     = runs.Page
	Approval = runs.Approval
	Decide   = runs.Decide
	Live     = runs.Live
	LiveKind = runs.LiveKind
	Machines = workshop.Machines
	Machine  = workshop.Machine
	Mark     = workshop.Mark
	When     = workshop.When
	Change   = workshop.Change
	Wire     = workshop.Wire
)

// Where a revision lies, seen from an event.
const (
	Elsewhere = workshop.Elsewhere
	Earlier   = workshop.Earlier
	Between   = workshop.Between
	Later     = workshop.Later
)
