package history

import (
	"context"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
)

type keptOut struct{ Body api.KeptHistories }

func (s *service) kept(ctx context.Context, _ *struct{}) (*keptOut, error) {
	if s.histories == nil {
		return nil, errNone
	}
	all, err := s.histories.Kept(ctx, auth.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	out := &keptOut{api.KeptHistories{Items: make([]api.KeptHistory, len(all))}}
	for i, k := range all {
		out.Body.Items[i] = api.KeptHistory{Sandbox: string(k.ID), Bytes: k.Bytes, Written: k.Written.UTC()}
	}
	return out, nil
}

func (s *service) remove(ctx context.Context, in *SandboxPath) (*struct{}, error) {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if s.histories == nil {
		return nil, errNone
	}
	return nil, s.histories.Delete(context.WithoutCancel(ctx), auth.From(ctx).Tenant, id)
}
