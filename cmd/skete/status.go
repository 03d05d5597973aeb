package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/cmd/skete/internal/serve"
	"github.com/skete-dev/skete/errs"
)

// Time limits of looking at a server.
const (
	askTimeout     = 10 * time.Second
	measureTimeout = 3 * time.Second
)

// notRunning is the exit status of `status` where no server takes requests.
const notRunning = 1

// States of a server.
const (
	serverRuns   = "running" // it takes requests
	serverBusy   = "busy"    // there is one, and it takes none: it starts, ends, or hangs
	serverAbsent = "stopped" // there is none
)

// serverStatus is what `skete status --json` prints.
type serverStatus struct {
	State     string     `json:"state"` // running, busy, stopped
	PID       int        `json:"pid,omitempty"`
	Version   string     `json:"version,omitempty"`
	Home      string     `json:"home,omitempty"` // "" = the server is elsewhere
	URL       string     `json:"url,omitempty"`
	Socket    string     `json:"socket,omitempty"`
	Log       string     `json:"log,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`

	Tenant          string             `json:"tenant,omitempty"`    // whose runs are counted
	Sandboxes       map[string]int     `json:"sandboxes"`           // by state; of all tenants, where we may ask
	Runs            map[string]int     `json:"runs"`                // by state, those that are not over
	Starting        string             `json:"starting,omitempty"`  // what a server does that does not take requests yet
	Attaching       *api.Attaching     `json:"attaching,omitempty"` // of a server that has just started
	Providers       []api.ProviderInfo `json:"providers"`
	DefaultProvider string             `json:"default_provider,omitempty"`
	Limits          api.Limits         `json:"limits"` // of our tenant
	Used            api.Used           `json:"used"`
	Disk            *diskUse           `json:"disk,omitempty"`

	why error // that it takes no requests
}

// diskUse is what a data directory takes of its file system.
type diskUse struct {
	UsedBytes  int64            `json:"used_bytes"`
	Parts      map[string]int64 `json:"parts"`             // by directory
	Partial    bool             `json:"partial,omitempty"` // it was not all looked at
	FreeBytes  int64            `json:"free_bytes"`
	TotalBytes int64            `json:"total_bytes"`
}

func (a program) status() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Say whether a server runs, and what it does",
		Long: `Say whether a server runs, its process, version, data directory and addresses,
since when, the sandboxes by state, the runs that are not over, the providers,
and what the data directory takes of the disk. It starts no server.

Exit status: 0 a server takes requests, 1 none does.`,
		Example: `  skete status
  skete status --json
  skete status -q && echo yes    # prints the process id alone`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := a.look(cmd.Context())
			if err != nil {
				return err
			}
			if st.Home != "" {
				st.Disk = measure(cmd.Context(), st.Home)
			}
			if err := a.printStatus(st); err != nil {
				return err
			}
			if st.State != serverRuns {
				return app.Exit(notRunning)
			}
			return nil
		},
	}
	return cmd
}

// look asks a server about itself, if there is one.
func (a program) look(ctx context.Context) (serverStatus, error) {
	st := serverStatus{State: serverAbsent, URL: a.URL, Sandboxes: map[string]int{}, Runs: map[string]int{}, Providers: []api.ProviderInfo{}}
	if a.Local() {
		st.Home, st.Socket, st.Log = a.Home, client.SocketPath(a.Home), launch.LogPath(a.Home)
		p, err := launch.Holder(ctx, a.Home)
		if err != nil || p == nil {
			return st, err
		}
		p.Close()
		st.PID, st.State = p.PID, serverBusy
		st.Starting = launch.Starting(a.Home, p.PID)
		st.facts()
	}
	c, err := a.Dial()
	if err != nil {
		return st, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if st.why = c.Ready(ctx); st.why != nil {
		return st, nil
	}
	st.State, st.Starting = serverRuns, ""
	return st, st.ask(ctx, c)
}

// facts are what the server has written about itself.
func (st *serverStatus) facts() {
	var f serve.Facts
	data, err := os.ReadFile(serve.FactsPath(st.Home))
	if err != nil || json.Unmarshal(data, &f) != nil || f.PID != st.PID {
		return // it has not got so far, or runs in a namespace of its own
	}
	st.Version, st.URL, st.StartedAt = f.Version, f.URL, &f.StartedAt
}

func (st *serverStatus) ask(ctx context.Context, c *client.Client) error {
	info, err := c.Info(ctx)
	if err != nil {
		return err
	}
	st.Version, st.Providers, st.DefaultProvider, st.Attaching = info.Version, info.Providers, info.Default, info.Attaching
	st.Limits, st.Used = info.Limits, info.Used
	if who, err := c.Login(ctx); err == nil {
		st.Tenant = who.Tenant
	}
	if err := st.countSandboxes(ctx, c); err != nil {
		return err
	}
	for r, err := range c.Runs(ctx, client.RunFilter{State: "pending,running,interrupted"}) {
		if errs.Is(err, errs.Unsupported) {
			break // it runs no agents
		}
		if err != nil {
			return err
		}
		st.Runs[r.State]++
	}
	return nil
}

var censusLine = regexp.MustCompile(`(?m)^skete_sandboxes\{[^}]*state="([a-z]+)"[^}]*\} ([0-9]+)$`)

// countSandboxes counts those of all tenants, or of ours where we may see no others.
func (st *serverStatus) countSandboxes(ctx context.Context, c *client.Client) error {
	if text, err := c.Metrics(ctx); err == nil {
		for _, m := range censusLine.FindAllStringSubmatch(text, -1) {
			if n, err := strconv.Atoi(m[2]); err == nil && n > 0 {
				st.Sandboxes[m[1]] += n
			}
		}
		return nil
	}
	for s, err := range c.Sandboxes(ctx, client.SandboxFilter{}) {
		if err != nil {
			return err
		}
		st.Sandboxes[s.State]++
	}
	return nil
}

// measure sums what the parts of a data directory take, for a moment. What is
// mounted there (workspaces) is counted as the image that it is.
func measure(ctx context.Context, home string) *diskUse {
	var fsys unix.Statfs_t
	var top unix.Stat_t
	if unix.Statfs(home, &fsys) != nil || unix.Stat(home, &top) != nil {
		return nil
	}
	d := &diskUse{Parts: map[string]int64{}, FreeBytes: int64(fsys.Bavail) * fsys.Bsize, TotalBytes: int64(fsys.Blocks) * fsys.Bsize}
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	seen := map[uint64]bool{} // files with several names
	_ = filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			d.Partial = true
			return fs.SkipAll
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			return nil // it has gone meanwhile
		}
		if st.Dev != top.Dev {
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil {
			d.Partial = true
			return fs.SkipDir
		}
		if st.Nlink > 1 && !e.IsDir() {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		rel, _ := filepath.Rel(home, path)
		part, _, inside := strings.Cut(rel, "/")
		if !inside && !e.IsDir() || part == "." {
			part = "other"
		}
		d.Parts[part] += st.Blocks * 512
		d.UsedBytes += st.Blocks * 512
		return nil
	})
	return d
}

