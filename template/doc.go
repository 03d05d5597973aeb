// Package template makes and keeps the root file systems that sandboxes start
// from.
//
//	store, err := template.Open("/var/lib/skete/templates")
//	root, err := store.Rootfs(ctx, template.HostName) // the host's own programs
//	info, err := store.Import(ctx, "debian", tarball) // then Rootfs(ctx, "debian")
//	info, err = store.Pull(ctx, "alpine:3", template.PullOptions{}, tell)
//	path, err := store.Image(ctx, root)               // ext4, for machines with their own kernel
//	err = store.Language(ctx, "debian", "python")     // Unsupported, with a hint, when missing
//
// The template "host" shows the host's /usr (and /bin, /lib where they are
// directories) read-only, with a generated /etc and a short allow-list of the
// host's; nothing else of the host is visible. All others come from tars and
// images that are not trusted (apply.go): a root file system, what
// docker save writes, an OCI layout, a registry, a bundle of another skete.
//
// Trees are named by their content, shared read-only and never written by a
// sandbox. They are built aside and renamed, so a tree is whole or not there;
// what a killed process left is swept by the next Open.
//
// All methods are safe for concurrent use, by several processes too.
package template
