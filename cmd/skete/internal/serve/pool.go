package serve

import (
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/pool"
)

// warmConfig says what the configuration keeps warm.
func warmConfig(c config.Config) pool.Config {
	out := pool.Config{DemandMax: c.PoolDemand, Refill: pool.Refill(c.PoolRefill)}
	for _, p := range c.Pool {
		out.Sizes = append(out.Sizes, pool.Size{
			Spec: sandbox.Spec{
				Template: p.Template, Language: p.Language, Provider: p.Provider,
				CPUs: p.CPUs, MemoryMB: p.MemoryMB, DiskMB: p.DiskMB, PidsMax: p.Pids,
			},
			Size: p.Size, Max: p.Max,
		})
	}
	return out
}

// warm shows the pool of a manager. It is a server.Warm.
type warm struct{ m *manager.Manager }

func (w warm) Pool() api.Pool {
	s := w.m.Pool()
	p := api.Pool{MemoryShort: s.Tight}
	for _, k := range s.Kinds {
		p.Kinds = append(p.Kinds, api.PoolKind{
			Provider: k.Shape.Provider, Template: k.Shape.Template, CPUs: k.Shape.CPUs, MemoryMB: k.Shape.MemoryMB,
			DiskMB: k.Shape.DiskMB, PidsMax: k.Shape.PidsMax, Root: k.Shape.Root, Network: k.Shape.Network,
			Size: k.Size, Max: k.Max, Target: k.Target, Warm: k.Warm, Making: k.Making, Ending: k.Ending,
			Claims: k.Claims, Misses: k.Misses, Replaced: k.Replaced, MakeMS: k.MakeMS,
			Refill: string(k.Refill()), SnapshotBytes: k.SnapshotBytes, BootMS: k.BootMS, RestoreMS: k.RestoreMS, RefillNote: k.Note,
		})
	}
	return p
}
