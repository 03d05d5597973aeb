package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// place is one side of a copy: a path here, or in a sandbox.
type place struct {
	vm   string // "" = here
	path string
}

// parsePlace reads ID:path. A word with a slash before its first colon, and
// a word without a colon, is a path of this machine.
func parsePlace(s string) place {
	id, rest, ok := strings.Cut(s, ":")
	if !ok || id == "" || strings.ContainsAny(id, "/.") {
		return place{path: s}
	}
	return place{vm: id, path: rest}
}

func (a program) cp() *cobra.Command {
	var user string
	var recursive, archive, noRevision bool
	cmd := &cobra.Command{
		Use: "cp SRC DST", Short: "Copy files and directories in and out",
		Long: `Copy between this machine and a sandbox; one of the two is ID:PATH. Directories
are copied whole. As with cp, a destination that is a directory gets the source
inside it; SRC/. means what is in SRC. Links that would lead out of a copied
tree are left out on the way here, since what comes out of a sandbox is not
trusted. - is stdin or stdout; a directory is a tar stream there.`,
		Example: `  skete cp ./src ID:/workspace/src
  skete cp ID:result.csv .
  skete cp ID:/workspace/. ./copy
  skete cp ID:/workspace - | tar t
  echo hello | skete cp - ID:greeting`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, dst := parsePlace(args[0]), parsePlace(args[1])
			if (src.vm == "") == (dst.vm == "") {
				return errs.New(errs.Invalid, "exactly one of the two places is in a sandbox").
					WithHint("write ID:PATH for it, and ./PATH for a path of this machine with a colon in it")
			}
			if src.vm == "" && src.path != "-" {
				from, _ := content(src.path)
				if _, err := os.Stat(from); err != nil {
					return errs.Wrap(errs.Invalid, err, "the source")
				}
			}
			ctx := cmd.Context()
			c, err := a.Connect(ctx)
			if err != nil {
				return err
			}
			sb, err := a.Find(ctx, c, src.vm+dst.vm)
			if err != nil {
				return err
			}
			a.WarnIsolation(sb)
			if sb.State == "stopped" || sb.State == "failed" {
				return a.copyStopped(ctx, c, sb, src, dst)
			}
			files := app.Handle(c, sb.ID, noRevision).Files()
			if user != "" {
				files = files.As(user)
			}
			if dst.vm != "" {
				return a.copyTo(ctx, files, src.path, dst.path)
			}
			return a.copyFrom(ctx, files, src.path, dst.path)
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "as cp's: directories are copied whole with and without it")
	cmd.Flags().BoolVarP(&archive, "archive", "a", false, "the same: modes and links are kept with and without it")
	cmd.Flags().StringVar(&user, "user", "", "with the rights of this user inside; root needs a sandbox made with --root")
	app.NoRevision(cmd, &noRevision)
	return cmd
}

// copyStopped copies a file or a directory of the workspace out of a sandbox that
// has no machine: its newest revision has it. All else needs the machine, and says so.
func (a program) copyStopped(ctx context.Context, c *client.Client, sb api.Sandbox, src, dst place) error {
	start := fmt.Sprintf("`skete vm start %s`, then copy; `skete vm stop %s` again", sb.ID, sb.ID)
	if dst.vm != "" {
		return errs.New(errs.Conflict, "%s is %s: nothing can be copied into it", sb.ID, sb.State).WithHint("%s", start)
	}
	from, inside := content(src.path)
	if !path.IsAbs(from) {
		from = path.Join("/workspace", from)
	}
	name, ok := strings.CutPrefix(path.Clean(from)+"/", "/workspace/")
	name = strings.TrimSuffix(name, "/")
	if !ok {
		return errs.New(errs.Conflict, "%s is %s: only what is in its workspace can be copied", sb.ID, sb.State).WithHint("%s", start)
	}
	newest, err := newestRevision(ctx, c, sb.ID)
	if err != nil {
		return errs.Wrap(errs.Conflict, err, "%s is %s, and its history cannot be read", sb.ID, sb.State).WithHint("%s", start)
	}
	p := past{c.Sandbox(sb.ID), newest, name}
	dir, err := p.isDir(ctx)
	if err == nil {
		a.Note("skete: %s is %s; this is of its newest revision, %d", sb.ID, sb.State, newest)
		err = a.copyPast(ctx, p, dir, inside, dst.path)
	}
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Unsupported) || errs.Is(err, errs.Conflict) {
		return errs.Wrap(errs.Of(err), err, "%s is %s; of its newest revision", sb.ID, sb.State).
			WithHint("caches, files of 1 GiB or more and what is neither file nor directory need the machine: %s", start)
	}
	return err
}

