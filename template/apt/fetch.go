package apt

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// Bounds of a fetch.
const (
	statusBytesMax  = 64 << 20
	keyBytesMax     = 1 << 20
	packagesMax     = 256 // that may be asked for
	planMax         = 4000
	outputBytesMax  = 4 << 20
	archiveBytesMax = 4 << 30 // of packages kept for the next time
	listsFresh      = time.Hour
	fetchTimeout    = 30 * time.Minute
)

// Request asks for packages.
type Request struct {
	// Tree is a root file system that has dpkg; it is only read.
	Tree     string
	Packages []string // names, or NAME=VERSION
	// Own are the sources of the tree's distribution, in place of those that
	// the tree names; nil = as the tree says.
	Own func(id, suite string) Sources
}

// Deb is a package on the host.
type Deb struct {
	Path string
	Name string
	Auto bool // it was not asked for: others need it
}

// Fetcher keeps lists and packages between fetches. One fetches at a time.
type Fetcher struct {
	dir string
	mu  sync.Mutex // held during a fetch
}

// NewFetcher keeps what it fetches in dir, which is its alone.
func NewFetcher(dir string) *Fetcher { return &Fetcher{dir: dir} }

var packageForm = pattern.Lazy(`^[a-z0-9][a-z0-9+.-]{0,127}(=[A-Za-z0-9.+:~-]{1,128})?$`)

// CheckPackage refuses what is no name of a package, with or without a version.
func CheckPackage(name string) error {
	plain, _, _ := strings.Cut(name, "=")
	if !packageForm().MatchString(name) || strings.HasSuffix(plain, "-") {
		return errs.New(errs.Invalid, "%.80q is not the name of a package", name).WithHint("NAME, or NAME=VERSION")
	}
	return nil
}

