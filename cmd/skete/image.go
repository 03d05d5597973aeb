package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

const passwordBytesMax = 64 << 10

func (a program) templatePull() *cobra.Command {
	var p api.PullTemplate
	var stdin bool
	cmd := &cobra.Command{
		Use: "pull IMAGE", Short: "Make a template of an image in a registry",
		Long: `Make a template of an image in a registry. The server fetches it; what it has
already is not fetched again, and a pull that was cut off goes on where it was.
Who you are at the registry is what docker login keeps on this machine, or
--username and --password-stdin; the server keeps nothing of it.`,
		Example: `  skete template pull python:3.13-slim
  skete template pull registry.example/owner/tools:v2 --name tools --platform linux/arm64
  skete template pull registry.example:5000/app --username me --password-stdin < password`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Reference = args[0]
			if err := a.signIn(&p, stdin); err != nil {
				return err
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			t, err := a.Pulling(c.PullTemplate(cmd.Context(), p))
			if err != nil {
				return err
			}
			return a.printTemplate(t)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&p.Name, "name", "", "of the template (default the last part of the image's name)")
	fs.StringVar(&p.Platform, "platform", "", "such as linux/amd64 (default the server's own)")
	fs.BoolVar(&p.InsecureHTTP, "insecure-http", false, "speak plain HTTP if the registry has no HTTPS")
	fs.StringVar(&p.Username, "username", "", "at the registry")
	fs.BoolVar(&stdin, "password-stdin", false, "read the password from stdin")
	return cmd
}

// signIn fills in who we are at the registry.
func (a program) signIn(p *api.PullTemplate, stdin bool) error {
	if stdin != (p.Username != "") {
		return errs.New(errs.Invalid, "--username and --password-stdin go together")
	}
	if stdin {
		data, err := io.ReadAll(io.LimitReader(a.In, passwordBytesMax+1))
		if err != nil || len(data) > passwordBytesMax {
			return errs.Wrap(errs.Invalid, err, "the password on stdin cannot be read")
		}
		p.Password = strings.TrimRight(string(data), "\r\n")
		return nil
	}
	ref, err := name.ParseReference(p.Reference)
	if err != nil {
		return nil //nolint:nilerr // the server says what is wrong with it
	}
	who, err := authn.DefaultKeychain.Resolve(ref.Context().Registry)
	if err != nil || who == authn.Anonymous {
		return nil //nolint:nilerr // then without a login; the registry says if that is not enough
	}
	auth, err := who.Authorization()
	if err != nil {
		a.Note("the sign-in of docker login for %s cannot be used: %v", ref.Context().RegistryStr(), err)
		return nil
	}
	p.Username, p.Password, p.IdentityToken, p.RegistryToken = auth.Username, auth.Password, auth.IdentityToken, auth.RegistryToken
	return nil
}

func (a program) printTemplate(t api.Template) error {
	if a.JSON {
		return app.PrintJSON(a.Out, t)
	}
	a.Note("%s: %s, languages: %s", app.Cell(t.Name), app.BytesText(t.Bytes), app.Cell(strings.Join(t.Languages, ",")))
	_, err := fmt.Fprintln(a.Out, app.Cell(t.Name))
	return err
}

func (a program) templateImport() *cobra.Command {
	var platform string
	cmd := &cobra.Command{
		Use: "import [NAME] FILE|DIR", Short: "Make a template of an archive",
		Long: `Make a template of an archive: the tar of a root file system, what docker save
writes, an OCI layout (a tar or the directory), or a bundle of template export;
plain, or packed by gzip, bzip2 or zstd. - reads stdin. Only a bundle may go
without a NAME; it has one.`,
		Example: `  skete template import debian rootfs.tar
  docker save app | skete template import app -
  skete template import debian.bundle`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, from := "", args[len(args)-1]
			if len(args) == 2 {
				named = args[0]
			}
			r, err := a.openArchive(from)
			if err != nil {
				return err
			}
			defer r.Close()
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			t, err := c.ImportTemplateFor(cmd.Context(), named, platform, r)
			if err != nil {
				return err
			}
			return a.printTemplate(t)
		},
	}
	cmd.Flags().StringVar(&platform, "platform", "", "of an image, such as linux/amd64 (default the server's own)")
	return cmd
}

