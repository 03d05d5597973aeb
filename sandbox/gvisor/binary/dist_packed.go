//go:build packed

package binary

import "embed"

//go:embed dist/skete-runsc.zst
var dist embed.FS
