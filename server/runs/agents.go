package runs

import (
	"context"
	"net/http"
	"strings"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/transcript"
)

func (s *service) registerAgents(t *route.Table) {
	const tag, base = "agents", "/v1/agents"
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: base, Scope: key.RunsRead, ID: "list-agents", Tag: tag,
		Summary: "List agents that runs can be started with",
	}, s.listAgents)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/commands", Scope: key.RunsRead, ID: "list-commands", Tag: tag,
		Summary: "List tasks that have names: a task or message /NAME stands for one",
	}, s.listCommands)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: base + "/{name}", Scope: key.RunsRead, ID: "get-agent", Tag: tag,
		Summary: "Get an agent's definition, resolved",
	}, s.getAgent)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: base + "/validate", Scope: key.RunsRead, ID: "validate-agent", Tag: tag,
		Summary: "Say what is wrong with the text of an agent file; nothing is kept",
	}, s.validateAgent)
}

type listCommandsOut struct{ Body api.SlashCommandList }

func (s *service) listCommands(ctx context.Context, _ *struct{}) (*listCommandsOut, error) {
	k, _, err := s.supervisor(ctx)
	if err != nil {
		return nil, err
	}
	list, err := k.Commands(ctx)
	if err != nil {
		return nil, err
	}
	out := api.SlashCommandList{Items: make([]api.SlashCommand, len(list))}
	for i, c := range list {
		out.Items[i] = api.SlashCommand{Name: c.Name, Description: c.Description, Agent: c.Agent, Model: transcript.ModelName(c.Model), Error: errs.Public(c.Err)}
	}
	return &listCommandsOut{out}, nil
}

type listAgentsOut struct{ Body api.AgentList }

func (s *service) listAgents(ctx context.Context, _ *struct{}) (*listAgentsOut, error) {
	k, _, err := s.supervisor(ctx)
	if err != nil {
		return nil, err
	}
	list, err := k.Agents(ctx)
	if err != nil {
		return nil, err
	}
	out := api.AgentList{Items: make([]api.Agent, len(list))}
	for i, e := range list {
		out.Items[i], _ = agentView(e.Definition, false)
		out.Items[i].Name, out.Items[i].Error = e.Name, errs.Public(e.Err)
	}
	return &listAgentsOut{out}, nil
}

type getAgentIn struct {
	Name string `path:"name" maxLength:"64"`
}

type agentOut struct{ Body api.Agent }

func (s *service) getAgent(ctx context.Context, in *getAgentIn) (*agentOut, error) {
	k, _, err := s.supervisor(ctx)
	if err != nil {
		return nil, err
	}
	d, err := k.Agent(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	a, err := agentView(d, true)
	return &agentOut{a}, err
}

type validateAgentIn struct{ Body api.ValidateAgent }

type validatedOut struct{ Body api.AgentValidated }

// problemsMax bounds how many problems of a file are told.
const problemsMax = 100

func (s *service) validateAgent(_ context.Context, in *validateAgentIn) (*validatedOut, error) {
	out := &validatedOut{}
	d, err := s.tools.Parse(in.Body.Path, []byte(in.Body.Content))
	if errs.Is(err, errs.Invalid) {
		for line := range strings.SplitSeq(errs.Public(err), "\n") {
			if line != "" && len(out.Body.Problems) < problemsMax {
				out.Body.Problems = append(out.Body.Problems, api.AgentProblem{Text: line})
			}
		}
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	out.Body.OK = true
	for _, p := range s.tools.Validate(d) {
		out.Body.OK = out.Body.OK && p.Warning
		if len(out.Body.Problems) < problemsMax {
			out.Body.Problems = append(out.Body.Problems, api.AgentProblem{Text: p.String(), Warning: p.Warning})
		}
	}
	a, err := agentView(d, true)
	out.Body.Agent = &a
	return out, err
}
