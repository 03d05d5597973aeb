package app

import (
	"errors"
	"io/fs"
	"os"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/yamlfile"
)

// NetworkOf reads a flag --network: a profile, "" for the server's, or a file of rules. ERA
// calls one allow_all.
func NetworkOf(value string) (profile string, rules *api.NetworkPolicy, err error) {
	switch value {
	case "", egress.None, egress.Default, egress.Open:
		return value, nil, nil
	case "allow_all":
		return egress.Open, nil, nil
	}
	content, err := os.ReadFile(value)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, errs.New(errs.Invalid, "--network %.60q is neither none, default, open nor a file", value)
	}
	if err != nil {
		return "", nil, errs.Wrap(errs.Invalid, err, "--network %.60q cannot be read", value)
	}
	var p egress.Policy
	at, err := yamlfile.Decode(value, content, &p)
	if err != nil {
		return "", nil, err
	}
	problems := yamlfile.NewProblems(value)
	for _, x := range egress.Problems(p) {
		problems.Add(at[x.Field], "%s: %s", x.Field, x.Text)
	}
	if err := problems.Err(); err != nil {
		return "", nil, err
	}
	view := func(list []egress.Rule) (out []api.NetworkRule) {
		for _, r := range list {
			out = append(out, api.NetworkRule{Host: r.Host, Ports: r.Ports, Access: string(r.Access), Methods: r.Methods, Paths: r.Paths, Pinned: r.Pinned})
		}
		return out
	}
	if p.Profile == "" {
		p.Profile = egress.None
	}
	return p.Profile, &api.NetworkPolicy{Allow: view(p.Allow), Deny: view(p.Deny)}, nil
}
