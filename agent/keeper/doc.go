// Package keeper keeps runs going: it starts them, wakes them after a restart,
// a decision, a message or the end of a sub-agent, and knows them all.
package keeper