// past is a path of the workspace as it was in a revision; "" = all of it.
type past struct {
	sb   *client.Sandbox
	n    uint64
	path string
}

// isDir reports whether it is a directory. Conflict: it is neither that nor a file.
func (p past) isDir(ctx context.Context) (bool, error) {
	if p.path == "" {
		return true, nil
	}
	r, err := p.sb.History().Open(ctx, p.n, p.path)
	if err == nil {
		return false, r.Close()
	}
	if !errs.Is(err, errs.Invalid) {
		return false, err
	}
	if r, err = p.sb.History().Archive(ctx, p.n, p.path); errs.Is(err, errs.Invalid) {
		return false, errs.New(errs.Conflict, "%.80q is neither a file nor a directory", p.path)
	}
	if err != nil {
		return false, err
	}
	return true, r.Close()
}

// copyPast is copyFrom for what was. inside: a directory's content is meant.
func (a program) copyPast(ctx context.Context, p past, dir, inside bool, dst string) error {
	if dst == "-" {
		open := p.sb.History().Open
		if dir {
			open = p.sb.History().Archive
		}
		r, err := open(ctx, p.n, p.path)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(a.Out, r)
		return err
	}
	if info, err := os.Stat(dst); (err == nil && info.IsDir() || strings.HasSuffix(dst, "/")) && !inside {
		dst = filepath.Join(dst, path.Base(path.Join("/workspace", p.path)))
	}
	if dir {
		w, err := p.sb.History().DownloadDir(ctx, p.n, p.path, dst)
		a.skipped(w.Skipped)
		return err
	}
	r, err := p.sb.History().Open(ctx, p.n, p.path)
	if err != nil {
		return err
	}
	defer r.Close()
	return save(dst, r, modeThen(ctx, p.sb, p.path))
}

// skipped names what was left out of a copied directory.
func (a program) skipped(names []string) {
	for _, name := range names {
		a.Note("skete: %s was left out: it is no file, directory or link that stays inside", app.Cell(name))
	}
}

// modeThen is how a file of the newest revision may be used, as far as its history
// tells.
func modeThen(ctx context.Context, sb *client.Sandbox, name string) os.FileMode {
	of, err := sb.History().Of(ctx, name)
	if err != nil || len(of.Items) == 0 || of.Items[0].Entry == nil {
		return 0o644
	}
	return os.FileMode(of.Items[0].Entry.Mode).Perm()
}

// newestRevision is of the files as they are, where the host has them; else
// the last that the machine has made.
func newestRevision(ctx context.Context, c *client.Client, id string) (uint64, error) {
	h := c.Sandbox(id).History()
	if now, err := h.Snapshot(ctx, ""); err == nil {
		return now.N, nil
	}
	page, err := h.Page(ctx, 1, "")
	if err == nil && len(page.Items) == 0 {
		err = errs.New(errs.NotFound, "it has no revision")
	}
	if err != nil {
		return 0, err
	}
	return page.Items[0].N, nil
}

// isDir reports whether a path in the sandbox is a directory.
func isDir(ctx context.Context, f *client.Files, p string) (bool, error) {
	if p == "" {
		return true, nil // the working directory
	}
	st, err := f.Stat(ctx, p, true)
	if errs.Is(err, errs.NotFound) {
		return false, nil
	}
	return err == nil && st.Type == "directory", err
}

// here makes an empty path the working directory.
func here(p string) string {
	if p == "" {
		return "."
	}
	return p
}

