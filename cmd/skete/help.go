package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/docs"
	"github.com/skete-dev/skete/errs"
)

// topics are documents that help shows, in the order in which they are listed.
var topics = []struct{ name, about, file string }{
	{"models", "which models can be used, and how to add one", "models.md"},
	{"agents", "agents as files: instructions, tools, limits, approvals", "agents.md"},
	{"schedules", "runs at times: cron, time zones, what is missed", "schedules.md"},
	{"workflows", "several agents that work together, as files", "workflows.md"},
	{"tools", "tools of your own, as files: commands in sandboxes", "tools.md"},
	{"plugins", "models and hooks as programs of others, in sandboxes", "plugins.md"},
	{"configuration", "every setting of the server, and the variables", "config.md"},
	{"network", "what leaves a sandbox: rules, names, certificates", "network.md"},
	{"history", "revisions, undo, and what is kept how long", "history.md"},
	{"templates", "root file systems: images, recipes, packages", "templates.md"},
	{"bridges", "SDKs of other services, unmodified", "bridges.md"},
	{"script", "scripted models, for tests without a model", "script.md"},
	{"operate", "running a server for others: systemd, checks, disk", "operate.md"},
}

func (a program) help() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND | TOPIC]", Short: "Explain a command, or a topic",
		Long:    "Explain a command, as --help does, or a topic:\n\n" + topicList(),
		Example: "  skete help vm create\n  skete help models\n  skete help agents | less",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var found []cobra.Completion
			at, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, sub := range at.Commands() {
				if sub.IsAvailableCommand() {
					found = append(found, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			for _, t := range topics {
				if len(args) == 0 {
					found = append(found, cobra.CompletionWithDesc(t.name, t.about))
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				for _, t := range topics {
					// A command of the same name has --help; the topic says more.
					if t.name == args[0] {
						return a.printTopic(t.file)
					}
				}
			}
			at, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) == 0 {
				return at.Help()
			}
			return a.noTopic(cmd.Root(), args)
		},
	}
}

func (a program) noTopic(root *cobra.Command, args []string) error {
	var names []string
	for _, t := range topics {
		names = append(names, t.name)
	}
	for _, sub := range root.Commands() {
		names = append(names, sub.Name())
	}
	err := errs.New(errs.Invalid, "there is no command and no topic %.60q", strings.Join(args, " "))
	if near := app.Nearest(args[0], names); near != "" && near != args[0] {
		return err.WithHint("did you mean `skete help %s`?", near)
	}
	return err.WithHint("`skete help` lists them")
}

func topicList() string {
	var b strings.Builder
	for _, t := range topics {
		fmt.Fprintf(&b, "  %-14s %s\n", t.name, t.about)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (a program) printTopic(file string) error {
	text, err := docs.Files.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.Out, plain(string(text)))
	return err
}

var markdownLink = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)\)`)

// plain turns Markdown into text for a terminal: headings stand out, code is
// indented, links to documents that are carried too name their topic.
func plain(text string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
			continue
		case code:
			if line != "" {
				line = "    " + line
			}
		case strings.HasPrefix(line, "#"):
			line = strings.ToUpper(strings.TrimLeft(line, "# "))
		default:
			line = markdownLink.ReplaceAllStringFunc(line, plainLink)
			if strings.HasPrefix(line, "|") && strings.Trim(line, "|-: ") == "" {
				continue // beneath the head of a table
			}
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func plainLink(link string) string {
	m := markdownLink.FindStringSubmatch(link)
	words, to := m[1], m[2]
	for _, t := range topics {
		if file, _, _ := strings.Cut(to, "#"); strings.TrimPrefix(file, "docs/") == t.file {
			if words == t.file || words == "docs/"+t.file {
				return "`skete help " + t.name + "`"
			}
			return words + " (`skete help " + t.name + "`)"
		}
	}
	if strings.HasPrefix(to, "http") {
		return words + " (" + to + ")"
	}
	return words
}