// Fetch brings packages, and those that they need and the tree lacks, to the
// host. What is there already is not in the result. They stay until the next
// Fetch. say is told what happens, line by line.
//
// Invalid: there is no such package. Unsupported: the tree has no dpkg, or the
// host no apt-get. Unavailable: an archive does not answer.
func (f *Fetcher) Fetch(ctx context.Context, r Request, say func(string)) ([]Deb, error) {
	if len(r.Packages) == 0 || len(r.Packages) > packagesMax {
		return nil, errs.New(errs.Invalid, "%d packages; 1 to %d can be asked for", len(r.Packages), packagesMax)
	}
	for _, name := range r.Packages {
		if err := CheckPackage(name); err != nil {
			return nil, err
		}
	}
	program, err := exec.LookPath("apt-get")
	if err != nil {
		return nil, errs.Wrap(errs.Unsupported, err, "packages are fetched by this host's apt-get, and there is none").
			WithHint("run the server on Debian or Ubuntu, or start from an image that has the packages")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if err := os.MkdirAll(filepath.Join(f.dir, "archives", "partial"), 0o700); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(f.dir, "work-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	x := &fetch{f: f, r: r, work: work, program: program, say: say}
	if err := x.prepare(); err != nil {
		return nil, err
	}
	return x.run(ctx)
}

// fetch is one fetch.
type fetch struct {
	f       *Fetcher
	r       Request
	work    string
	program string
	lists   string
	first   string // URI of the first source, for people
	say     func(string)
}

// prepare writes all that apt-get will read.
func (x *fetch) prepare() error {
	root, err := os.OpenRoot(x.r.Tree)
	if err != nil {
		return err
	}
	defer root.Close()
	status, err := readUpTo(root, "var/lib/dpkg/status", statusBytesMax)
	if err != nil {
		return errs.Wrap(errs.Unsupported, err, "the template has no dpkg, so that packages cannot be added to it").
			WithHint("start from debian or another Debian or Ubuntu, or add what is needed in other ways: files, run")
	}
	if err := x.write("status", status); err != nil {
		return err
	}
	sources, err := x.sources(root)
	if err != nil {
		return err
	}
	x.first = sources[0].URI
	sum := sha256.Sum256([]byte(sources.Text()))
	x.lists = filepath.Join(x.f.dir, "lists-"+hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(filepath.Join(x.lists, "partial"), 0o700); err != nil {
		return err
	}
	if err := x.write("sources.list", []byte(sources.Text())); err != nil {
		return err
	}
	return x.write("apt.conf", []byte(x.config()))
}

func (x *fetch) in(name string) string { return filepath.Join(x.work, name) }

func (x *fetch) write(name string, data []byte) error { return os.WriteFile(x.in(name), data, 0o600) }

// sources are the distribution's own and what the tree adds, each with the
// keys that it is signed by.
func (x *fetch) sources(root *os.Root) (Sources, error) {
	trusted := x.in("trusted")
	if err := os.MkdirAll(trusted, 0o700); err != nil {
		return nil, err
	}
	id, suite := release(root)
	all := treeSources(root)
	var own Sources
	if x.r.Own != nil && suite != "" {
		own = x.r.Own(id, suite)
	}
	if len(own) > 0 {
		all = slices.Concat(own, all.Others(suite))
	}
	if len(all) == 0 {
		return nil, errs.New(errs.Unsupported, "the template does not say where its packages come from (%s %s)", id, suite).
			WithHint("a template needs /etc/os-release and /etc/apt/sources.list; or set `templates: {mirror: URL}`")
	}
	host, err := os.OpenRoot("/")
	if err != nil {
		return nil, err
	}
	defer host.Close()
	// The host's keys first: they are the operator's word. Those of the tree
	// sign what comes into this tree alone.
	for n, from := range []*os.Root{host, root} {
		for _, dir := range []string{"etc/apt/trusted.gpg.d", "usr/share/keyrings"} {
			x.copyKeys(from, dir, filepath.Join(trusted, fmt.Sprintf("%d-%s-", n, path.Base(dir))), dir == "usr/share/keyrings")
		}
	}
	for i := range all {
		all[i].SignedBy = x.key(root, host, all[i].SignedBy, i)
	}
	return all, nil
}

// copyKeys copies keyrings; of /usr/share/keyrings those of the distributions.
func (x *fetch) copyKeys(from *os.Root, dir, prefix string, archives bool) {
	for _, name := range readNames(from, dir) {
		ext := path.Ext(name)
		if ext != ".gpg" && ext != ".asc" && ext != ".pgp" || archives && (!strings.HasSuffix(strings.TrimSuffix(name, ext), "-archive-keyring") || strings.Contains(name, "removed")) {
			continue
		}
		if ext == ".pgp" {
			ext = ".gpg"
		}
		if data, err := readUpTo(from, path.Join(dir, name), keyBytesMax); err == nil {
			_ = os.WriteFile(prefix+strings.TrimSuffix(name, path.Ext(name))+ext, data, 0o600)
		}
	}
}

// key copies the keyring that a source names; "" = none has it, so that all
// that are trusted count.
func (x *fetch) key(root, host *os.Root, named string, n int) string {
	if named == "" {
		return ""
	}
	for _, from := range []*os.Root{root, host} {
		data, err := readUpTo(from, strings.TrimPrefix(named, "/"), keyBytesMax)
		if err != nil {
			continue
		}
		ext := path.Ext(named)
		if ext == ".pgp" {
			ext = ".gpg"
		}
		at := x.in(fmt.Sprintf("key-%d%s", n, ext))
		if os.WriteFile(at, data, 0o600) == nil {
			return at
		}
	}
	return ""
}

// config makes apt-get read nothing of the host's and nothing of the tree's
// that is not written down here, and run nothing.
func (x *fetch) config() string {
	arch := runtime.GOARCH
	return fmt.Sprintf(`Dir "%[1]s";
Dir::Etc "%[1]s";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::netrc "/dev/null";
Dir::Etc::netrcparts "/dev/null";
Dir::Etc::trusted "/dev/null";
Dir::Etc::trustedparts "%[1]s/trusted/";
Dir::State "%[1]s/state";
Dir::State::status "%[1]s/status";
Dir::State::extended_states "%[1]s/extended";
Dir::State::lists "%[2]s/";
Dir::Cache "%[1]s/cache";
Dir::Cache::archives "%[3]s/";
Dir::Log "%[1]s/log";
APT::Architecture "%[4]s";
APT::Architectures { "%[4]s"; };
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Get::Assume-Yes "true";
APT::Keep-Downloaded-Packages "true";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
`, x.work, x.lists, filepath.Join(x.f.dir, "archives"), arch)
}

func (x *fetch) run(ctx context.Context) ([]Deb, error) {
	for _, dir := range []string{"state", "cache", "log"} {
		if err := os.MkdirAll(x.in(dir), 0o700); err != nil {
			return nil, err
		}
	}
	if !x.fresh() {
		x.say("reading the package lists of " + x.first)
		if _, err := x.apt(ctx, "update"); err != nil {
			return nil, err
		}
		if err := os.WriteFile(x.lists+".fresh", nil, 0o600); err != nil {
			return nil, err
		}
	}
	install := append([]string{"install"}, x.r.Packages...)
	out, err := x.apt(ctx, append([]string{"--simulate"}, install...)...)
	if err != nil {
		return nil, err
	}
	debs, err := x.plan(out)
	if err != nil || len(debs) == 0 {
		return nil, err
	}
	x.say(fmt.Sprintf("fetching %d packages", len(debs)))
	if _, err := x.apt(ctx, append([]string{"--download-only"}, install...)...); err != nil {
		return nil, err
	}
	for _, d := range debs {
		if _, err := os.Stat(d.Path); err != nil {
			return nil, errs.Wrap(errs.Internal, err, "apt-get did not bring %s", d.Name)
		}
	}
	x.f.prune(debs)
	return debs, nil
}

func (x *fetch) fresh() bool {
	info, err := os.Stat(x.lists + ".fresh")
	return err == nil && time.Since(info.ModTime()) < listsFresh
}

// apt runs apt-get and returns its stdout.
func (x *fetch) apt(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, x.program, append([]string{"--quiet=2"}, args...)...)
	cmd.Dir = x.work
	cmd.Env = append([]string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=" + x.work, "APT_CONFIG=" + x.in("apt.conf"),
		"DEBIAN_FRONTEND=noninteractive",
	}, ProxyEnv()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out, errOut bounded
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", x.explain(err, errOut.String()+out.String())
	}
	return out.String(), nil
}

// bounded keeps the first bytes of what is written.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := outputBytesMax - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

var instForm = pattern.Lazy(`^Inst (\S+) (?:\[\S+\] )?\((\S+) .*\[(\S+)\]\)`)

// plan reads what apt-get would install: "Inst NAME [OLD] (VERSION ARCHIVE [ARCH])".
func (x *fetch) plan(out string) ([]Deb, error) {
	asked := map[string]bool{}
	for _, name := range x.r.Packages {
		plain, _, _ := strings.Cut(name, "=")
		asked[plain] = true
	}
	var debs []Deb
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		m := instForm().FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}
		if len(debs) == planMax {
			return nil, errs.New(errs.Limit, "more than %d packages would be installed", planMax)
		}
		name, _, _ := strings.Cut(m[1], ":")
		file := quote(name) + "_" + quote(m[2]) + "_" + quote(m[3]) + ".deb"
		debs = append(debs, Deb{Path: filepath.Join(x.f.dir, "archives", file), Name: name, Auto: !asked[name]})
	}
	return debs, nil
}

