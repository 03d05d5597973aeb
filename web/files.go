//go:build !noweb

package web

import "embed"

// Built says whether the UI is in this program.
const Built = true

//go:embed dist
var files embed.FS
