package remote

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
)

// askedName is a file that is there since the service may have been asked for a machine.
const askedName = "asked"

// Ports of guests: one of these, by the sandbox's id. Nothing else is likely to be there.
const (
	portFirst = 41000
	portCount = 8000
)

// boot has a machine made, puts the guest into it, and waits until that answers.
func (p *Provider) boot(ctx context.Context, b sandbox.Boot) (*machine, error) {
	r := record{Token: rand.Text() + rand.Text(), Port: portOf(b.ID)}
	made, err := p.make(ctx, b.ID)
	if r.Place = made; plain(made.ID, idBytesMax) { // it is ended by its id, if all else fails
		err = errors.Join(err, p.write(b.ID, r))
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	user, err := p.ask(ctx, r.Place)
	if err != nil {
		return nil, fmt.Errorf("ask the machine who its user is: %w", err)
	}
	if r.Program, err = p.install(ctx, b, r, user); err != nil {
		return nil, err
	}
	if err := p.write(b.ID, r); err != nil {
		return nil, err
	}
	m := p.follow(b.ID, r, false)
	if err := m.lifetime.AwaitGuest(ctx, m.guest); err != nil {
		return nil, err // clear closes it
	}
	return m, nil
}

// make asks the service for a machine. It is not broken off: what the service makes
// after we have hung up would stay.
func (p *Provider) make(ctx context.Context, id sandbox.ID) (Place, error) {
	if err := ctx.Err(); err != nil {
		return Place{}, err
	}
	if err := writeFile(filepath.Join(p.dir(id), askedName), nil); err != nil {
		return Place{}, err
	}
	sure, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTimeout)
	defer cancel()
	return p.c.Service.Create(sure, p.labels(id), p.c.Keep)
}

func portOf(id sandbox.ID) int {
	sum := sha256.Sum256([]byte(id))
	return portFirst + (int(sum[0])<<8|int(sum[1]))%portCount
}

// user is who commands of a machine are.
type user struct {
	name      string
	uid, gid  uint32
	home      string
	path      string // $PATH
	workspace string
}

// question asks for a user, line by line. What a line may hold is not ours to say, so
// each begins with a mark. The workspace is where agents look for it, if that can be.
const question = `w=/workspace
[ -d $w ] && [ -w $w ] || sudo -n install -d -o "$(id -u)" -g "$(id -g)" $w >/dev/null 2>&1 || w="$HOME/workspace"
printf 'skete:%s\n' "$(id -un)" "$(id -u)" "$(id -g)" "$HOME" "$PATH" "$(uname -m)" "$w"`

// machineNames are processors as uname has them.
var machineNames = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

func (p *Provider) ask(ctx context.Context, at Place) (user, error) {
	out, err := p.c.Service.Run(ctx, at, question)
	if err != nil {
		return user{}, err
	}
	return parseUser(out)
}

// parseUser reads the answer to the question.
func parseUser(out string) (user, error) {
	var words []string
	for line := range strings.Lines(out) {
		word, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "skete:")
		if !ok || len(word) > 4096 {
			return user{}, errs.New(errs.Unavailable, "the machine answers with %.80q", line)
		}
		words = append(words, word)
	}
	const all = 7
	if len(words) != all {
		return user{}, errs.New(errs.Unavailable, "the machine answers with %d words, not %d", len(words), all)
	}
	u := user{name: words[0], home: words[3], path: words[4], workspace: words[6]}
	uid, uerr := strconv.ParseUint(words[1], 10, 32)
	gid, gerr := strconv.ParseUint(words[2], 10, 32)
	u.uid, u.gid = uint32(uid), uint32(gid)
	if uerr != nil || gerr != nil || !plain(u.name, 64) || !proper(u.home) || !proper(u.workspace) || u.path == "" {
		return user{}, errs.New(errs.Unavailable, "the machine's user cannot be: %.200q", words)
	}
	if want := machineNames[runtime.GOARCH]; words[5] != want {
		return user{}, errs.New(errs.Unsupported, "the service's machines are %.20q, and this server's guest is for %s", words[5], want)
	}
	return u, nil
}

// proper says whether a path can be a directory of the machine's user.
func proper(p string) bool { return path.IsAbs(p) && path.Clean(p) == p && p != "/" }

// paths of what we put into a machine.
type paths struct{ base, guest, boot, state, keep, workspace string }

func (u user) paths() paths {
	base := path.Join(u.home, ".skete")
	return paths{
		base: base, guest: path.Join(base, "guest"), boot: path.Join(base, "boot.json"), state: path.Join(base, "state"),
		keep: path.Join(base, "disk"), workspace: u.workspace,
	}
}

// install puts the guest into a machine and starts it.
func (p *Provider) install(ctx context.Context, b sandbox.Boot, r record, u user) (program string, err error) {
	guest, err := os.ReadFile(b.Guest)
	if err != nil {
		return "", err
	}
	boot, err := json.Marshal(bootFile(b, r, u))
	if err != nil {
		return "", err
	}
	at := u.paths()
	make := fmt.Sprintf("umask 077 && mkdir -p %s %s && mkdir -p -m 755 %s", quote(at.state), quote(at.keep), quote(at.workspace))
	if _, err := p.c.Service.Run(ctx, r.Place, make); err != nil {
		return "", fmt.Errorf("make directories in the machine: %w", err)
	}
	for name, data := range map[string][]byte{at.guest: guest, at.boot: boot} {
		if err := p.put(ctx, r.Place, u.home, strings.TrimPrefix(name, u.home+"/"), data); err != nil {
			return "", fmt.Errorf("put %s into the machine: %w", path.Base(name), err)
		}
	}
	sum := sha256.Sum256(guest)
	start := fmt.Sprintf("umask 077; cd %s && chmod 700 guest && chmod 600 boot.json && echo %s | sha256sum -c - >&2 && cd %s && umask 022 && exec %s init --boot %s",
		quote(at.base), quote(hex.EncodeToString(sum[:])+"  guest"), quote(at.workspace), quote(at.guest), quote(at.boot))
	if program, err = p.c.Service.Start(ctx, r.Place, start); err != nil {
		return "", fmt.Errorf("start the guest: %w", err)
	}
	return program, nil
}

// uploadTimeout is for a slow line.
const uploadTimeout = 2 * time.Minute

func (p *Provider) put(ctx context.Context, at Place, home, name string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	return p.c.Service.Put(ctx, at, home, name, data)
}

// bootFile puts the machine's own user and paths in place of ours.
func bootFile(b sandbox.Boot, r record, u user) wire.Boot {
	f, at := b.BootFile(), u.paths()
	f.Channel, f.Token = "web:"+strconv.Itoa(r.Port), r.Token
	f.User, f.UID, f.GID, f.Home = u.name, u.uid, u.gid, u.home
	f.DefaultUser, f.StateDir = "", at.state
	f.Keep = &wire.Keep{Workspace: at.workspace, Dir: at.keep}
	if rest, ok := strings.CutPrefix(f.Workdir, sandbox.WorkspaceDir); ok {
		f.Workdir = path.Join(at.workspace, rest)
	}
	f.Env["PATH"] = u.path
	if asked := b.Spec.Env["PATH"]; asked != "" {
		f.Env["PATH"] = asked
	}
	f.MemoryBytes = 0 // the service's limit is not known
	return f
}
