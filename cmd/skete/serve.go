package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/cmd/skete/internal/serve"
	"github.com/skete-dev/skete/errs"
)

// serveFlags are settings of the server that have a flag of their own; --set
// reaches all others.
type serveFlags struct {
	file, listen, logFormat string
	providers               []string
	unsafe, background      bool
	set, pool               []string
}

func (a program) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the server",
		Long: `Run the server in the foreground until SIGTERM or Ctrl-C; a second one ends it at
once. Sandboxes live on: the next server of the same data directory finds them.

It listens on skete.sock in the data directory, where root and the server's own
user need no key, and on ` + config.DefaultListen + `, where everyone needs one. The first
start prints an admin key, once.

Settings come from skete.yaml in the data directory (--config, $SKETE_CONFIG),
then from variables, then from flags; the last one wins. Keys of the file, each
also a variable (limits.memory_mb is SKETE_LIMITS_MEMORY_MB) and a --set:

` + wrap(config.Keys(), 78),
		Example: `  skete serve
  skete serve --home /srv/skete --listen 127.0.0.1:8000
  skete serve --listen '' --log-format json
  skete serve --set limits.sandboxes=20 --set defaults.memory_mb=1024`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runServer(cmd, &f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.file, "config", os.Getenv("SKETE_CONFIG"), "configuration file (default $SKETE_CONFIG or skete.yaml in the data directory)")
	fs.Lookup("config").DefValue = ""
	fs.StringVar(&f.listen, "listen", "", "TCP address; '' = the unix socket alone (default "+config.DefaultListen+")")
	fs.StringSliceVar(&f.providers, "providers", nil, "providers that may be used (default firecracker, qemu, gvisor)")
	fs.BoolVar(&f.unsafe, "unsafe-no-isolation", false, "allow the provider process, which isolates NOTHING")
	fs.StringVar(&f.logFormat, "log-format", "", "text or json (default text)")
	fs.StringArrayVar(&f.pool, "pool", nil, "machines to keep warm: `size=5,template=debian`, keys as in the file's pool (may be repeated)")
	fs.StringArrayVar(&f.set, "set", nil, "any setting: `key=value` (may be repeated)")
	fs.BoolVar(&f.background, "background", false, "")
	_ = fs.MarkHidden("background")
	return cmd
}

// wrap writes words in indented lines.
func wrap(words []string, width int) string {
	var b strings.Builder
	n := 0
	for _, w := range words {
		if n == 0 || n+1+len(w) > width {
			if n > 0 {
				b.WriteString("\n")
			}
			b.WriteString(" ")
			n = 1
		}
		b.WriteString(" " + w)
		n += 1 + len(w)
	}
	return b.String()
}

// settings reads the server's configuration.
func (a program) settings(cmd *cobra.Command, f *serveFlags) (config.Config, error) {
	s := config.Source{File: config.FileIn(f.file, a.Home), Env: os.Environ(), Set: f.set, Pool: f.pool}
	if f.background && filepath.Clean(a.Home) != filepath.Clean(app.DefaultHome()) {
		// The fixed port belongs to the server of the usual place.
		free := "127.0.0.1:0"
		s.Listen = &free
	}
	changed := cmd.Flags().Changed
	if changed("listen") {
		s.Set = append(s.Set, "listen="+f.listen)
	}
	if changed("providers") {
		s.Set = append(s.Set, "providers="+strings.Join(f.providers, ","))
	}
	if changed("unsafe-no-isolation") {
		s.Set = append(s.Set, "unsafe_no_isolation="+strconv.FormatBool(f.unsafe))
	}
	if changed("log-format") {
		s.Set = append(s.Set, "log.format="+f.logFormat)
	}
	if changed("log-level") {
		s.Set = append(s.Set, "log.level="+a.LogLevel)
	}
	return config.Load(s)
}

func (a program) runServer(cmd *cobra.Command, f *serveFlags) error {
	c, err := a.settings(cmd, f)
	if err != nil {
		return err
	}
	if c.UnsafeNoIsolation {
		_, _ = a.Err.Write([]byte("skete: WARNING: --unsafe-no-isolation: sandboxes of the provider process run on this host as the server itself does\n"))
	}
	ctx, stop := serverSignals(cmd.Context())
	defer stop()
	err = serve.Run(ctx, serve.Config{Config: c, Home: a.Home, Version: version, Log: a.serverLog(c.Log), Say: a.Err})
	if errs.Is(err, errs.Exists) {
		a.Complain(err)
		return app.Exit(launch.InUse)
	}
	return err
}

func (a program) serverLog(l config.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // checked by config
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(a.Err, o))
	}
	return slog.New(slog.NewTextHandler(a.Err, o))
}

// serverSignals ends the context by the first INT or TERM and the process by
// the second. HUP is ignored: a server outlives its terminal.
func serverSignals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) // QUIT dumps stacks again
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	// Caught and dropped, not ignored: an ignored signal stays ignored in all
	// programs that we start.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		select {
		case <-ch:
			cancel()
		case <-done:
			return
		}
		select {
		case <-ch:
			os.Exit(app.OwnFailure)
		case <-done:
		}
	}()
	return ctx, func() {
		close(done)
		cancel()
	}
}
