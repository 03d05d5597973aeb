package life

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	declared "github.com/skete-dev/skete/sandbox/service"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/service"
)

// This file finds what a machine boots from, and starts what that is for.

// RootfsFor finds a settled spec's template, checks that it has the language's
// tools, and makes it what a provider with these capabilities boots from.
//
// Denied: its commands are root's, which the spec does not grant. Unsupported:
// the provider cannot keep what the spec asks for.
func RootfsFor(ctx context.Context, t sandbox.Templates, spec sandbox.Spec, c sandbox.Capabilities) (template.Rootfs, error) {
	if err := spec.Fits(c); err != nil {
		return template.Rootfs{}, err
	}
	root, err := t.Rootfs(ctx, spec.Template)
	if err == nil && spec.Language != "" {
		err = t.Language(ctx, spec.Template, spec.Language)
	}
	if err == nil && root.Use.User == "root" && !spec.Root {
		err = errs.New(errs.Denied, "the template %s runs its commands as root, which was not granted", spec.Template).
			WithHint("create the sandbox with root granted: `--root`, \"root\": true")
	}
	if err == nil && c.RootImage {
		root.Image, err = t.Image(ctx, root)
	}
	return root, err
}

// startServices declares the services of a machine that has just booted, starts what
// the template is for, unless that has begun, and waits until it is ready. Invalid: it
// does not get so.
func startServices(ctx context.Context, c *wire.Client, root template.Rootfs, spec sandbox.Spec, begun bool) error {
	if spec.NoStart {
		return nil
	}
	if err := declared.AtBoot(ctx, c, spec.Services); err != nil { // calls that load or list them report it; the sandbox runs
		slog.WarnContext(ctx, "services of a sandbox are not declared", "error", err)
	}
	if begun {
		return nil
	}
	err := service.Begin(ctx, c, service.Of(root.Use))
	if failed, is := errors.AsType[*service.Error](err); is {
		return errs.Wrap(errs.Invalid, err, "what the template %s starts: %s", root.Name, failed.Error()).
			WithHint("without starting it a sandbox can be looked into: `--no-start`, \"no_start\": true")
	}
	return err
}

// readyAgain bounds how long what was ready may take to be so again.
const readyAgain = 2 * time.Second

// stillReady looks whether what was started in a warm machine, and was ready, is so now.
func stillReady(ctx context.Context, c *wire.Client, root template.Rootfs) error {
	s := service.Of(root.Use)
	s.Start, s.Timeout = "", readyAgain // it runs
	return service.Begin(ctx, c, s)
}
