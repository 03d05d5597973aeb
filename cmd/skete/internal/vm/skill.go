package vm

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/skill"
)

// This file is the command group `skete skill`: folders that teach agents how a kind of work
// is done.

// skillCommands are the commands of one run.
type skillCommands struct{ *app.App }

// shortVersion is how much of a version people are shown.
const shortVersion = 12

// SkillCommand returns the group.
func SkillCommand(run *app.App) *cobra.Command {
	a := skillCommands{run}
	cmd := app.Group("skill", "Teach agents how a kind of work is done: folders with SKILL.md", `  skete skill validate ./pdf-forms
  skete skill install ./pdf-forms
  skete skill install provided:data-report
  skete skill install https://git.example.com/team/skills.git --path skills/pdf-forms
  skete skill upgrade pdf-forms ./pdf-forms
  skete skill rollback pdf-forms
  skete skill trust pdf-forms`)
	cmd.AddCommand(a.validate(), a.install(), a.list(), a.provided(), a.show(), a.upgrade(), a.rollback(), a.trust(), a.agents(), a.remove())
	return cmd
}

// skillFlags say where a skill is, and whether it is asked about.
type skillFlags struct {
	path        string
	agents      []string
	dryRun, yes bool
	trust       bool
}

func (f *skillFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.path, "path", "", "the folder in the archive or repository that holds SKILL.md, if there are several")
	fs.StringArrayVar(&f.agents, "agent", nil, "for this agent alone, by name (may be repeated)")
	fs.BoolVar(&f.trust, "trust", false, "approve its allowed-tools beforehand, of this version alone")
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would be installed, and install nothing")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
}

const skillSource = `SOURCE is a folder, a zip, a tar, a tar.gz, a git repository as https://… or
file:///…, or provided:NAME for one that comes with skete. Nothing of it is run. At
most 16 MiB, 10 MiB a file, 1,000 files; links that leave the folder are refused.`

// providedPrefix begins the source of a skill that comes with skete.
const providedPrefix = "provided:"

// loadSkill loads a skill from where people have it.
func loadSkill(ctx context.Context, source, within string) (skill.Tree, error) {
	if name, is := strings.CutPrefix(source, providedPrefix); is {
		return skill.Provided(name)
	}
	if strings.Contains(source, "://") {
		return skill.Git(ctx, source, within)
	}
	info, err := os.Stat(source)
	if err != nil {
		return skill.Tree{}, errs.Wrap(errs.NotFound, err, "%.200s: there is no such folder or archive", source)
	}
	if info.IsDir() {
		return skill.Folder(source)
	}
	if info.Size() > skill.ArchiveBytesMax {
		return skill.Tree{}, errs.New(errs.Limit, "the archive is larger than %d MiB", skill.ArchiveBytesMax>>20)
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return skill.Tree{}, errs.Wrap(errs.Invalid, err, "%.200s: it cannot be read", source)
	}
	return skill.Archive(data, within)
}

// validated is what `skete skill validate --json` prints.
type validated struct {
	Valid    bool           `json:"valid"`
	Name     string         `json:"name,omitempty"`
	Version  string         `json:"version,omitempty"`
	Files    int            `json:"files"`
	Bytes    int64          `json:"bytes"`
	Problems []skillProblem `json:"problems"`
	Warnings []skillProblem `json:"warnings"`
}

type skillProblem struct {
	Where string `json:"where"`
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`
}

func problemsView(list []skill.Problem) []skillProblem {
	out := []skillProblem{}
	for _, p := range list {
		out = append(out, skillProblem(p))
	}
	return out
}

func (a skillCommands) validate() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "validate SOURCE", Short: "Hold a skill against every rule of the standard",
		Long: "Hold a skill against every rule of the standard (agentskills.io), strictly. No server\nis needed. The exit status is 1 if it breaks a rule.\n\n" + skillSource,
		Example: `  skete skill validate ./pdf-forms
  skete skill validate pdf-forms.zip --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := loadSkill(cmd.Context(), args[0], path)
			if err != nil {
				return err
			}
			problems := skill.Validate(t)
			s, warnings, _ := skill.Load(t)
			if len(problems) > 0 {
				warnings = nil // those are the problems again
			}
			v := validated{len(problems) == 0, s.Name, t.Version(), len(t.Files), t.Bytes(), problemsView(problems), problemsView(warnings)}
			return a.printValidated(v, problems, warnings)
		},
	}
	cmd.Flags().StringVar(&path, "path", "", "the folder in the archive or repository that holds SKILL.md, if there are several")
	return cmd
}

