package skill

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// ArchiveBytesMax bounds an archive as it comes.
const ArchiveBytesMax = TreeBytesMax + 4<<20

// entriesMax bounds what an archive lists, files and all else.
const entriesMax = 4 * FilesMax

// gitTime is how long a repository may take to come.
const gitTime = 2 * time.Minute

// Folder loads a folder of the host that holds SKILL.md. Links are followed within it
// alone.
func Folder(dir string) (Tree, error) {
	b, name, err := walk(dir)
	if err != nil {
		return Tree{}, err
	}
	if _, ok := b.files[File]; !ok {
		return Tree{}, noSkill(b)
	}
	return b.tree(".", name), nil
}

// Files loads a folder of the host, whatever it holds, within the bounds of a skill.
func Files(dir string) (Tree, error) {
	b, name, err := walk(dir)
	if err != nil {
		return Tree{}, err
	}
	return b.tree(".", name), nil
}

// walk reads all files of a folder of the host, and says what it is called.
func walk(dir string) (b *builder, folder string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", unreadable(dir, err)
	}
	defer root.Close()
	whole, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	b = newBuilder()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return unreadable(name, err)
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		return b.addFile(root, name)
	})
	return b, filepath.Base(whole), err
}

// addFile reads a file of the host.
func (b *builder) addFile(root *os.Root, name string) error {
	info, err := root.Stat(name) // a link that leaves the root is an error
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "%s: a link that leads nowhere, or out of the folder", quoted(name)).WithHint("copy the file into the folder")
	}
	if !info.Mode().IsRegular() {
		return errs.New(errs.Invalid, "%s: it is no file", quoted(name)).WithHint("a skill holds folders and files, no links to folders, sockets or devices")
	}
	f, err := root.Open(name)
	if err != nil {
		return unreadable(name, err)
	}
	defer f.Close()
	return b.addFrom(name, info.Mode()&0o111 != 0, f)
}

// addFrom reads a file within the bounds, whatever its size was said to be.
func (b *builder) addFrom(name string, executable bool, r io.Reader) error {
	content, err := io.ReadAll(io.LimitReader(r, b.room()+1))
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "%s: it cannot be read", quoted(name))
	}
	if int64(len(content)) > b.room() {
		return b.tooLarge(name)
	}
	return b.add(name, executable, content)
}

func unreadable(name string, err error) error {
	class := errs.Invalid
	if errors.Is(err, fs.ErrNotExist) {
		class = errs.NotFound
	}
	return errs.Wrap(class, err, "%s: it cannot be read", quoted(name))
}

// Archive loads a zip, a tar or a tar.gz. within is the folder in it that holds SKILL.md;
// "" = there is one such folder.
func Archive(data []byte, within string) (Tree, error) {
	if len(data) > ArchiveBytesMax {
		return Tree{}, errs.New(errs.Limit, "the archive is larger than %d MiB", ArchiveBytesMax>>20)
	}
	b := newBuilder()
	var err error
	switch {
	case bytes.HasPrefix(data, []byte("PK\x03\x04")) || bytes.HasPrefix(data, []byte("PK\x05\x06")):
		err = b.zip(data)
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			err = b.tar(z)
		}
	default:
		err = b.tar(bytes.NewReader(data))
	}
	if err != nil {
		return Tree{}, archiveError(err)
	}
	return b.pick(within)
}

func archiveError(err error) error {
	if _, ours := errors.AsType[*errs.Error](err); ours {
		return err
	}
	return errs.Wrap(errs.Invalid, err, "this is no zip, tar or tar.gz, or a damaged one")
}

func (b *builder) zip(data []byte) error {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return err
	}
	if len(z.File) > entriesMax {
		return errs.New(errs.Limit, "the archive has more than %d entries", entriesMax)
	}
	for _, f := range z.File {
		mode := f.Mode()
		if mode.IsDir() || strings.HasSuffix(f.Name, "/") {
			continue
		}
		if !mode.IsRegular() {
			return noFile(f.Name)
		}
		if ignored(f.Name) {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		err = b.addFrom(f.Name, mode&0o111 != 0, r)
		_ = r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) tar(r io.Reader) error {
	// What is skipped is unpacked too: a bomb may be all headers.
	t := tar.NewReader(&bounded{r: r, left: 2 * TreeBytesMax})
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n > entriesMax:
			return errs.New(errs.Limit, "the archive has more than %d entries", entriesMax)
		}
		switch h.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg:
		default:
			return noFile(h.Name)
		}
		if ignored(h.Name) {
			continue
		}
		if err := b.addFrom(h.Name, h.Mode&0o111 != 0, t); err != nil {
			return err
		}
	}
}

