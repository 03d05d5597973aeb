package skill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
)

// serverTenant has the skills of the server's operator, which are every tenant's. No tenant
// can have this name.
const serverTenant = "_server"

// serverFrom is what is told of where they came from.
const serverFrom = "the server's configuration"

// Serve makes the skills in folders, each in one of its own, those of the server, and no
// others. What holds no skill that keeps to the standard is left out, and told.
//
// NotFound: there is no such folder. Limit: there are too many.
func (s *Store) Serve(ctx context.Context, folders []string) (left []error, err error) {
	wanted := map[string]bool{}
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, errs.Wrap(errs.NotFound, err, "the folder of skills %s cannot be read", folder).WithHint("see agents.skills")
		}
		for _, e := range entries {
			at := filepath.Join(folder, e.Name())
			if info, err := os.Stat(filepath.Join(at, File)); err != nil || !info.Mode().IsRegular() {
				continue // no skill, and not meant as one
			}
			switch name, err := s.serve(ctx, at, wanted); {
			case errs.Is(err, errs.Invalid), errs.Is(err, errs.Limit), errs.Is(err, errs.Exists):
				left = append(left, fmt.Errorf("%s: %w", at, err))
			case err != nil:
				return nil, err
			default:
				wanted[name] = true
			}
		}
	}
	there, err := s.Own(ctx, serverTenant)
	for _, i := range there {
		if !wanted[i.Name] {
			err = errors.Join(err, s.Remove(ctx, serverTenant, i.Name))
		}
	}
	return left, err
}

// serve takes in one folder. One that is as it was is not written again.
func (s *Store) serve(ctx context.Context, at string, taken map[string]bool) (name string, err error) {
	t, err := Folder(at)
	if err != nil {
		return "", err
	}
	parsed, _, err := Load(t)
	if err != nil {
		return "", err
	}
	if taken[parsed.Name] {
		return "", errs.New(errs.Exists, "another folder has a skill %s", parsed.Name)
	}
	if r, _, err := s.read(ctx, serverTenant, parsed.Name); err == nil && r.Current == t.Version() {
		if _, err := s.Tree(ctx, serverTenant, parsed.Name, r.Current); err == nil {
			return parsed.Name, nil
		}
	}
	_, err = s.Install(ctx, serverTenant, Install{Tree: t, From: serverFrom})
	return parsed.Name, err
}
