//go:build !amd64

package microvm

func readTSC() uint64 { return 0 }
