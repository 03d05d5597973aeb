// Package state computes what a thread's events mean: State is their fold, and
// Next says what is to be done. Both are pure: no clock, no files, no network.
//
//	s := state.New()
//	for event := range events { err := s.Apply(event) }
//	switch s.Next(now).Kind { case state.CallModel: … }
//
// Everything that drives or shows a run stands on this, so that a restart, a
// second server and a viewer cannot disagree about where a run is.
//
// A State belongs to one goroutine.
package state