// openArchive opens a file, stdin or a directory, which is packed on its way.
func (a program) openArchive(from string) (io.ReadCloser, error) {
	if from == "-" {
		return io.NopCloser(a.In), nil
	}
	f, err := os.Open(from)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the archive cannot be read")
	}
	info, err := f.Stat()
	if err != nil || !info.IsDir() {
		return f, err
	}
	_ = f.Close()
	if _, err := os.Stat(filepath.Join(from, "index.json")); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the directory is no OCI layout: it has no index.json").
			WithHint("a root file system is packed by `tar -C DIR -c . | skete template import NAME -`")
	}
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(packLayout(w, from)) }() // ends when r is closed
	return r, nil
}

// packLayout writes a directory's files as a tar.
func packLayout(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tw := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(tw, f)
		return err
	})
	return errors.Join(err, tw.Close())
}

func (a program) templateShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Describe a template", Example: "  skete template show debian", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			t, err := c.Template(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, t)
			}
			for _, row := range describeTemplate(t) {
				if row[1] != "" {
					if _, err := fmt.Fprintf(a.Out, "%-12s %s\n", row[0], app.Printable(row[1])); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}

func describeTemplate(t api.Template) [][2]string {
	rows := [][2]string{
		{"name", t.Name},
		{"kind", t.Kind},
		{"hash", t.Hash},
		{"size", app.BytesText(t.Bytes)},
		{"languages", strings.Join(t.Languages, ", ")},
		{"machine", machineText(t)},
	}
	if t.CreatedAt != nil {
		rows = append(rows, [2]string{"age", app.Age(*t.CreatedAt)})
	}
	if t.Skipped > 0 {
		rows = append(rows, [2]string{"left out", fmt.Sprintf("%d devices and odd attributes", t.Skipped)})
	}
	if s := t.Source; s != nil {
		rows = append(rows, [2]string{"image", s.Reference}, [2]string{"digest", s.Digest}, [2]string{"platform", s.Platform},
			[2]string{"env", strings.Join(s.Env, " ")}, [2]string{"entrypoint", strings.Join(s.Entrypoint, " ")}, [2]string{"cmd", strings.Join(s.Cmd, " ")},
			[2]string{"user", s.User}, [2]string{"working dir", s.WorkingDir})
	}
	return rows
}

// machineText is the machine that a template is meant for; "" = it says none.
func machineText(t api.Template) string {
	var parts []string
	if t.CPUs != 0 {
		parts = append(parts, fmt.Sprintf("%g CPUs", t.CPUs))
	}
	if t.MemoryMB != 0 {
		parts = append(parts, fmt.Sprintf("%d MB", t.MemoryMB))
	}
	return strings.Join(parts, ", ")
}

func (a program) templateExport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "export NAME -o FILE", Short: "Write a template and what goes with it into one file, for a machine without a network",
		Example: "  skete template export debian -o debian.bundle\n  skete template import debian.bundle   # there",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return errs.New(errs.Invalid, "a bundle needs a file: -o FILE, or -o - for stdout")
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			if out == "-" {
				return c.ExportTemplate(cmd.Context(), args[0], a.Out)
			}
			// Beside the file, so that half of one is never found.
			f, err := os.CreateTemp(filepath.Dir(out), ".export-*")
			if err != nil {
				return errs.Wrap(errs.Invalid, err, "the bundle's file cannot be written")
			}
			defer os.Remove(f.Name())
			err = c.ExportTemplate(cmd.Context(), args[0], f)
			if err = errors.Join(err, f.Close()); err != nil {
				return err
			}
			return os.Rename(f.Name(), out)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write; - is stdout")
	return cmd
}

func (a program) templateGC() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Delete what no template and no sandbox needs", Example: "  skete template gc --all",
		Long: `Delete trees, images and layers that no template and no sandbox needs, and say
what is left. The server does it from time to time by itself.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			swept, err := c.SweepTemplates(cmd.Context(), all)
			if err != nil {
				return err
			}
			left, err := c.TemplateUsage(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, struct {
					Swept api.TemplatesSwept `json:"swept"`
					Left  api.TemplateUsage  `json:"left"`
				}{swept, left})
			}
			_, err = fmt.Fprintf(a.Out, "deleted %d trees, %d images, %d layers (%s)\nleft    %d trees (%s), %d images (%s), %d layers (%s)\n",
				swept.Trees, swept.Images, swept.Blobs, app.BytesText(swept.Bytes),
				left.Trees, app.BytesText(left.TreeBytes), left.Images, app.BytesText(left.ImageBytes), left.Blobs, app.BytesText(left.BlobBytes))
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also what was fetched by pulls that did not end")
	return cmd
}
