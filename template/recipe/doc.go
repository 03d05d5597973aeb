// Package recipe builds templates from a declaration, skete.template.yaml:
//
//	from: debian               # a template, or an image of a registry
//	packages: [jq]             # of Debian or Ubuntu
//	files:
//	  - {from: tool.py, to: /usr/local/bin/tool, mode: "0755"}
//	run:
//	  - tool --install
//	env: {TOOL_HOME: /opt/tool}
//	ready: tool --version      # tried at the end of the build
//
//	b, err := recipe.New(recipe.Config{Templates: store, Machines: machines, …})
//	info, err := b.Build(ctx, recipe.Request{Name: "tools", Recipe: r, Files: root}, tell)
//
// Packages, then files, then each command of run is a step. It happens as root
// in a fresh sandbox that has no network; afterwards the sandbox's root is
// kept as a tree of its own, under a key of what it was made from: the tree
// before it, the step's text, the content of its files. A step whose key is
// known is not done again, so that a build that was killed goes on where it
// was. Packages are fetched on the host (package apt), and their scripts run
// inside like everything else.
//
// The network being none, `run` can do what needs nothing from outside:
// configure, compile, unpack and install what files brought.
//
// A Builder is safe for concurrent use.
package recipe
