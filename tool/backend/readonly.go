package backend

import (
	"context"

	"github.com/skete-dev/skete/tool"
)

// ReadOnly refuses what would change files: for archives.
func ReadOnly(files tool.Files) tool.Files { return readOnly{files} }

type readOnly struct{ tool.Files }

func (readOnly) Write(_ context.Context, p string, _ []byte, _ string) (string, error) {
	return "", fail(tool.CodeDenied, p, "this place is read-only")
}

func (readOnly) Delete(_ context.Context, p string) error {
	return fail(tool.CodeDenied, p, "this place is read-only")
}
