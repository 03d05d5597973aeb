// Package file is the guest's file service: the File part of guest.v1.
//
//	svc, err := file.New(file.Config{User: "user", UID: 1000, GID: 1000, Home: "/home/user", Workdir: "/workspace"})
//	defer svc.Close()
//	mux.Handle(wire.NewFileHandler(svc))
//
// Every call acts with the rights of the request's user, and it is the kernel
// that checks them: the call runs on a system thread whose effective user and
// group were switched (users.go), so there is no gap between a check and its
// use that a program in the sandbox could slip a symbolic link into. Trees
// are walked through directory descriptors (guest/file/tree).
//
// What follows a symbolic link in the last component: Read, Write (also a
// whole one, which replaces the file the link points to), List, Upload, Glob,
// Grep, Watch, and Stat when asked to. What acts on the link itself: Stat,
// Move, Copy, Remove, Download. Chmod refuses links. Links inside a tree are
// never followed.
//
// The service is safe for concurrent use and keeps no state but watches. A
// call that is broken off leaves either the old state or, for trees, a part
// of the new one; a temporary file is left only when the guest itself dies.
package file
