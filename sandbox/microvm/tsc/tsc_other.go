//go:build !amd64

package tsc

func readTSC() uint64 { return 0 }
