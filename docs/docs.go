// Package docs carries the documentation that the program shows by itself, so
// that who has only the binary can read it: `skete help TOPIC`.
//
//	text, err := docs.Files.ReadFile("models.md")
package docs

import "embed"

// Files are documents in Markdown, one a topic.
//
//go:embed models.md agents.md schedules.md workflows.md tools.md plugins.md workflow.schema.json config.md network.md history.md templates.md script.md operate.md bridges.md
var Files embed.FS