// content cuts the /. off that means what is in a directory.
func content(p string) (string, bool) {
	if p == "." || strings.HasSuffix(p, "/.") {
		return here(strings.TrimSuffix(p, "/.")), true
	}
	return p, false
}

func (a program) copyTo(ctx context.Context, f *client.Files, src, dst string) error {
	dir, err := isDir(ctx, f, dst)
	if err != nil {
		return err
	}
	if src == "-" {
		if dir {
			_, err := f.Upload(ctx, here(dst), a.In)
			return err
		}
		_, err := f.WriteFrom(ctx, dst, a.In, client.WriteOptions{MakeParents: true})
		return err
	}
	src, inside := content(src)
	info, err := os.Stat(src)
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "the source")
	}
	if (dir || strings.HasSuffix(dst, "/")) && !inside {
		abs, err := filepath.Abs(src)
		if err != nil {
			return err
		}
		dst = path.Join(here(dst), filepath.Base(abs))
	}
	if info.IsDir() {
		if _, err := f.MakeDir(ctx, here(dst), true); err != nil {
			return err
		}
		w, err := f.UploadDir(ctx, src, here(dst))
		a.Log.Info("copied", "entries", w.Entries, "bytes", w.Bytes)
		return err
	}
	if !info.Mode().IsRegular() {
		return errs.New(errs.Invalid, "the source is neither a file nor a directory")
	}
	r, err := os.Open(src)
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "the source")
	}
	defer r.Close()
	_, err = f.WriteFrom(ctx, dst, r, client.WriteOptions{Mode: uint32(info.Mode().Perm()), MakeParents: true})
	return err
}

func (a program) copyFrom(ctx context.Context, f *client.Files, src, dst string) error {
	src, inside := content(src)
	src = here(src)
	st, err := f.Stat(ctx, src, true)
	if err != nil {
		return err
	}
	dir := st.Type == "directory"
	if dst == "-" {
		return a.copyOut(ctx, f, src, dir)
	}
	if info, err := os.Stat(dst); (err == nil && info.IsDir() || strings.HasSuffix(dst, "/")) && !inside {
		name := path.Base(client.PathOf(st)) // absolute, so that . has a name
		if !filepath.IsLocal(name) {
			return errs.New(errs.Invalid, "%.80q has no name to copy it to", src).WithHint("name the destination, or copy what is in it: ID:%s/.", src)
		}
		dst = filepath.Join(dst, name)
	}
	if dir {
		w, err := f.DownloadDir(ctx, src, dst)
		a.skipped(w.Skipped)
		return err
	}
	return a.saveFile(ctx, f, src, dst, os.FileMode(st.Mode)&os.ModePerm)
}

// copyOut writes a file, or a directory as tar, to stdout.
func (a program) copyOut(ctx context.Context, f *client.Files, src string, dir bool) error {
	open := func() (io.ReadCloser, error) { return f.Open(ctx, src, 0, 0) }
	if dir {
		open = func() (io.ReadCloser, error) { return f.Download(ctx, src) }
	}
	r, err := open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(a.Out, r)
	return err
}

// saveFile writes beside the destination and renames, so that a broken
// connection leaves what was there.
func (a program) saveFile(ctx context.Context, f *client.Files, src, dst string, mode os.FileMode) error {
	r, err := f.Open(ctx, src, 0, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	return save(dst, r, mode)
}

func save(dst string, r io.Reader, mode os.FileMode) error {
	if info, err := os.Stat(dst); err == nil && !info.Mode().IsRegular() {
		w, err := os.OpenFile(dst, os.O_WRONLY, 0) // a device or pipe is written to
		if err != nil {
			return errs.Wrap(errs.Invalid, err, "the destination")
		}
		defer w.Close()
		_, err = io.Copy(w, r)
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(dst), ".skete-*")
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "the destination")
	}
	defer os.Remove(tmp.Name())
	if _, err = io.Copy(tmp, r); err == nil {
		err = tmp.Chmod(mode)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), dst)
}
