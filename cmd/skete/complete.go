package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
)

// offer lists what may stand somewhere; args are the words before it.
type offer func(ctx context.Context, c *client.Client, args []string) ([]cobra.Completion, error)

// completions are offered for flags by their name, and for words by the
// command. Sandboxes are offered where a command takes them.
func (a program) completions(cmd *cobra.Command) {
	byFlag := map[string]offer{"provider": offerProviders, "template": offerTemplates, "agent": offerAgents, "model": offerModels}
	for name, list := range byFlag {
		if cmd.Flags().Lookup(name) != nil && cmd.Name() != "doctor" {
			_ = cmd.RegisterFlagCompletionFunc(name, a.complete(list))
		}
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	switch path {
	case "template show", "template rm", "template export":
		cmd.ValidArgsFunction = a.complete(offerTemplates)
	case "workflow show", "workflow cancel", "workflow answer":
		cmd.ValidArgsFunction = a.complete(offerWorkflowRuns)
	case "workflow get", "workflow rm":
		cmd.ValidArgsFunction = a.complete(offerWorkflows)
	case "agent show":
		cmd.ValidArgsFunction = a.complete(offerAgents)
	case "service start", "service stop", "service restart", "service remove", "service logs":
		cmd.ValidArgsFunction = a.second(cmd.ValidArgsFunction, offerServices)
	case "vm attach", "vm logs", "vm kill", "logs":
		cmd.ValidArgsFunction = a.second(cmd.ValidArgsFunction, offerKeys)
	}
	for _, sub := range cmd.Commands() {
		a.completions(sub)
	}
}

// complete asks a server that runs; it never starts one.
func (a program) complete(list offer) cobra.CompletionFunc {
	const none = cobra.ShellCompDirectiveNoFileComp
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if a.Setup() != nil {
			return nil, none
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), app.Short)
		defer cancel()
		c, err := a.Dial()
		if err != nil {
			return nil, none
		}
		found, err := list(ctx, c, args)
		if err != nil {
			return nil, none
		}
		return found, none
	}
}

// second completes the first word as before, and the next one by list.
func (a program) second(first cobra.CompletionFunc, list offer) cobra.CompletionFunc {
	next := a.complete(list)
	return func(cmd *cobra.Command, args []string, to string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch {
		case len(args) == 1:
			return next(cmd, args, to)
		case len(args) == 0 && first != nil:
			return first(cmd, args, to)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func word(name, about string) cobra.Completion {
	return cobra.CompletionWithDesc(name, app.Cell(strings.ReplaceAll(about, "\n", " ")))
}

// offerProviders leaves out those that cannot be used here.
func offerProviders(ctx context.Context, c *client.Client, _ []string) ([]cobra.Completion, error) {
	info, err := c.Info(ctx)
	found := []cobra.Completion{word("auto", "the strongest that works")}
	for _, p := range info.Providers {
		if p.OK {
			found = append(found, word(p.Name, p.Isolation))
		}
	}
	return found, err
}

func offerTemplates(ctx context.Context, c *client.Client, _ []string) ([]cobra.Completion, error) {
	list, err := c.Templates(ctx)
	return words(list, func(t api.Template) cobra.Completion { return word(t.Name, t.Kind) }), err
}

func offerAgents(ctx context.Context, c *client.Client, _ []string) ([]cobra.Completion, error) {
	list, err := c.Agents(ctx)
	return words(list, func(g api.Agent) cobra.Completion { return word(g.Name, g.Description) }), err
}

// workflowRunsOffered bounds what is looked for.
const workflowRunsOffered = 50

func offerWorkflowRuns(ctx context.Context, c *client.Client, args []string) (found []cobra.Completion, err error) {
	if len(args) > 0 {
		return nil, nil
	}
	for run, err := range c.WorkflowRuns(ctx) {
		if err != nil || len(found) == workflowRunsOffered {
			return found, err
		}
		found = append(found, word(run.ID, run.State+" "+run.Workflow))
	}
	return found, nil
}

func offerWorkflows(ctx context.Context, c *client.Client, args []string) ([]cobra.Completion, error) {
	if len(args) > 0 {
		return nil, nil
	}
	list, err := c.Workflows(ctx)
	return words(list, func(w api.Workflow) cobra.Completion { return word(w.Name, "") }), err
}

func offerModels(ctx context.Context, c *client.Client, _ []string) ([]cobra.Completion, error) {
	list, err := c.Models(ctx)
	return words(list, func(m api.Model) cobra.Completion { return word(m.Name, "") }), err
}

func offerServices(ctx context.Context, c *client.Client, args []string) ([]cobra.Completion, error) {
	id, err := sandboxOf(ctx, c, args[0])
	if err != nil {
		return nil, err
	}
	list, err := c.Sandbox(id).Services().List(ctx)
	return words(list, func(s api.Service) cobra.Completion { return word(s.Name, s.State) }), err
}

func offerKeys(ctx context.Context, c *client.Client, args []string) ([]cobra.Completion, error) {
	id, err := sandboxOf(ctx, c, args[0])
	if err != nil {
		return nil, err
	}
	list, err := client.All(c.Sandbox(id).Processes(ctx))
	return words(list, func(p api.Process) cobra.Completion { return word(p.Key, p.State+" "+strings.Join(p.Argv, " ")) }), err
}

func sandboxOf(ctx context.Context, c *client.Client, name string) (string, error) {
	sb, err := app.New(nil, nil, nil).Find(ctx, c, name)
	return sb.ID, err
}

func words[T any](list []T, as func(T) cobra.Completion) []cobra.Completion {
	var found []cobra.Completion
	for _, item := range list {
		found = append(found, as(item))
	}
	return found
}