// quote writes a part of a package's file name as apt does.
func quote(s string) string {
	return strings.NewReplacer("%", "%25", "_", "%5f", ":", "%3a").Replace(s)
}

// explain makes an error that says what to do of what apt-get said.
func (x *fetch) explain(err error, said string) error {
	var lines []string
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "E: ") || strings.HasPrefix(line, "W: ") || strings.Contains(line, "Depends:") {
			lines = append(lines, strings.ReplaceAll(line, x.f.dir, "…"))
		}
	}
	text := strings.Join(lines[:min(len(lines), 8)], "; ")
	cause := fmt.Errorf("apt-get: %w: %.2000s", err, said)
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case has("Unable to locate package"), has("has no installation candidate"), has("was not found"), has("unmet dependencies"), has("held broken packages"):
		return errs.Wrap(errs.Invalid, cause, "packages: %.600s", text)
	case has("No space left"), has("enough free space"):
		return errs.Wrap(errs.Limit, cause, "no space is left on the host for packages")
	case has("NO_PUBKEY"), has("is not signed"):
		return errs.Wrap(errs.Unsupported, cause, "packages: %.600s", text).WithHint("the keys of %s are neither in the template nor on this host", x.first)
	}
	return errs.Wrap(errs.Unavailable, cause, "packages cannot be fetched from %s: %.600s", x.first, text).
		WithHint("is there a network? `templates: {mirror: URL}` in the configuration names another mirror")
}

// prune keeps the cache within bounds; what was just fetched stays.
func (f *Fetcher) prune(keep []Deb) {
	dir := filepath.Join(f.dir, "archives")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	type file struct {
		path string
		size int64
		at   time.Time
	}
	var files []file
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		total += info.Size()
		at := filepath.Join(dir, e.Name())
		if !slices.ContainsFunc(keep, func(d Deb) bool { return d.Path == at }) {
			files = append(files, file{at, info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return a.at.Compare(b.at) })
	for _, x := range files {
		if total <= archiveBytesMax {
			return
		}
		if err := os.Remove(x.path); err == nil || errors.Is(err, os.ErrNotExist) {
			total -= x.size
		}
	}
}
