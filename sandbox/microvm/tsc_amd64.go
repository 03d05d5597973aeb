package microvm

// readTSC reads the time stamp counter (tsc_amd64.s).
func readTSC() uint64
