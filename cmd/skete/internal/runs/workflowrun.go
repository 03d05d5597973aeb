package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

func (a commands) workflowRun() *cobra.Command {
	var in workflowInput
	var follow, dry bool
	var version string
	cmd := &cobra.Command{
		Use: "run FILE|NAME", Short: "Start a run of a workflow",
		Long: `Start a run of a workflow: of a file, or of one that the server has by a name. It
goes on without a terminal; --follow shows what its nodes do, and exits with how it
ended. The run keeps the text that it began with, whatever becomes of the file.

--input is what it is started with: an object as JSON, a file of one, - for stdin, or
key=value, which may be repeated; a value that is JSON is that, any other is a text.
--file puts a file into the workspace in which the nodes work, under its name. A file of
--input that is no JSON is such a file too, and its name is the value of the one text that
the workflow has to be given.

--dry-run asks the server whether it has what the workflow names, and starts nothing.` + exitCodes,
		Example: `  skete workflow run article.yaml --input subject=snails --follow
  skete workflow run article --input '{"subject":"snails","words":500}'
  skete workflow run audit.yaml --input input.json --dry-run
  skete workflow run examples/workflows/security-audit.yaml --input script.py --follow`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := a.startWorkflow(args[0], version, in)
			if err != nil {
				return err
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			if dry {
				return a.planWorkflow(cmd.Context(), c, req)
			}
			run, err := c.StartWorkflow(cmd.Context(), req)
			if errs.Is(err, errs.Invalid) {
				return &app.Coded{Status: exitUsage, Err: err}
			}
			if err != nil {
				return err
			}
			if follow {
				return a.followWorkflow(cmd.Context(), c, run)
			}
			if a.JSON {
				return app.PrintJSON(a.Out, run)
			}
			_, err = fmt.Fprintln(a.Out, run.ID)
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&in.values, "input", "i", nil, "what it is started with: JSON, a file of it, -, or key=value")
	fs.StringArrayVar(&in.files, "file", nil, "a file that nodes find in their workspace")
	fs.BoolVarP(&follow, "follow", "f", false, "show what its nodes do until it is over")
	fs.BoolVar(&dry, "dry-run", false, "say what would be started, and start nothing")
	fs.StringVar(&version, "version", "", "of a workflow of the server: the hash of a version, or its beginning")
	return cmd
}

// startWorkflow is what a command line asks for.
func (a commands) startWorkflow(name, version string, in workflowInput) (api.StartWorkflow, error) {
	req := api.StartWorkflow{Version: version}
	_, err := os.Stat(name)
	if name == "-" || err == nil || strings.ContainsAny(name, "./") {
		text, err := a.read(name, cowork.FileBytesMax)
		if err != nil {
			return req, err
		}
		req.File, req.Text = filepath.Base(shownFile(name)), text
	} else {
		req.Workflow = name
	}
	return req, a.setInput(&req, in)
}

// workflowInput is what the flags say that a run is started with.
type workflowInput struct{ values, files []string }

const inputMax = 8 << 20

// setInput adds to a start what it is started with.
func (a commands) setInput(req *api.StartWorkflow, in workflowInput) error {
	object := map[string]json.RawMessage{}
	for _, one := range in.values {
		if key, value, pair := strings.Cut(one, "="); pair && !strings.ContainsAny(key, "{[\"/ ") {
			raw := json.RawMessage(value)
			if !json.Valid(raw) {
				raw, _ = json.Marshal(value) // of a string
			}
			object[key] = raw
			continue
		}
		text := one
		if !strings.HasPrefix(strings.TrimSpace(one), "{") {
			var err error
			if text, err = a.read(one, inputMax); err != nil {
				return err
			}
		}
		var more map[string]json.RawMessage
		err := json.Unmarshal([]byte(text), &more)
		switch {
		case err == nil:
			maps.Copy(object, more)
		case text == one || one == "-":
			return usage("--input %.60q is no JSON object, no file of one, and no key=value", one)
		default:
			key := wantsText(req.Text, object)
			if key == "" {
				return usage("--input %.60q: the file is no JSON object, and it is not clear which value is its name; say --file %[1]s --input KEY=%s", one, filepath.Base(one))
			}
			req.Files = append(req.Files, api.InputFile{Path: filepath.Base(one), Content: []byte(text)})
			object[key], _ = json.Marshal(filepath.Base(one)) // of a string
		}
	}
	for _, name := range in.files {
		text, err := a.read(name, inputMax)
		if err != nil {
			return err
		}
		req.Files = append(req.Files, api.InputFile{Path: filepath.Base(shownFile(name)), Content: []byte(text)})
	}
	var err error
	req.Input, err = json.Marshal(object)
	return err
}

// wantsText is the one text that a workflow has to be given and is not; "" = there is none,
// or more than one.
func wantsText(text string, given map[string]json.RawMessage) (key string) {
	w, err := cowork.Parse("workflow.yaml", []byte(text))
	if err != nil {
		return ""
	}
	properties, _ := w.Definition.Input["properties"].(map[string]any)
	required, _ := w.Definition.Input["required"].([]any)
	for _, r := range required {
		name, _ := r.(string)
		property, _ := properties[name].(map[string]any)
		if _, is := given[name]; is || property["type"] != "string" {
			continue
		}
		if key != "" {
			return ""
		}
		key = name
	}
	return key
}

func (a commands) planWorkflow(ctx context.Context, c *client.Client, req api.StartWorkflow) error {
	p, err := c.PlanWorkflow(ctx, req)
	if errs.Is(err, errs.Invalid) {
		return &app.Coded{Status: exitUsage, Err: err}
	}
	if err != nil {
		return err
	}
	if a.JSON {
		if err := app.PrintJSON(a.Out, p); err != nil {
			return err
		}
	} else {
		row := func(n api.WorkflowPart) []string {
			agent := n.Agent
			if n.Human {
				agent = "a person"
			}
			return []string{n.Node, agent, n.Model, n.Sandbox, strings.Join(n.Tools, ","), screen.Clean(n.Problem)}
		}
		if err := app.List(a.App, p.Nodes, func(n api.WorkflowPart) string { return n.Node }, []string{"NODE", "AGENT", "MODEL", "SANDBOX", "TOOLS", "PROBLEM"}, row); err != nil {
			return err
		}
		a.Note("%s is a workflow with the topology %s; nodes are started %d times at most, further attempts not counted", p.Workflow, p.Topology, p.Starts)
	}
	if !p.OK {
		return app.Exit(1)
	}
	return nil
}

const followWaitMS = 20_000

// followWorkflow shows what the nodes of a run do until it is over.
func (a commands) followWorkflow(ctx context.Context, c *client.Client, run api.WorkflowRun) error {
	told := map[string]string{}
	if !a.JSON && !a.Quiet {
		a.Note("%s", run.ID)
	}
	for {
		now, err := c.WorkflowRun(ctx, run.ID, run.Seq, followWaitMS)
		if err != nil {
			return err
		}
		run = now
		for _, n := range run.Nodes {
			if told[n.Label] == n.State {
				continue
			}
			told[n.Label] = n.State
			if err := a.tellNode(run, n); err != nil {
				return err
			}
		}
		if run.EndedAt != nil {
			return a.workflowOver(run)
		}
	}
}

func (a commands) tellNode(run api.WorkflowRun, n api.WorkflowNode) error {
	switch {
	case a.Quiet:
		return nil
	case a.JSON:
		return app.PrintJSONLine(a.Out, n)
	}
	line := fmt.Sprintf("%-20s %s", n.Label, n.State)
	if n.State == "waiting" {
		line += fmt.Sprintf(": %s\n  skete workflow answer %s %s %s", n.Ask, run.ID, n.Node, strings.Join(n.Choices, "|"))
	} else if n.Text != "" {
		line += ": " + n.Text
	}
	_, err := fmt.Fprintln(a.Out, screen.Clean(line))
	return err
}

// workflowOver prints the result, and exits by how the run ended.
func (a commands) workflowOver(run api.WorkflowRun) error {
	switch {
	case a.JSON:
		if err := app.PrintJSONLine(a.Out, run); err != nil {
			return err
		}
	case run.State == string(thread.RunSucceeded):
		if err := app.PrintJSON(a.Out, run.Result); err != nil {
			return err
		}
	default:
		a.Note("the workflow %s (%s) %s", run.State, run.Reason, screen.Clean(run.Text))
	}
	switch thread.RunState(run.State) {
	case thread.RunSucceeded:
		return nil
	case thread.RunCancelled:
		return app.Exit(4)
	case thread.RunTimedOut:
		return app.Exit(5)
	}
	return app.Exit(1)
}

func (a commands) workflowList() *cobra.Command {
	definitions := false
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List runs of workflows, or the workflows themselves",
		Example: "  skete workflow list\n  skete workflow list --definitions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			if definitions {
				return a.listDefinitions(cmd.Context(), c)
			}
			items, err := client.All(c.WorkflowRuns(cmd.Context()))
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(r api.WorkflowRun) string { return r.ID }, []string{"ID", "WORKFLOW", "VERSION", "STATE", "AGE", "BY", "REASON"}, func(r api.WorkflowRun) []string {
				return []string{r.ID, r.Workflow, shortVersion(r.Version, r.Hash), r.State, app.Age(r.CreatedAt), r.By, r.Reason}
			})
		},
	}
	cmd.Flags().BoolVarP(&definitions, "definitions", "d", false, "what can be run by name")
	return cmd
}