// providedView is what `skete skill provided --json` prints of each.
type providedView struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     string `json:"version"`
}

func (a skillCommands) provided() *cobra.Command {
	return &cobra.Command{
		Use: "provided", Short: "List the skills that come with skete",
		Long:    "List the skills that come with skete. No server is needed; none is installed before\nyou do that.",
		Example: "  skete skill provided\n  skete skill install provided:python-security-audit",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var all []providedView
			for _, name := range skill.ProvidedNames() {
				t, err := skill.Provided(name)
				if err != nil {
					return err
				}
				s, _, err := skill.Load(t)
				if err != nil {
					return err
				}
				all = append(all, providedView{s.Name, s.Description, t.Version()})
			}
			if a.JSON {
				return app.PrintJSON(a.Out, all)
			}
			for _, p := range all {
				if _, err := fmt.Fprintf(a.Out, "%s\n    %s\n", p.Name, p.Description); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (a skillCommands) printValidated(v validated, problems, warnings []skill.Problem) error {
	if a.JSON {
		if err := app.PrintJSON(a.Out, v); err != nil || v.Valid {
			return err
		}
		return app.Exit(1)
	}
	for _, w := range warnings {
		a.Note("note: %s", app.Printable(w.String()))
	}
	if err := skill.Error(problems); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.Out, "%s is a skill: version %.12s, %d files, %s\n", v.Name, v.Version, v.Files, app.BytesText(v.Bytes))
	return err
}

func (a skillCommands) install() *cobra.Command {
	var f skillFlags
	cmd := &cobra.Command{
		Use: "install SOURCE", Short: "Install a skill, after showing it",
		Long:    "Install a skill for all agents of the tenant, or those that are named. It is shown\nfirst; without a terminal to ask at say --yes.\n\n" + skillSource,
		Example: "  skete skill install ./pdf-forms\n  skete skill install pdf-forms.zip --agent reviewer --yes\n  skete skill install https://git.example.com/team/skills.git --path skills/pdf-forms --dry-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.put(cmd.Context(), "", args[0], f)
		},
	}
	f.register(cmd)
	return cmd
}

func (a skillCommands) upgrade() *cobra.Command {
	var f skillFlags
	cmd := &cobra.Command{
		Use: "upgrade NAME SOURCE", Short: "Install a new version of a skill, after showing it",
		Long:    "Install a new version of a skill. Runs that are under way keep theirs. The version\nbefore is kept: see skete skill rollback.\n\n" + skillSource,
		Example: "  skete skill upgrade pdf-forms ./pdf-forms\n  skete skill upgrade pdf-forms pdf-forms.zip --dry-run",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.put(cmd.Context(), args[0], args[1], f)
		},
	}
	f.register(cmd)
	return cmd
}

// put installs a skill; was is the name of the one that it is a version of, "" = it is new.
func (a skillCommands) put(ctx context.Context, was, source string, f skillFlags) error {
	t, err := loadSkill(ctx, source, f.path)
	if err != nil {
		return err
	}
	if err := skill.Error(skill.Validate(t)); err != nil {
		return err
	}
	s, warnings, err := skill.Load(t)
	if err != nil {
		return err
	}
	if was != "" && s.Name != was {
		return errs.New(errs.Invalid, "this is the skill %s, not %.80s", s.Name, was)
	}
	c, err := a.Connect(ctx)
	if err != nil {
		return err
	}
	if was != "" {
		before, err := c.Skill(ctx, was, "")
		if err != nil {
			return err
		}
		a.Note("version %.12s is there now", before.Version)
		if before.Trusted && !f.trust && before.Version != t.Version() {
			a.Note("it is trusted, which says nothing of this one; to trust it too say --trust")
		}
	}
	a.preview(s, t, warnings, f.trust)
	data, err := t.Tar()
	if err != nil {
		return err
	}
	in := api.InstallSkill{Archive: data, From: source, New: was == "", Trust: f.trust, DryRun: f.dryRun}
	if len(f.agents) > 0 {
		in.Agents = &f.agents
	}
	if !f.dryRun {
		if ok, err := a.Agree(f.yes, "Install it?"); err != nil || !ok {
			return err
		}
	}
	out, err := c.InstallSkill(ctx, in)
	if err != nil {
		return err
	}
	return a.print(out)
}

