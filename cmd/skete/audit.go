package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/audit"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a program) auditGroup() *cobra.Command {
	cmd := app.Group("audit", "See who did what, and whether that is what was written", `  skete audit list --what tool
  skete audit list --on ID --since 1h
  skete audit verify
  skete audit export > audit.log && skete audit verify audit.log`)
	cmd.AddCommand(a.auditList(), a.auditVerify(), a.auditExport())
	return cmd
}

func (a program) auditList() *cobra.Command {
	var q client.AuditQuery
	var since string
	count := 0
	cmd := &cobra.Command{
		Use: "list", Short: "List who did what, the oldest first",
		Long: `List the newest records of the audit log, the oldest of them first: calls of the API
that may change something or were refused, what agents did, what was decided about
them, states of sandboxes and runs, revisions of files, what networks allowed and
refused, and uses of secrets and models.`,
		Example: "  skete audit list\n  skete audit list --what tool.started --on RUN\n  skete audit list --who ci --since 24h --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || count > 100_000 {
				return errs.New(errs.Invalid, "-n: %d is not 1 to 100000", count)
			}
			if since != "" {
				ms, err := app.Milliseconds("since", since)
				if err != nil {
					return err
				}
				q.Since = time.Now().Add(-time.Duration(ms) * time.Millisecond)
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			var list []api.AuditRecord
			for len(list) < count {
				q.PageSize = min(count-len(list), audit.PageMax)
				page, err := c.Audit(cmd.Context(), q)
				if err != nil {
					return err
				}
				list = append(list, page...)
				if len(page) < q.PageSize {
					break
				}
				q.Before = page[len(page)-1].N
			}
			slices.Reverse(list)
			return app.List(a.App, list, func(r api.AuditRecord) string { return strconv.FormatUint(r.N, 10) },
				[]string{"N", "TIME", "WHO", "WHAT", "ON", "RESULT", ""}, func(r api.AuditRecord) []string {
					return []string{strconv.FormatUint(r.N, 10), r.Time.Local().Format(time.DateTime), r.Who, r.What, r.On, r.Result, detailText(r.Detail)}
				})
		},
	}
	f := cmd.Flags()
	f.IntVarP(&count, "count", "n", 100, "how many at most")
	f.StringVar(&since, "since", "", "of the last 90 (seconds), 5m, 2h")
	f.StringVar(&q.Who, "who", "", "by this one alone: the name of a key, a login, 'run RUN'")
	f.StringVar(&q.What, "what", "", "of this kind: tool.started, or tool for all that begin so")
	f.StringVar(&q.On, "on", "", "about this sandbox, thread or other thing, by its id")
	f.StringVar(&q.Tenant, "tenant", "", "of this tenant alone")
	return cmd
}

// detailText is the details of a record on one line.
func detailText(detail map[string]string) string {
	var parts []string
	for k, v := range detail {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func (a program) auditVerify() *cobra.Command {
	expect := ""
	cmd := &cobra.Command{
		Use: "verify [FILE…]", Short: "Look whether the audit log is what was written",
		Long: `Look whether the audit log is what was written: each record's hash covers all records
before it. What was changed, removed or added is named with the number of the first
bad record, and the exit status is 1. With files, which are read in this order and not
from the server, what export wrote or the files of a copied data directory are looked at.

Who can write the files can write another chain, too. --expect compares with a number
and a hash that an earlier verify has printed, and that you keep elsewhere.`,
		Example: "  skete audit verify\n  skete audit verify --expect 1204:9f86d081884c7d65…\n  skete audit verify copy/audit/*.log",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.audited(cmd, args, expect)
			if err != nil {
				return err
			}
			if err := a.printAudit(r); err != nil {
				return err
			}
			if len(r.Bad) > 0 {
				return app.Exit(1)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&expect, "expect", "", "N:HASH of a record that an earlier verify printed")
	return cmd
}

// audited verifies files, or the server's log.
func (a program) audited(cmd *cobra.Command, paths []string, expect string) (audit.Report, error) {
	mark, err := parseMark(expect)
	if err != nil {
		return audit.Report{}, err
	}
	if len(paths) > 0 {
		var all []io.Reader
		for _, path := range paths {
			f, err := os.Open(path)
			if err != nil {
				return audit.Report{}, errs.Wrap(errs.Invalid, err, "cannot read the file")
			}
			defer f.Close()
			all = append(all, f)
		}
		return audit.Verify(io.MultiReader(all...), mark)
	}
	c, err := a.Connect(cmd.Context())
	if err != nil {
		return audit.Report{}, err
	}
	r, err := c.VerifyAudit(cmd.Context())
	if err != nil {
		return audit.Report{}, err
	}
	// The server knows where its log ends; what else is to be seen, is seen here.
	in, w := io.Pipe()
	go func() { w.CloseWithError(c.ExportAudit(cmd.Context(), w)) }()
	defer in.Close()
	ours, err := audit.Verify(in, mark)
	if err != nil {
		return audit.Report{}, err
	}
	for _, b := range r.Bad {
		if !slices.ContainsFunc(ours.Bad, func(x audit.Bad) bool { return x.N == b.N }) {
			ours.Bad = append(ours.Bad, audit.Bad{N: b.N, File: b.File, Line: b.Line, Why: b.Why})
		}
	}
	slices.SortStableFunc(ours.Bad, func(x, y audit.Bad) int { return int(int64(x.N) - int64(y.N)) })
	return ours, nil
}

func parseMark(s string) (audit.Head, error) {
	if s == "" {
		return audit.Head{}, nil
	}
	number, hash, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || n == 0 || len(hash) != 64 {
		return audit.Head{}, errs.New(errs.Invalid, "--expect: %.100q is no N:HASH as verify prints it", s)
	}
	return audit.Head{N: n, Hash: strings.ToLower(hash)}, nil
}

func (a program) printAudit(r audit.Report) error {
	if a.JSON {
		return app.PrintJSON(a.Out, r)
	}
	for _, b := range r.Bad {
		where := ""
		if b.File != "" {
			where = fmt.Sprintf(" (%s, line %d)", b.File, b.Line)
		}
		if _, err := fmt.Fprintf(a.Out, "record %d: %s%s\n", b.N, b.Why, where); err != nil {
			return err
		}
	}
	verdict := "all of it is what was written"
	if len(r.Bad) > 0 {
		verdict = "it is NOT what was written"
	}
	_, err := fmt.Fprintf(a.Out, "%d records, %d to %d: %s\n", r.Records, r.First, r.Last, verdict)
	if err == nil && r.Last > 0 && len(r.Bad) == 0 {
		_, err = fmt.Fprintf(a.Out, "keep this elsewhere to compare with later: %d:%s\n", r.Last, r.Hash)
	}
	return err
}

func (a program) auditExport() *cobra.Command {
	return &cobra.Command{
		Use: "export", Short: "Write the audit log to the standard output, as it is in its files",
		Long: `Write the audit log to the standard output as it is in its files: a line for each record,
its hash and its JSON; a line that begins with a brace is the first one of a file.`,
		Example: "  skete audit export > audit.log\n  skete audit export | grep -v '^{' | cut -d' ' -f2- | jq .what",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			return c.ExportAudit(cmd.Context(), a.Out)
		},
	}
}