func (a program) printStatus(st serverStatus) error {
	switch {
	case a.JSON:
		return app.PrintJSON(a.Out, st)
	case a.Quiet:
		if st.State != serverRuns || st.PID == 0 {
			return nil
		}
		_, err := fmt.Fprintln(a.Out, st.PID)
		return err
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	switch st.State {
	case serverAbsent:
		line("server", "none runs; the next command that needs one starts it, or `skete serve`")
		if st.Home == "" {
			b.Reset()
			line("server", "does not answer: %v", st.why)
		}
	case serverBusy:
		what := "starts or ends"
		switch {
		case st.Starting != "":
			what = "starts: " + st.Starting
		case st.StartedAt != nil:
			what = "does not answer"
		}
		line("server", "%s, pid %d: %s", what, st.PID, app.Cell(fmt.Sprint(st.why)))
	default:
		text := "running, version " + app.Cell(st.Version)
		if st.PID > 0 {
			text = fmt.Sprintf("running, pid %d, version %s", st.PID, app.Cell(st.Version))
		}
		line("server", "%s", text)
	}
	if st.StartedAt != nil {
		line("since", "%s (%s)", st.StartedAt.Local().Format(time.DateTime), app.Age(*st.StartedAt))
	}
	if st.URL != "" {
		line("address", "%s", app.Cell(st.URL))
	}
	if st.Home != "" {
		if st.State != serverAbsent {
			line("socket", "%s", st.Socket)
		}
		line("data", "%s", st.Home)
		if _, err := os.Stat(st.Log); err == nil {
			line("log", "%s (of servers in the background)", st.Log)
		}
	}
	if st.State == serverRuns {
		if p := st.Attaching; p != nil {
			line("starting", "attaching sandboxes, %d of %d done", p.Done, p.Total)
		}
		line("sandboxes", "%s", countsText(st.Sandboxes))
		line("runs", "%s", countsText(st.Runs))
		line("tenant", "%s", quotaText(st.Limits, st.Used))
		for i, p := range st.Providers {
			line([]string{"providers", ""}[min(i, 1)], "%s", providerText(p, st.DefaultProvider))
		}
	}
	if st.Disk != nil {
		line("disk", "%s", st.Disk)
	}
	_, err := fmt.Fprint(a.Out, b.String())
	return err
}

// quotaText says what our tenant has of what it may have.
func quotaText(l api.Limits, u api.Used) string {
	of := func(most float64) string {
		if most <= 0 {
			return ""
		}
		return fmt.Sprintf(" of %g", most)
	}
	return fmt.Sprintf("%d of %d sandboxes, %g%s cpus, %d%s MB of memory, %d%s MB of disk promised, %d held, %s of looking at files",
		u.Sandboxes, l.Sandboxes, u.CPUs, of(l.TenantCPUs), u.MemoryMB, of(float64(l.TenantMemoryMB)), u.DiskMB, of(float64(l.TenantDiskMB)), u.DiskHeldMB,
		time.Duration(u.LookMS)*time.Millisecond)
}

// countsText lists counts, the most frequent first.
func countsText(counts map[string]int) string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		if d := counts[y] - counts[x]; d != 0 {
			return d
		}
		return strings.Compare(x, y)
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], app.Cell(name)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func providerText(p api.ProviderInfo, chosen string) string {
	if !p.OK {
		return fmt.Sprintf("%s cannot be used: %s", app.Cell(p.Name), app.Cell(p.Error))
	}
	text := fmt.Sprintf("%s (%s)", app.Cell(p.Name), app.Cell(p.Isolation))
	if p.Name == chosen {
		text += ", taken where none is named"
	}
	return text
}

func (d *diskUse) String() string {
	names := make([]string, 0, len(d.Parts))
	for name := range d.Parts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		if d.Parts[x] != d.Parts[y] {
			return int(min(max(d.Parts[y]-d.Parts[x], -1), 1))
		}
		return strings.Compare(x, y)
	})
	var parts []string
	for _, name := range names[:min(4, len(names))] {
		parts = append(parts, app.Cell(name)+" "+app.BytesText(d.Parts[name]))
	}
	used := app.BytesText(d.UsedBytes)
	if d.Partial {
		used = "at least " + used
	}
	text := fmt.Sprintf("%s used", used)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return fmt.Sprintf("%s, %s free of %s", text, app.BytesText(d.FreeBytes), app.BytesText(d.TotalBytes))
}
