package template

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of what is copied from the host's /etc.
const (
	etcFileBytesMax = 4 << 20
	etcFilesMax     = 5000
	etcDepthMax     = 8
)

const (
	passwdText = `root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`
	passwdUser = "user:x:1000:1000:user:/home/user:/bin/bash\n"
	groupText  = `root:x:0:
daemon:x:1:
tty:x:5:
users:x:100:
nogroup:x:65534:
`
	groupUser = "user:x:1000:\n"
	hostsText = `127.0.0.1 localhost sandbox
::1 localhost ip6-localhost ip6-loopback
`
	nsswitchText = `passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
`
	profileText = `# Read by login shells. PATH is kept as it was given.
if [ "$PS1" ] && [ "$BASH" ] && [ -r /etc/bash.bashrc ]; then
  . /etc/bash.bashrc
fi
`
	bashrcText = `# Read by interactive shells.
[ -z "$PS1" ] && return
shopt -s checkwinsize
PS1='\u@\h:\w\$ '
alias ls='ls --color=auto'
alias grep='grep --color=auto'
`
	shellsText = "/bin/sh\n/bin/bash\n"
)

// generateEtc writes what must not be the host's: who there is, names,
// resolvers.
func (p plan) generateEtc() {
	for name, text := range map[string]string{
		"passwd": passwdText + passwdUser, "group": groupText + groupUser, "hosts": hostsText,
		"hostname": "sandbox\n", "resolv.conf": "", "nsswitch.conf": nsswitchText, "host.conf": "multi on\n",
		"profile": profileText, "bash.bashrc": bashrcText, "shells": shellsText,
	} {
		p.file("etc/"+name, text)
	}
	p.link("etc/mtab", "/proc/self/mounts")
}

// etcAllowed is all that is taken from the host's /etc: files that programs
// in /usr need, and that say nothing about this host or its people. Only what
// every user of the host may read is copied. Patterns are filepath.Match's.
var etcAllowed = []string{
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone",
	"os-release", "debian_version", "lsb-release", "mime.types", "services", "protocols", "rpc", "ethertypes",
	"terminfo", "inputrc", "magic", "magic.mime", "fonts", "locale.alias",
	"python3", "python3.*", "java-*-openjdk", "perl", "ruby", "php", "R", "texmf", "lynx-cur",
	"ssl/certs/ca-certificates.crt", "ssl/cert.pem", "ssl/openssl.cnf", "pki/tls/certs/ca-bundle.crt",
}

// copyEtc adds the allow-list. What is missing or odd is left out: each host
// has its own set.
func (p plan) copyEtc(root string) {
	c := etcCopier{plan: p, etc: filepath.Join(root, "etc")}
	for _, pattern := range etcAllowed {
		found, _ := filepath.Glob(filepath.Join(c.etc, pattern))
		slices.Sort(found)
		for _, path := range found {
			rel, err := filepath.Rel(c.etc, path)
			if err == nil {
				c.add(rel, 0)
			}
		}
	}
}

type etcCopier struct {
	plan  plan
	etc   string
	count int
}

func (c *etcCopier) add(rel string, depth int) {
	host, name := filepath.Join(c.etc, rel), "etc/"+rel
	info, err := os.Lstat(host)
	if _, ours := c.plan[name]; ours || err != nil || depth > etcDepthMax || c.count >= etcFilesMax {
		return
	}
	c.count++
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		c.addLink(host, name)
	case info.IsDir() && info.Mode().Perm()&0o005 == 0o005:
		entries, err := os.ReadDir(host)
		if err != nil {
			return
		}
		c.parents(name)
		c.plan.dir(name, 0o755)
		for _, e := range entries {
			c.add(filepath.Join(rel, e.Name()), depth+1)
		}
	case info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 && info.Size() <= etcFileBytesMax:
		c.addFile(host, name)
	}
}

// addLink keeps a link that leads to what is visible inside; a link to
// another file of the host's becomes a copy of it.
func (c *etcCopier) addLink(host, name string) {
	target, err := os.Readlink(host)
	if err != nil {
		return
	}
	full := target
	if !filepath.IsAbs(full) {
		full = filepath.Join("/", filepath.Dir(name), target)
	}
	switch clean := filepath.Clean(full); {
	case strings.HasPrefix(clean, "/usr/"), strings.HasPrefix(clean, "/bin/"), strings.HasPrefix(clean, "/lib"),
		strings.HasPrefix(clean, "/etc/alternatives/"):
		c.parents(name)
		c.plan.link(name, target)
	case strings.HasPrefix(clean, "/etc/"):
		if info, err := os.Stat(host); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 &&
			info.Size() <= etcFileBytesMax && allowed(strings.TrimPrefix(clean, "/etc/")) {
			c.addFile(host, name)
		}
	}
}

// allowed reports whether a path beneath /etc is on the list by itself, or
// within a directory that is.
func allowed(rel string) bool {
	for _, pattern := range etcAllowed {
		for at := rel; at != "."; at = filepath.Dir(at) {
			if ok, _ := filepath.Match(pattern, at); ok {
				return true
			}
		}
	}
	return false
}

func (c *etcCopier) addFile(host, name string) {
	data, err := os.ReadFile(host)
	if err != nil || len(data) > etcFileBytesMax {
		return
	}
	c.parents(name)
	c.plan.file(name, string(data))
}

func (c *etcCopier) parents(name string) {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if _, ok := c.plan[dir]; !ok {
			c.plan.dir(dir, 0o755)
		}
	}
}
