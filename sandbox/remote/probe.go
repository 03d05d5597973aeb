package remote

import (
	"context"
	"errors"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Probe implements sandbox.Provider: the service makes a machine, which is asked who its
// user is, and ended.
func (p *Provider) Probe(ctx context.Context) (err error) {
	at, err := p.c.Service.Create(ctx, map[string]string{labelServer: p.server, labelSandbox: "probe"}, probeKeep)
	if err != nil && at.ID == "" {
		return unable(err)
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		err = errors.Join(err, p.c.Service.Kill(ending, at.ID))
	}()
	if err == nil {
		_, err = p.ask(ctx, at)
	}
	if err != nil {
		return unable(err)
	}
	if _, _, err := p.c.Service.Address(ctx, at, portFirst); err != nil {
		return unable(err)
	}
	return nil
}

// unable gives an operator a hint.
func unable(err error) error {
	if errs.Hint(err) != "" || !errs.Is(err, errs.Unavailable) && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Invalid) {
		return err
	}
	return errs.Wrap(errs.Of(err), err, "%s", strings.TrimSpace(errs.Public(err))).
		WithHint("look at the address, the key and the template of the service in the configuration")
}