// bounded refuses what comes after so many bytes.
type bounded struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errs.New(errs.Limit, "the archive unpacks to more than %d MiB", 2*TreeBytesMax>>20)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func noFile(name string) error {
	return errs.New(errs.Invalid, "%s: it is no file", quoted(name)).WithHint("an archive of a skill holds folders and files, no links or devices")
}

// ignored are files that programs of other systems leave in archives.
func ignored(name string) bool {
	return strings.HasPrefix(name, "__MACOSX/") || path.Base(name) == ".DS_Store" || strings.HasPrefix(name, ".git/")
}

// pick chooses the skill of an archive.
func (b *builder) pick(within string) (Tree, error) {
	trees := b.trees("")
	if within != "" {
		clean, err := cleanPath(strings.TrimSuffix(within, "/"))
		if err != nil {
			return Tree{}, err
		}
		if _, ok := b.files[clean+"/"+File]; !ok {
			return Tree{}, errs.New(errs.NotFound, "%s: there is no %s in it", quoted(within), File)
		}
		return b.tree(clean, ""), nil
	}
	switch len(trees) {
	case 0:
		return Tree{}, noSkill(b)
	case 1:
		return trees[0], nil
	}
	names := make([]string, len(trees))
	for i, t := range trees {
		names[i] = t.Folder
	}
	if len(names) > 20 {
		names = append(names[:20], "…")
	}
	return Tree{}, errs.New(errs.Invalid, "there are %d skills in it", len(trees)).WithHint("name the folder of one of them: %s", strings.Join(names, ", "))
}

// noSkill says that there is no SKILL.md, and what comes near.
func noSkill(b *builder) error {
	err := errs.New(errs.Invalid, "%s: there is none", File)
	for name := range b.files {
		if strings.EqualFold(path.Base(name), File) {
			return err.WithHint("rename %s: the standard wants capital letters", quoted(name))
		}
	}
	return err.WithHint("a skill is a folder that holds %s", File)
}

// Git loads a skill from a repository, as it is at its default branch. Its files are never
// written to the disk as such: git hands them over as an archive, which is read with its
// bounds. Unsupported: there is no git here.
func Git(ctx context.Context, url, within string) (Tree, error) {
	if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "file:///") {
		return Tree{}, errs.New(errs.Invalid, "%.100q: a repository is named by https:// or file:///", url)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return Tree{}, errs.Wrap(errs.Unsupported, err, "there is no git on this machine").WithHint("install git, or give a folder, a zip or a tar")
	}
	dir, err := os.MkdirTemp("", "skete-skill-")
	if err != nil {
		return Tree{}, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	if _, err := runGit(ctx, git, dir, 1<<20, "clone", "--quiet", "--bare", "--depth=1", "--no-tags", "--", url, "repository"); err != nil {
		return Tree{}, err
	}
	archive := []string{"archive", "--format=tar", "HEAD"}
	if within != "" {
		archive = append(archive, "--", within)
	}
	data, err := runGit(ctx, git, filepath.Join(dir, "repository"), ArchiveBytesMax, archive...)
	if err != nil {
		return Tree{}, err
	}
	t, err := Archive(data, within)
	if t.Folder == "" {
		t.Folder = strings.TrimSuffix(path.Base(strings.TrimRight(url, "/")), ".git")
	}
	return t, err
}

// runGit runs git without anything that a repository, or another's configuration, could
// make it run.
func runGit(ctx context.Context, git, dir string, outputMax int64, args ...string) ([]byte, error) {
	safe := []string{
		"-c", "protocol.allow=never", "-c", "protocol.https.allow=always", "-c", "protocol.file.allow=always",
		"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "fetch.recurseSubmodules=false", "-c", "transfer.fsckObjects=true",
	}
	cmd := exec.CommandContext(ctx, git, slices.Concat(safe, args)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_LFS_SKIP_SMUDGE=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	data, readErr := io.ReadAll(io.LimitReader(out, outputMax+1))
	if int64(len(data)) > outputMax {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, errs.New(errs.Limit, "the repository is larger than %d MiB", outputMax>>20).WithHint("a skill is small; make a repository, or an archive, of it alone")
	}
	if err := errors.Join(readErr, cmd.Wait()); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return nil, errs.Wrap(errs.Unavailable, err, "the repository cannot be had: %.200s", strings.Map(printable, line))
	}
	return data, nil
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}
