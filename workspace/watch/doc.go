// Package watch says which directories of a file system changed, so that a
// scan need not look at all of them.
//
//	w, err := watch.Open(dir) // Unsupported: look at everything, always
//	c := w.Take()             // what changed since the last Take
//	if c.Whole { … }          // anything may have
//
// The kernel reports by fanotify, for the whole file system that dir is on, the
// writes of every process through every mount. Only directories are remembered,
// by their handles; a handle becomes an inode when Take asks for it, and what
// is gone by then is not named, since its parent is.
//
// # What it does not see
//
// Stores into mapped pages make no events until the mapping ends. Mapped names
// the files that are mapped now, so that the caller looks at them every time;
// call it before Take: a mapping that ends in between makes an event.
//
// What has two names (a file, a symbolic link, a named pipe) is reported under
// the one that it was changed by. The caller looks at every directory that has
// such names every time.
//
// What was linked, written under the second name and unlinked again between
// two looks, and what root writes beneath the file system's feet (a loop device
// on a file), is not reported. Look at everything now and then.
//
// # What it needs
//
// CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE, Linux 5.9, ext4 or XFS,
// and a file system that holds little else than dir: Open refuses the host's
// own. The first Take says Whole, and so does the one after too many
// directories, an overflow of the kernel's queue, or any error: nothing is
// guessed.
//
// A Watcher is safe for concurrent use. It drains the kernel's queue every
// tenth of a second, in batches: to wake for every event would cost writers
// more than the events do.
package watch
