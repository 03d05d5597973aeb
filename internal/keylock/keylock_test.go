package keylock

import (
	"sync"
	"testing"
)

func TestLock_excludesByKeyAndForgets(t *testing.T) {
	var locks Locks[int]
	counts := [3]int{} // each guarded by its key's lock; -race watches
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			defer locks.Lock(i % 3)()
			counts[i%3]++
		})
	}
	wg.Wait()
	if counts != [3]int{100, 100, 100} || len(locks.held) != 0 {
		t.Fatalf("%v, %d locks kept", counts, len(locks.held))
	}
}
