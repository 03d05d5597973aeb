// Package chaos kills a process that drives agents, again and again, and looks
// at what is left: a real supervisor on a real store, with kill -9 at random
// moments and at every write.
//
//	go test ./test/chaos                                  # 50 kills; 8 with -short
//	CHAOS_KILLS=1000 go test -timeout 60m ./test/chaos    # the long mode
//	CHAOS_SEED=42 go test -run TestKill_random ./test/chaos
//
// What the effects of the tools are is counted outside of the process that is
// killed, over a unix socket, where a machine would stand.
package chaos
