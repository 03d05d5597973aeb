package capture

// This file cuts large files where their content says, so that an edit in
// the middle, or bytes inserted at the front, change few parts.
//
// # Algorithm
//
// FastCDC with normalised chunking (W. Xia et al., USENIX ATC 2016): a gear
// hash h = h<<1 + gear[b] over the bytes from chunkMin on; a part ends behind the
// first byte where h&maskSmall is 0 before chunkNormal bytes, h&maskLarge is 0
// behind, at chunkMax bytes at the latest. gear[i] is the i-th number of SplitMix64
// from the seed 0x736b657465, so that another implementation can have the
// same. Cuts are no part of the format: any list of parts can be read.
//
// All functions are pure.

// Lengths of parts in bytes.
const (
	chunkMin    = 256 << 10
	chunkNormal = 1 << 20
	chunkMax    = 4 << 20
)

const (
	maskSmall = 1<<22 - 1<<0
	maskLarge = 1<<18 - 1<<0
	gearSeed  = 0x736b657465
)

var gear = func() (g [256]uint64) {
	x := uint64(gearSeed)
	for i := range g {
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		g[i] = z ^ z>>31
	}
	return g
}()

// cutChunk returns the length of the first part of data: all of it, if there is no
// more than Min. Give it Max bytes, or all that are left.
func cutChunk(data []byte) int {
	if len(data) <= chunkMin {
		return len(data)
	}
	end := min(len(data), chunkMax)
	normal := min(end, chunkNormal)
	var h uint64
	i := chunkMin
	// High bits hold what the last 64 bytes were; low ones only the last few.
	for ; i < normal; i++ {
		if h = h<<1 + gear[data[i]]; h>>42&maskSmall == 0 {
			return i + 1
		}
	}
	for ; i < end; i++ {
		if h = h<<1 + gear[data[i]]; h>>42&maskLarge == 0 {
			return i + 1
		}
	}
	return end
}
