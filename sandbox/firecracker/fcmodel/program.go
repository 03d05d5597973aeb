package fcmodel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// programVersion is what the programs claim to be; VersionFile beside them
// makes them claim another.
const programVersion = "1.16.1"

// VersionFile holds a version, in the programs' directory.
const VersionFile = "version"

// Main plays firecracker, or jailer, as its name says.
func Main(args []string) int {
	name := filepath.Base(args[0])
	err := errors.New("call me firecracker or jailer")
	switch {
	case len(args) == 2 && args[1] == "--version":
		fmt.Printf("%s v%s\n\n", strings.ToUpper(name[:1])+name[1:], claimedVersion(args[0]))
		return 0
	case name == "firecracker":
		err = firecracker(args)
	case name == "jailer":
		err = jailer(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func claimedVersion(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		if data, err := os.ReadFile(filepath.Join(filepath.Dir(path), VersionFile)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	return programVersion
}

// options reads "--name value" pairs and flags, and refuses what is unknown.
func options(args []string, known map[string]bool) (map[string][]string, []string, error) {
	got := map[string][]string{}
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return got, args[i+1:], nil
		}
		name, ok := strings.CutPrefix(args[i], "--")
		takes, there := known[name]
		switch {
		case !ok || !there:
			return nil, nil, fmt.Errorf("unexpected argument %q", args[i])
		case !takes:
			got[name] = append(got[name], "")
		case i+1 == len(args):
			return nil, nil, fmt.Errorf("argument %q needs a value", args[i])
		default:
			i++
			got[name] = append(got[name], args[i])
		}
	}
	return got, nil, nil
}

var instanceID = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

func one(got map[string][]string, name string) string {
	if v := got[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

func firecracker(args []string) error {
	got, _, err := options(args[1:], map[string]bool{"id": true, "api-sock": true, "log-path": true, "level": true, "show-level": false})
	if err != nil {
		return err
	}
	if !instanceID.MatchString(one(got, "id")) {
		return fmt.Errorf("invalid id %q", one(got, "id"))
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(one(got, "log-path"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m := New(Config{Dir: dir, Version: claimedVersion(args[0])})
	m.c.Boot = BootProcess(filepath.Join(dir, "model"), m.path)
	if err := m.Serve(ctx, one(got, "api-sock")); err != nil {
		return err
	}
	if m.failed() {
		fmt.Fprintln(log, "[model:ERROR] Firecracker exiting with error. exit_code=1")
		return errors.New("the load failed")
	}
	fmt.Fprintln(log, "[model:INFO] Firecracker exiting successfully. exit_code=0")
	return nil
}

// failed: it ended, and no guest ever ran.
func (m *Model) failed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state == ended && m.guest == nil
}

// jailer does what can be done without control groups of version 2: a copy of
// the program, a root directory, a user, a process namespace.
func jailer(args []string) error {
	got, rest, err := options(args[1:], map[string]bool{
		"id": true, "exec-file": true, "uid": true, "gid": true, "chroot-base-dir": true, "netns": true,
		"cgroup-version": true, "cgroup": true, "parent-cgroup": true, "resource-limit": true, "new-pid-ns": false, "daemonize": false,
	})
	if err != nil {
		return err
	}
	uid, uerr := strconv.ParseUint(one(got, "uid"), 10, 32)
	gid, gerr := strconv.ParseUint(one(got, "gid"), 10, 32)
	id, program := one(got, "id"), one(got, "exec-file")
	if uerr != nil || gerr != nil || !instanceID.MatchString(id) {
		return errors.New("--uid, --gid and --id must be given, and be valid")
	}
	root := filepath.Join(one(got, "chroot-base-dir"), filepath.Base(program), id, "root")
	if len(got["cgroup"]) > 0 {
		return errors.New("No hierarchy found for this cgroup version.") //nolint:staticcheck // the real one's words
	}
	if err := copyProgram(program, root, int(uid), int(gid)); err != nil {
		return err
	}
	cmd := exec.Command("/"+filepath.Base(program), append([]string{"--id", id}, rest...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{}, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if _, ok := got["new-pid-ns"]; ok {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.Base(program)+".pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// copyProgram follows no link and overwrites no file that has another name.
func copyProgram(program, root string, uid, gid int) error {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	in, err := os.Open(program)
	if err != nil {
		return err
	}
	defer in.Close()
	path := filepath.Join(root, filepath.Base(program))
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chown(uid, gid), out.Close(), os.Lchown(root, uid, gid), os.Chmod(root, 0o700))
}
