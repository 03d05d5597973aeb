package skill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Adopt takes in the files of versions that earlier releases kept in a directory, and removes
// the directory when nothing is left there. What is damaged stays, and is told. It may be
// repeated, and goes on where a crash has ended it.
func (s *Store) Adopt(ctx context.Context, dir string) (left []error, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "the directory of the skills cannot be read")
	}
	var keys []string
	err = s.kv.List(ctx, "", func(key string, _ []byte, _ uint64) error {
		keys = append(keys, key)
		return nil
	})
	slices.Sort(keys)
	for _, key := range keys {
		if err == nil {
			err = s.adopt(ctx, key, dir, &left)
		}
	}
	if err != nil {
		return left, err
	}
	for _, e := range entries {
		if len(left) == 0 && e.Type().IsRegular() { // no record is without its files: this is of none
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if err == nil && len(left) == 0 {
		err = os.Remove(dir)
	}
	return left, err
}

// adopt takes in the files of one record.
func (s *Store) adopt(ctx context.Context, key, dir string, left *[]error) error {
	for range writeTries {
		value, revision, err := s.kv.Get(ctx, key)
		if errs.Is(err, errs.NotFound) {
			return nil // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		r, err := decode(value)
		if err != nil {
			return err
		}
		taken, bad, err := s.fill(ctx, r.Versions, dir)
		if err != nil || len(taken) == 0 {
			*left = append(*left, bad...)
			return err
		}
		if value, err = json.Marshal(r); err == nil {
			_, err = s.kv.Update(ctx, key, value, revision)
		}
		if err == nil {
			*left = append(*left, bad...)
			return nil
		}
		if !errs.Temporary(err) { // else the record may name them
			s.files.drop(ctx, taken)
		}
		if !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	_, name, _ := strings.Cut(key, "/")
	return errBusy(name)
}

// fill keeps the files of the versions that have none, and returns the names of what it kept.
func (s *Store) fill(ctx context.Context, versions []Version, dir string) (taken []string, bad []error, _ error) {
	for i, v := range versions {
		if v.Content != "" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, v.ID+".tar"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another server's directory has it, or none
		}
		if err != nil {
			return taken, bad, errs.Wrap(errs.Unavailable, err, "the files of a skill cannot be read")
		}
		t, err := Archive(data, "")
		if err != nil || t.Version() != v.ID {
			bad = append(bad, fmt.Errorf("%s.tar: the files of the skill are damaged: %w", v.ID, errors.Join(err, errs.New(errs.Corrupt, "install it again"))))
			continue
		}
		id, err := s.files.put(ctx, data)
		if err != nil {
			s.files.drop(ctx, taken)
			return nil, bad, err
		}
		versions[i].Content = id
		taken = append(taken, id)
	}
	return taken, bad, nil
}