func shortVersion(version, hash string) string {
	return strings.TrimSpace(version + " " + hash[:min(len(hash), 8)])
}

func (a commands) listDefinitions(ctx context.Context, c *client.Client) error {
	items, err := c.Workflows(ctx)
	if err != nil {
		return err
	}
	return app.List(a.App, items, func(w api.Workflow) string { return w.Name }, []string{"NAME", "VERSION", "VERSIONS", "FROM"}, func(w api.Workflow) []string {
		last := w.Versions[len(w.Versions)-1]
		if w.Folder {
			return []string{w.Name, "", "", "the server's folder: " + last.File}
		}
		return []string{w.Name, shortVersion(last.Version, last.Hash), fmt.Sprint(len(w.Versions)), last.File}
	})
}

const (
	workflowIDPrefix = "wfr_"
	workflowIDLength = len(workflowIDPrefix) + 20
)

// workflowRunID finds the run of a workflow of which a person wrote the id or its beginning.
func (a commands) workflowRunID(ctx context.Context, c *client.Client, name string) (string, error) {
	rest, is := strings.CutPrefix(name, workflowIDPrefix)
	if !is || rest == "" || len(name) > workflowIDLength {
		return "", usage("%.80q is not the id of a workflow's run", name).WithHint("ids look like wfr_k3j5…; `skete workflow list` shows them")
	}
	if len(name) == workflowIDLength {
		return name, nil
	}
	found := ""
	for run, err := range c.WorkflowRuns(ctx) {
		if err != nil {
			return "", err
		}
		if !strings.HasPrefix(run.ID, name) {
			continue
		}
		if found != "" {
			return "", usage("several runs of workflows begin with %s", name).WithHint("write more of it; `skete workflow list` shows them")
		}
		found = run.ID
	}
	if found == "" {
		return "", errs.New(errs.NotFound, "no run of a workflow begins with %s", name).WithHint("`skete workflow list` shows them")
	}
	return found, nil
}

