// Package debian makes the ready templates: debian, and one for each language.
// They are Debian (or Ubuntu, where the host is) with a few packages, put
// together by mmdebstrap when they are first asked for.
//
//	m, err := debian.New(debian.Config{Store: store, Dir: dir})
//	defer m.Close()
//	info, err := m.Prepare(ctx, "python", func(line string) { fmt.Println(line) })
//	root, err := m.Rootfs(ctx, "python") // Prepare, if it is not there yet
//
// Packages come from the mirror of the configuration, else from those that the
// host itself uses, else from the distribution's own. Their signatures are
// checked by apt. Who asks for a template that is being made shares that work;
// it ends early when no caller waits for it any more. A template is whole or not
// there: what a killed process left is removed by the next New.
//
// A Maker is safe for concurrent use.
package debian
