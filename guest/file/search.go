package file

import (
	"context"
	"strings"

	"github.com/skete-dev/skete/guest/file/tree"
)

// findFiles visits, sorted, what matches a pattern beneath an open directory.
func findFiles(ctx context.Context, root int, base string, g *globPattern, visit func(tree.Item) error) error {
	return tree.Walk(ctx, root, tree.Options{Depth: g.Depth(), Unreadable: passOver}, func(it tree.Item) error {
		if g.Match(it.Rel) {
			if err := visit(it); err != nil {
				return err
			}
		}
		if tree.IsDir(&it.Stat) && (kernelTree(base, it.Rel) || !g.mayContain(it.Rel)) {
			return tree.ErrSkip
		}
		return nil
	})
}

func passOver(string, error) error { return nil }

// kernelTree reports directories whose files are no files: endless, or made
// by reading them.
func kernelTree(base, rel string) bool {
	full := strings.TrimSuffix(base, "/") + "/" + rel
	return full == "/proc" || full == "/sys"
}