func (a commands) workflowShow() *cobra.Command {
	return &cobra.Command{
		Use: "show RUN", Short: "Show what the nodes of a run did, and who did it",
		Long: `Show what the nodes of a run of a workflow did: each attempt with its state, the agent
and its model, its run, which ` + "`skete show`" + ` tells the story of, the sandbox that it worked in,
its tokens, its time and the files that it left. A label is the node; #2 the second time
that it was done, [3] the element of a list, !2 the second attempt. The beginning of an id
is enough.`,
		Example: "  skete workflow show wfr_k3j5…\n  skete workflow show wfr_k3j5… --json", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			id, err := a.workflowRunID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			run, err := c.WorkflowRun(cmd.Context(), id, 0, 0)
			switch {
			case err != nil:
				return err
			case a.JSON:
				return app.PrintJSON(a.Out, run)
			case a.Quiet:
				_, err = fmt.Fprintln(a.Out, run.ID)
				return err
			}
			return a.printWorkflow(run)
		},
	}
}

func (a commands) printWorkflow(run api.WorkflowRun) error {
	lines := [][2]string{
		{"workflow", run.Workflow + " " + shortVersion(run.Version, run.Hash)},
		{"id", run.ID},
		{"state", strings.TrimSpace(run.State + " " + run.Reason)},
		{"why", run.Text},
		{"by", run.By},
		{"sandbox", run.Sandbox},
		{"open", strings.Join(run.Open, ", ")},
		{"used", used(run)},
	}
	for _, l := range lines {
		if l[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.Out, "%-9s %s\n", l[0], app.Printable(screen.Clean(l[1]))); err != nil {
			return err
		}
	}
	if len(run.Nodes) > 0 {
		fmt.Fprintln(a.Out)
		if err := app.List(a.App, run.Nodes, func(n api.WorkflowNode) string { return n.Label }, []string{"NODE", "STATE", "WHO", "RUN", "SANDBOX", "STEPS", "TOKENS", "TIME", "WHAT"}, nodeRow); err != nil {
			return err
		}
	}
	if len(run.Result) > 0 {
		fmt.Fprintln(a.Out)
		return app.PrintJSON(a.Out, run.Result)
	}
	return nil
}

