package history

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a commands) export() *cobra.Command {
	var t app.Target
	var dir string
	cmd := &cobra.Command{
		Use: "export [ID]", Short: "Write the history as a git repository",
		Long: `Write the history as a git repository: a commit for each revision. With --git it
becomes a new repository in DIR, by the git of this computer; nothing is checked
out. Without it the stream for ` + "`git fast-import`" + ` goes to stdout.`,
		Example: `  skete history export ID --git ./history
  skete history export ID > history.stream`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, ok := a.Terminal(); ok && dir == "" {
				return errs.New(errs.Invalid, "a terminal cannot show the stream").WithHint("use --git DIR, or redirect stdout")
			}
			if dir != "" {
				if err := emptyDir(dir); err != nil {
					return err
				}
			}
			h, _, _, err := a.open(cmd.Context(), &t, args)
			if err != nil {
				return err
			}
			stream, err := h.Export(cmd.Context())
			if err != nil {
				return err
			}
			defer stream.Close()
			if dir == "" {
				_, err := io.Copy(a.Out, stream)
				return err
			}
			return a.git(cmd, dir, stream)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().StringVar(&dir, "git", "", "make a git repository in this `DIR`, which must not exist or be empty")
	return a.WithCompletion(cmd, 1)
}

// emptyDir refuses a directory with something in it: it may be the user's repository.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return errs.Wrap(errs.Invalid, err, "--git: %.200q cannot be used", dir)
	case len(entries) > 0:
		return errs.New(errs.Exists, "--git: %.200q is not empty", dir)
	}
	return nil
}

func (a commands) git(cmd *cobra.Command, dir string, stream io.Reader) error {
	steps := []struct {
		in   io.Reader
		args []string
	}{
		{nil, []string{"init", "--quiet", dir}},
		{stream, []string{"-C", dir, "fast-import", "--quiet"}},
	}
	for _, s := range steps {
		git := exec.CommandContext(cmd.Context(), "git", s.args...)
		git.Stdin, git.Stderr = s.in, a.Err
		if err := git.Run(); err != nil {
			return errs.Wrap(errs.Unavailable, err, "git %s failed", s.args[0])
		}
	}
	a.Note("`git -C %s log --all` shows it", app.Printable(dir))
	_, err := fmt.Fprintln(a.Out, dir)
	return err
}
