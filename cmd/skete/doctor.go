package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/cmd/skete/internal/doctor"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/cmd/skete/internal/serve"
	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/template"
)

func (a program) doctorCommand() *cobra.Command {
	var fix bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what this machine can do, and what is missing",
		Long: `Look at this machine and say, item by item, what skete can do on it: ok, warn
(works, but weaker) or error. The status is 1 if there is an error. gVisor is
really booted once. Nothing is changed without --fix, which installs what is
small and safe (as root, with apt-get) and mends the data directory's bits.`,
		Example: `  skete doctor
  skete doctor --json
  sudo skete doctor --fix`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDoctor(cmd.Context(), fix) },
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "do what can be done safely")
	return cmd
}

func (a program) runDoctor(ctx context.Context, fix bool) error {
	// Everything that is tried is tried in a place of its own: the data
	// directory may belong to a server that runs.
	dir, err := os.MkdirTemp("", "skete-doctor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	host := a.hostIn(ctx, dir)
	checks := doctor.Run(ctx, host)
	if fix {
		if err := doctor.Fix(ctx, checks, a.Err); err != nil {
			return err
		}
		checks = doctor.Run(ctx, a.hostIn(ctx, dir))
	}
	if err := a.printChecks(checks); err != nil {
		return err
	}
	if doctor.Worst(checks) == doctor.Error {
		return app.Exit(1)
	}
	return nil
}

func (a program) printChecks(checks []doctor.Check) error {
	if a.JSON {
		return app.PrintJSON(a.Out, checks)
	}
	for _, c := range checks {
		if a.Quiet {
			if c.Status != doctor.OK {
				fmt.Fprintln(a.Out, c.Name)
			}
			continue
		}
		fmt.Fprintf(a.Out, "%-5s  %-15s  %s\n", c.Status, c.Name, app.Printable(c.Detail))
		if c.Hint != "" && c.Status != doctor.OK {
			fix := ""
			if c.Fixable {
				fix = " (or: skete doctor --fix)"
			}
			fmt.Fprintf(a.Out, "%-5s  %-15s  -> %s%s\n", "", "", app.Printable(c.Hint), fix)
		}
	}
	return nil
}

// hostIn describes this machine to the doctor; dir is for what is tried.
func (a program) hostIn(ctx context.Context, dir string) doctor.Host {
	listen := config.DefaultListen
	named := os.Getenv("SKETE_GUEST")
	if c, err := config.Load(config.Source{File: config.FileIn(os.Getenv("SKETE_CONFIG"), a.Home), Env: os.Environ()}); err == nil {
		listen, named = c.Listen, c.Guest
	}
	runsc := serve.Runsc(ctx, dir, a.Log)
	return doctor.Host{
		Home: a.Home, Listen: listen, Answers: launch.Answers(ctx, a.Home),
		Guest: func() (string, error) { return serve.Guest(named, dir) },
		Language: func(ctx context.Context, lang string) error {
			s, err := template.Open(filepath.Join(dir, "templates"))
			if err != nil {
				return err
			}
			return s.Language(ctx, template.HostName, lang)
		},
		Probe:  func(ctx context.Context) (string, []string, error) { return a.tryMachine(ctx, dir, runsc) },
		Volume: func(ctx context.Context) (string, bool, error) { return tryVolume(ctx, filepath.Join(dir, "volumes")) },
	}
}

// tryMachine boots a machine, and says which program was its kernel.
func (a program) tryMachine(ctx context.Context, dir, runsc string) (isolation string, notes []string, err error) {
	p, err := gvisor.New(gvisor.Config{Dir: filepath.Join(dir, "gvisor"), Runsc: runsc, Log: a.Log})
	if err != nil {
		return "", nil, err
	}
	defer p.Close()
	if err := p.Probe(ctx); err != nil {
		return "", nil, err
	}
	caps, by := p.Capabilities(), "skete-runsc"
	notes = caps.Notes
	if _, own := p.Program(); !own {
		by = "skete itself"
		notes = append(notes, "machines start more slowly, since skete was built without skete-runsc, or it cannot run here")
	}
	return fmt.Sprintf("%s (gVisor, run by %s)", caps.Isolation, by), notes, nil
}

// tryVolume makes a volume and removes it.
func tryVolume(ctx context.Context, dir string) (method string, enforced bool, err error) {
	const id = "sbx_doctordoctordoctordo"
	s, err := volume.Open(dir)
	if err != nil {
		return "", false, err
	}
	v, err := s.Create(ctx, id, 16<<20)
	if err != nil {
		return "", false, err
	}
	return v.Method, v.Enforced, s.Remove(context.WithoutCancel(ctx), id)
}
