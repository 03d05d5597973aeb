package escape

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/template"
)

// other: another sandbox of the same server, where even root is granted; its
// files, processes and ports.
func (w World) other(t *testing.T) {
	a, b := w.machine(t, false), w.machine(t, true)
	token := string(sandbox.NewID())
	b.Background("server", "./tool", "listen", "18999")
	b.Background("named", "/bin/sh", "-c", "echo "+token+" > /tmp/"+token+"; cp /tmp/"+token+" .; sleep 1000; : "+token)
	sandboxtest.Eventually(t, "the other's server and files", func() bool {
		return b.Shell("./tool dial tcp 127.0.0.1:18999 && cat /tmp/"+token+" ./"+token).Code == 0
	})
	for _, line := range []string{
		"./tool dial tcp 127.0.0.1:18999",
		"cat /tmp/" + token + " || cat " + token,
		"cat /proc/*/cmdline | tr '\\0' ' ' | grep 'sleep 100[0]'",
		"find / -xdev -name '" + token + "' | grep .",
	} {
		if res := a.Shell(line); res.Code == 0 {
			t.Errorf("%q: %+v", line, res)
		}
	}
}

func asRoot(t *testing.T, g sandboxtest.Guest, line string) sandboxtest.Result {
	t.Helper()
	r := sandboxtest.Start("/bin/sh", "-c", line)
	r.User = "root"
	res, err := g.Exec(t.Context(), r)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return res
}

// template: what a machine does to its root stays in its own layer. What
// machines share is never written, not even to make a mount point.
func (w World) template(t *testing.T) {
	b := w.Boot(t)
	b.Spec.Root = true
	before := content(t, b.Rootfs)
	g := sandboxtest.NewGuest(t, w.Create(t, b))
	res := asRoot(t, g, "echo x >> /etc/passwd; mkdir /var/new; chown 1000 /etc; rm /etc/group; touch /home/user/x; tail -n 1 /etc/passwd; ls -d /var/new")
	if res.Stdout != "x\n/var/new\n" {
		t.Errorf("inside: %+v", res)
	}
	if diff := cmp.Diff(before, content(t, b.Rootfs)); diff != "" {
		t.Errorf("the template changed (-before +after):\n%s", diff)
	}
}

// content is what a root file system has, in a form to compare.
func content(t *testing.T, r template.Rootfs) []string {
	t.Helper()
	if r.Image != "" {
		f, err := os.Open(r.Image)
		must(t, err)
		defer f.Close()
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		must(t, err)
		return []string{hex.EncodeToString(sum.Sum(nil))}
	}
	var all []string
	must(t, filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all = append(all, fmt.Sprintf("%s %s %d", path, info.Mode(), info.Size()))
		}
		return err
	}))
	return all
}

// links: the links of a template are not trusted. They must not make the provider
// bind what they point to on the host, nor write there.
func (w World) links(t *testing.T, loot prize) {
	if w.Capabilities.RootImage {
		t.Skip("the template is an image: the host opens no path in it")
	}
	outside := filepath.Dir(loot.file)
	for name, link := range map[string]string{
		"var/tmp": outside, "etc/hosts": loot.file, "etc/resolv.conf": loot.file, "opt": outside,
		"srv": "../../../../../../../../.." + outside,
	} {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			b := w.Boot(t)
			b.Spec.Root = true
			path := filepath.Join(b.Rootfs.Dir, name)
			must(t, errors.Join(os.RemoveAll(path), os.Symlink(link, path)))
			g := sandboxtest.NewGuest(t, w.Create(t, b))
			res := asRoot(t, g, "cat /"+name+" /"+name+"/secret; touch /"+name+"/mark; echo mark >> /"+name)
			if strings.Contains(res.Stdout, loot.token) {
				t.Errorf("the prize was taken: %+v", res)
			}
			if data, err := os.ReadFile(loot.file); err != nil || string(data) != loot.token {
				t.Errorf("the host's file was written: %q, %v", data, err)
			}
			if _, err := os.Lstat(filepath.Join(outside, "mark")); err == nil {
				t.Error("the host's directory was written")
			}
		})
	}
}