func used(run api.WorkflowRun) string {
	text := fmt.Sprintf("%d steps, %d tokens", run.Steps, run.Tokens)
	if run.CostUSD > 0 {
		text += fmt.Sprintf(", $%.4f", run.CostUSD)
	}
	return text
}

func nodeRow(n api.WorkflowNode) []string {
	took := time.Since(n.StartedAt)
	if n.EndedAt != nil {
		took = n.EndedAt.Sub(n.StartedAt)
	}
	what := []string{n.Text}
	switch {
	case n.State == "waiting":
		what = []string{n.Ask + " (" + strings.Join(n.Choices, ", ") + ")"}
	case n.Choice != "":
		what = []string{n.Choice, n.Text}
		if n.By != "" {
			what[0] += " by " + n.By
		}
	case n.Reason != "" && n.Reason != "done":
		what = []string{n.Reason, n.Text}
	}
	if len(n.Artifacts) > 0 {
		what = append(what, "left "+strings.Join(n.Artifacts, ", "))
	}
	if len(n.Conflicts) > 0 {
		what = append(what, "CONFLICT "+strings.Join(n.Conflicts, ", "))
	}
	return []string{
		n.Label, n.State, who(n), n.Run, n.Sandbox, fmt.Sprint(n.Steps), fmt.Sprint(n.Tokens), took.Round(100 * time.Millisecond).String(),
		screen.Cut(strings.TrimSpace(strings.Join(what, " ")), 80),
	}
}

// who did it: an agent with its model, or the person who chose.
func who(n api.WorkflowNode) string {
	if n.Ask != "" {
		return cmp.Or(n.By, "a person")
	}
	return strings.TrimSpace(n.Agent + " " + n.Model)
}

func (a commands) workflowCancel() *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use: "cancel RUN", Short: "End a run of a workflow, and what is under way in it", Example: "  skete workflow cancel wfr_k3j5… --reason 'wrong branch'", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			id, err := a.workflowRunID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return a.printWorkflowID(c.CancelWorkflow(cmd.Context(), id, reason))
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}

func (a commands) printWorkflowID(run api.WorkflowRun, err error) error {
	if err != nil {
		return err
	}
	if a.JSON {
		return app.PrintJSON(a.Out, run)
	}
	_, err = fmt.Fprintln(a.Out, run.ID)
	return err
}

func (a commands) workflowAnswer() *cobra.Command {
	text := ""
	cmd := &cobra.Command{
		Use: "answer RUN NODE CHOICE", Short: "Choose, where a node of a workflow asks a person",
		Example: "  skete workflow answer wfr_k3j5… accept merge\n  skete workflow answer wfr_k3j5… accept again --text 'The tests are missing.'", Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			id, err := a.workflowRunID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return a.printWorkflowID(c.AnswerWorkflow(cmd.Context(), id, api.AnswerWorkflow{Node: args[1], Choice: args[2], Text: text}))
		},
	}
	cmd.Flags().StringVar(&text, "text", "", "what there is to say about it")
	return cmd
}

func (a commands) workflowPut() *cobra.Command {
	return &cobra.Command{
		Use: "put FILE", Short: "Keep a workflow on the server, to be run by its name",
		Long: `Keep a workflow on the server, to be run by its name. What was kept under the name
before stays as a version of it; runs that are under way keep theirs. - is stdin.`,
		Example: "  skete workflow put article.yaml\n  skete workflow run article --input subject=snails", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.read(args[0], cowork.FileBytesMax)
			if err != nil {
				return err
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			w, err := c.PutWorkflow(cmd.Context(), api.PutWorkflow{File: filepath.Base(shownFile(args[0])), Text: text})
			if errs.Is(err, errs.Invalid) {
				return &app.Coded{Status: exitUsage, Err: err}
			}
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, w)
			}
			last := w.Versions[len(w.Versions)-1]
			_, err = fmt.Fprintln(a.Out, w.Name, last.Hash[:12])
			return err
		},
	}
}

func (a commands) workflowGet() *cobra.Command {
	version := ""
	cmd := &cobra.Command{
		Use: "get NAME", Short: "Print a workflow that the server has", Example: "  skete workflow get article > article.yaml", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			w, err := c.Workflow(cmd.Context(), args[0], version)
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, w)
			}
			_, err = io.WriteString(a.Out, w.Text)
			return err
		},
	}
	cmd.Flags().StringVar(&version, "version", "", "the hash of a version, or its beginning; the newest unless stated")
	return cmd
}

func (a commands) workflowRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Forget a workflow; its runs keep what they began with", Example: "  skete workflow rm article", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			return c.RemoveWorkflow(cmd.Context(), args[0])
		},
	}
}
