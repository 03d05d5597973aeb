package api

// Pool is what a server keeps warm.
type Pool struct {
	Kinds       []PoolKind `json:"kinds"`
	MemoryShort bool       `json:"memory_short" doc:"the host is short of memory: the pool gets smaller, and nothing is made"`
}

// PoolKind are the warm machines of one shape.
type PoolKind struct {
	Provider string  `json:"provider"`
	Template string  `json:"template"`
	CPUs     float64 `json:"cpus"`
	MemoryMB int     `json:"memory_mb"`
	DiskMB   int     `json:"disk_mb"`
	PidsMax  int     `json:"pids_max"`
	Root     bool    `json:"root,omitempty"`
	Network  bool    `json:"network,omitempty" doc:"they have one, whatever its policy"`
	Size     int     `json:"size" doc:"kept always"`
	Max      int     `json:"max" doc:"kept at most, when there is demand"`
	Target   int     `json:"target" doc:"wanted now"`
	Warm     int     `json:"warm"`
	Making   int     `json:"making"`
	Ending   int     `json:"ending"`
	Claims   uint64  `json:"claims" doc:"sandboxes that got a warm machine, since the server's start"`
	Misses   uint64  `json:"misses" doc:"sandboxes that had to boot"`
	Replaced uint64  `json:"replaced" doc:"machines that were stale, old or broken"`
	MakeMS   float64 `json:"make_ms,omitempty" doc:"to make the last one"`

	Refill        string  `json:"refill" enum:"boot,snapshot" doc:"how further ones are made: booted, or from a snapshot of the pool's own"`
	SnapshotBytes int64   `json:"snapshot_bytes,omitempty" doc:"that it takes on the disk"`
	BootMS        float64 `json:"boot_ms,omitempty" doc:"to boot the last one that was booted"`
	RestoreMS     float64 `json:"restore_ms,omitempty" doc:"to make the last one that came from a snapshot"`
	RefillNote    string  `json:"refill_note,omitempty" doc:"why there is no snapshot"`
}
