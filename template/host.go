package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// The sandbox's user, in every template.
const (
	userID   = 1000
	userHome = "/home/user"
)

const hostPrefix = "host-"

// plan is a small tree to be built: path (relative) -> node.
type plan map[string]node

type node struct {
	mode fs.FileMode // with its type
	data string      // content, or a link's target
	user bool        // belongs to the sandbox's user
}

func (p plan) dir(path string, mode fs.FileMode) { p[path] = node{mode: mode | fs.ModeDir} }
func (p plan) file(path, data string)            { p[path] = node{mode: 0o644, data: data} }
func (p plan) link(path, target string)          { p[path] = node{mode: 0o777 | fs.ModeSymlink, data: target} }

// hash names the plan by all that it says.
func (p plan) hash() string {
	h := sha256.New()
	for _, path := range p.paths() {
		n := p[path]
		fmt.Fprintf(h, "%q %o %v %d\n", path, uint32(n.mode), n.user, len(n.data))
		_, _ = io.WriteString(h, n.data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (p plan) paths() []string {
	paths := make([]string, 0, len(p))
	for path := range p {
		paths = append(paths, path)
	}
	slices.Sort(paths) // a directory comes before its inside
	return paths
}

// mountPoints are what a provider mounts upon; it must never have to make one
// in a shared tree.
func mountPoints() plan {
	p := plan{}
	for _, path := range []string{
		"proc", "sys", "dev", "run", "var", "var/lib", "var/log", "var/cache", "home", "etc", "opt", "mnt", "srv", "usr",
	} {
		p.dir(path, 0o755)
	}
	for _, path := range []string{"tmp", "tmp/.X11-unix", "var/tmp", "dev/shm"} {
		p.dir(path, 0o777|fs.ModeSticky)
	}
	for _, path := range []string{"root", strings.TrimPrefix(wire.BootDir, "/"), "var/lib/skete-guest"} {
		p.dir(path, 0o700)
	}
	for _, path := range []string{"workspace", strings.TrimPrefix(userHome, "/")} {
		p[path] = node{mode: 0o755 | fs.ModeDir, user: true}
	}
	return p
}

// hostRootfs builds the host's tree when something in it changed.
func (s *Store) hostRootfs(ctx context.Context) (Rootfs, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Rootfs{}, err
	}
	if s.host.Dir != "" && time.Since(s.hostAt) < hostFresh {
		return s.host.clone(), nil
	}
	p, binds, err := hostPlan("/")
	if err != nil {
		return Rootfs{}, err
	}
	hash := p.hash()
	dir := s.Path(treesDir, hostPrefix+hash)
	if _, err := os.Stat(dir); err != nil {
		if dir, err = s.buildPlan(p, hostPrefix+hash); err != nil {
			return Rootfs{}, fmt.Errorf("build the template host: %w", err)
		}
	}
	s.host = Rootfs{Name: HostName, Hash: hash, Dir: dir, Binds: binds}
	s.host.Env = environment(s.host.view())
	s.hostAt = time.Now()
	return s.host.clone(), nil
}

// clone keeps callers from writing into what others are given.
func (r Rootfs) clone() Rootfs {
	r.Binds = slices.Clone(r.Binds)
	env := make(map[string]string, len(r.Env))
	maps.Copy(env, r.Env)
	r.Env = env
	return r
}

func (s *Store) buildPlan(p plan, name string) (string, error) {
	t, err := s.Temp()
	if err != nil {
		return "", err
	}
	defer t.Close()
	tree := filepath.Join(t.Dir, "root")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	for _, path := range p.paths() {
		if err := p[path].make(filepath.Join(tree, path)); err != nil {
			return "", err
		}
	}
	final := s.Path(treesDir, name)
	return final, s.Publish(tree, final)
}

// make creates one node of a tree of our own.
func (n node) make(path string) error {
	switch {
	case n.mode&fs.ModeSymlink != 0:
		return os.Symlink(n.data, path)
	case n.mode.IsDir():
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(path, []byte(n.data), 0o600); err != nil {
			return err
		}
	}
	mode := n.mode & (fs.ModePerm | fs.ModeSticky)
	if n.user {
		if os.Geteuid() == 0 {
			if err := os.Lchown(path, userID, userID); err != nil {
				return err
			}
		} else {
			mode |= 0o777 // without root nothing can be given to the user
		}
	}
	return os.Chmod(path, mode)
}

// hostPlan lays out the template host from the host's files under root ("/",
// or a stand-in in tests).
func hostPlan(root string) (plan, []Bind, error) {
	p := mountPoints()
	binds := []Bind{{Source: filepath.Join(root, "usr"), Target: "/usr"}}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		host := filepath.Join(root, name)
		info, err := os.Lstat(host)
		if err != nil {
			continue
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			p.dir(name, 0o755)
			binds = append(binds, Bind{Source: host, Target: "/" + name})
			continue
		}
		target, err := os.Readlink(host)
		if err != nil {
			return nil, nil, err
		}
		if clean := strings.TrimPrefix(filepath.Clean("/"+target), "/"); !strings.HasPrefix(clean, "usr/") {
			return nil, nil, errs.New(errs.Unsupported, "this host's /%s is a link to somewhere outside of /usr", name).
				WithHint("import a root file system: `skete template import`")
		}
		p.link(name, target)
	}
	p.link("var/run", "/run")
	p.generateEtc()
	p.copyEtc(root)
	return p, binds, nil
}

// environment is what commands find set, before the sandbox's own.
func environment(v rootView) map[string]string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if _, err := v.Program("/usr/local/go/bin/go"); err == nil {
		path += ":/usr/local/go/bin"
	}
	return map[string]string{"PATH": path, "LANG": "C.UTF-8"}
}