// preview shows what is about to be installed.
func (a skillCommands) preview(s skill.Skill, t skill.Tree, warnings []skill.Problem, trusted bool) {
	a.Note("%s  %s", s.Name, app.Printable(s.Description))
	a.Note("version %.12s, %s", t.Version(), app.BytesText(t.Bytes()))
	a.tellTrust(s.AllowedTools, trusted)
	for _, f := range t.Files {
		runs := ""
		if f.Executable {
			runs = " (a program)"
		}
		a.Note("  %s%s", app.Printable(f.Path), runs)
	}
	for _, w := range warnings {
		a.Note("note: %s", app.Printable(w.String()))
	}
}

// tellTrust says what becomes of the tools that a skill wants approved beforehand.
func (a skillCommands) tellTrust(tools []string, trusted bool) {
	if len(tools) == 0 {
		return
	}
	text := app.Printable(strings.Join(tools, " "))
	if trusted {
		a.Note("will be approved without asking, once an agent has learned it, unless a rule denies it: %s", text)
		return
	}
	a.Note("wants approved beforehand, which it is not: %s", text)
}

func (a skillCommands) list() *cobra.Command {
	return app.With(a.App, &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the skills that are installed",
		Example: "  skete skill list\n  skete skill list --json",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *client.Client, _ []string) ([]api.Skill, error) {
		return c.Skills(ctx)
	}, func(list []api.Skill) error {
		return app.List(a.App, list, func(s api.Skill) string { return s.Name }, []string{"NAME", "VERSION", "KEPT", "TRUSTED", "AGENTS", "DESCRIPTION"}, func(s api.Skill) []string {
			return []string{s.Name, s.Version[:min(shortVersion, len(s.Version))], strconv.Itoa(len(s.Versions)), yesNo(s.Trusted), agentsText(s), s.Description}
		})
	})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func agentsText(s api.Skill) string {
	if len(s.Agents) == 0 {
		return "all"
	}
	return strings.Join(s.Agents, " ")
}

func (a skillCommands) show() *cobra.Command {
	var version string
	cmd := app.With(a.App, &cobra.Command{
		Use: "show NAME", Short: "Show a skill: versions, files, instructions",
		Example: "  skete skill show pdf-forms\n  skete skill show pdf-forms --version 1f0c9a77",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *client.Client, args []string) (api.Skill, error) {
		return c.Skill(ctx, args[0], version)
	}, func(s api.Skill) error {
		if err := a.print(s); err != nil || a.JSON || a.Quiet {
			return err
		}
		_, err := fmt.Fprintf(a.Out, "\n%s\n", app.Printable(s.Instructions))
		return err
	})
	cmd.Flags().StringVar(&version, "version", "", "this version, or the first 8 characters of it")
	return cmd
}

// print shows all that is known of a skill but its instructions.
func (a skillCommands) print(s api.Skill) error {
	switch {
	case a.JSON:
		return app.PrintJSON(a.Out, s)
	case a.Quiet:
		_, err := fmt.Fprintln(a.Out, s.Name)
		return err
	}
	lines := []string{"skill    " + s.Name, "about    " + s.Description, "agents   " + agentsText(s)}
	if s.Tool != nil {
		lines = append(lines, "tool     "+s.Tool.Name+": "+s.Tool.Description)
	}
	for _, x := range []struct{ word, text string }{
		{"license  ", s.License}, {"needs    ", s.Compatibility}, {"allowed  ", strings.Join(s.AllowedTools, " ")}, {"files    ", strings.Join(s.Files, " ")},
	} {
		if x.text != "" {
			lines = append(lines, x.word+x.text)
		}
	}
	for _, v := range slices.Backward(s.Versions) {
		current := ""
		if v.Version == s.Version {
			current = ", new runs get it"
		}
		if v.TrustedBy != "" {
			current += ", trusted by " + v.TrustedBy
		}
		lines = append(lines, fmt.Sprintf("version  %.12s, %d files, %s, %s%s", v.Version, v.Files, app.BytesText(v.Bytes), v.From, current))
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(a.Out, app.Printable(l)); err != nil {
			return err
		}
	}
	return nil
}

