//go:build !packed

package binary

import "embed"

//go:embed dist
var dist embed.FS
