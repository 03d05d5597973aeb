package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
)

func (a program) poolCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pool", Short: "Show the machines that are kept warm",
		Long: `Show the machines that the server keeps booted, so that a sandbox of the same shape
need not wait for one. How many are kept is in the file, in the list pool, or said
by the server's flag --pool.

REFILL says how further ones are made, booted or from a snapshot of one that was, and
how long the last one took; refill_note of --json says why there is no snapshot.`,
		Example: "  skete serve --pool size=5\n  skete pool\n  skete pool --json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			p, err := c.Pool(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, p)
			}
			if p.MemoryShort {
				a.Note("the host is short of memory: the pool gets smaller")
			}
			return app.List(a.App, p.Kinds, func(k api.PoolKind) string { return k.Provider + "/" + k.Template },
				[]string{"PROVIDER", "TEMPLATE", "CPUS", "MEMORY", "DISK", "WARM", "TARGET", "MAKING", "CLAIMS", "MISSES", "REFILL"}, poolRow)
		},
	}
}

func poolRow(k api.PoolKind) []string {
	return []string{
		k.Provider, k.Template, strconv.FormatFloat(k.CPUs, 'g', -1, 64), fmt.Sprintf("%d MB", k.MemoryMB), fmt.Sprintf("%d MB", k.DiskMB),
		strconv.Itoa(k.Warm), strconv.Itoa(k.Target), strconv.Itoa(k.Making),
		strconv.FormatUint(k.Claims, 10), strconv.FormatUint(k.Misses, 10), refillText(k),
	}
}

// refillText says how machines of the kind are made, and how long that takes, if known.
func refillText(k api.PoolKind) string {
	took := k.BootMS
	if k.Refill == "snapshot" {
		took = k.RestoreMS
	}
	if took == 0 {
		return k.Refill
	}
	return fmt.Sprintf("%s %.0f ms", k.Refill, took)
}