func (a skillCommands) rollback() *cobra.Command {
	return app.With(a.App, &cobra.Command{
		Use: "rollback NAME [VERSION]", Short: "Go back to the version before, or to any that is kept",
		Example: "  skete skill rollback pdf-forms\n  skete skill rollback pdf-forms 1f0c9a77",
		Args:    cobra.RangeArgs(1, 2),
	}, func(ctx context.Context, c *client.Client, args []string) (api.Skill, error) {
		if len(args) == 2 {
			return c.ChangeSkill(ctx, args[0], api.ChangeSkill{Version: args[1]})
		}
		version, err := before(ctx, c, args[0])
		if err != nil {
			return api.Skill{}, err
		}
		return c.ChangeSkill(ctx, args[0], api.ChangeSkill{Version: version})
	}, a.print)
}

// before is the version that was installed before the one that new runs get.
func before(ctx context.Context, c *client.Client, name string) (string, error) {
	s, err := c.Skill(ctx, name, "")
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(s.Versions, func(v api.SkillVersion) bool { return v.Version == s.Version })
	if i < 1 {
		return "", errs.New(errs.NotFound, "the skill %s has no version before this one", name).WithHint("skete skill show %s lists them", name)
	}
	return s.Versions[i-1].Version, nil
}

func (a skillCommands) trust() *cobra.Command {
	var off, yes bool
	cmd := &cobra.Command{
		Use: "trust NAME [VERSION]", Short: "Approve beforehand what a version of a skill wants approved",
		Long: `Approve beforehand what a version of a skill wants approved: its allowed-tools. Where a
rule of an agent asks, a call that they name runs without asking once the agent has
learned the skill; what a rule denies stays denied. It is said of this content alone:
after an upgrade say it again. With --off it is trusted no longer, at once.`,
		Example: "  skete skill trust pdf-forms\n  skete skill trust pdf-forms 1f0c9a77 --yes\n  skete skill trust pdf-forms --off",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			version := ""
			if len(args) == 2 {
				version = args[1]
			}
			return a.setTrust(cmd.Context(), args[0], version, off, yes)
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "it is trusted no longer")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a skillCommands) setTrust(ctx context.Context, name, version string, off, yes bool) error {
	c, err := a.Connect(ctx)
	if err != nil {
		return err
	}
	s, err := c.Skill(ctx, name, version)
	if err != nil {
		return err
	}
	whole, err := wholeVersion(s, version)
	if err != nil {
		return err
	}
	change := api.ChangeSkill{Distrust: whole}
	if !off {
		change = api.ChangeSkill{Trust: whole} // the one that is shown, whatever is installed meanwhile
		a.Note("%s, version %.12s", s.Name, whole)
		a.tellTrust(s.AllowedTools, true)
		if ok, err := a.Agree(yes, "Trust it?"); err != nil || !ok {
			return err
		}
	}
	out, err := c.ChangeSkill(ctx, name, change)
	if err != nil {
		return err
	}
	return a.print(out)
}

// wholeVersion is the version that a text begins, "" = the one that new runs get.
func wholeVersion(s api.Skill, version string) (string, error) {
	if version == "" {
		return s.Version, nil
	}
	var found []string
	for _, v := range s.Versions {
		if strings.HasPrefix(v.Version, version) {
			found = append(found, v.Version)
		}
	}
	if len(found) != 1 {
		return "", errs.New(errs.NotFound, "the skill %s has no version %.80q", s.Name, version)
	}
	return found[0], nil
}

func (a skillCommands) agents() *cobra.Command {
	return app.With(a.App, &cobra.Command{
		Use: "agents NAME [AGENT…]", Short: "Say which agents have a skill; none = all",
		Example: "  skete skill agents pdf-forms reviewer coder\n  skete skill agents pdf-forms",
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, c *client.Client, args []string) (api.Skill, error) {
		agents := slices.Concat([]string{}, args[1:])
		return c.ChangeSkill(ctx, args[0], api.ChangeSkill{Agents: &agents})
	}, a.print)
}

func (a skillCommands) remove() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"}, Short: "Remove a skill with all its versions",
		Example: "  skete skill remove pdf-forms --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			if ok, err := a.Agree(yes, "Remove the skill "+args[0]+" with all its versions?"); err != nil || !ok {
				return err
			}
			return c.RemoveSkill(cmd.Context(), args[0])
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
