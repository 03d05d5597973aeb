//go:build noweb

package web

import "embed"

// Built says whether the UI is in this program.
const Built = false

var files embed.FS
