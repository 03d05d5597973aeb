package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// create measures create -> first command done, with the peers in turn, so
// that all see the same weather.
func (b *bench) create(s *server) error {
	var skete, boot, destroy, runsc, bwrap, bare []time.Duration
	peers := b.boxes()
	for range b.count(40) {
		var sb *client.Sandbox
		d, err := timed(func() (err error) {
			if sb, err = s.sandbox(b.ctx); err != nil {
				return err
			}
			return sb.Command("/bin/true").Run(b.ctx)
		})
		if err != nil {
			return err
		}
		skete = append(skete, d)
		info, err := sb.Get(b.ctx)
		if err != nil {
			return err
		}
		boot = append(boot, time.Duration(info.BootMS*float64(time.Millisecond)))
		if d, err = timed(func() error { return sb.Destroy(b.ctx) }); err != nil {
			return err
		}
		destroy = append(destroy, d)
		for _, p := range []struct {
			argv []string
			into *[]time.Duration
		}{{peers.runsc, &runsc}, {peers.bwrap, &bwrap}, {peers.bare, &bare}} {
			if p.argv == nil {
				continue
			}
			d, err := timed(exec.CommandContext(b.ctx, p.argv[0], p.argv[1:]...).Run)
			if err != nil {
				return fmt.Errorf("%v: %w", p.argv, err)
			}
			*p.into = append(*p.into, d)
		}
	}
	program := "skete itself"
	if found, _ := filepath.Glob(filepath.Join(s.home, "runsc", "skete-runsc-*")); len(found) > 0 {
		program = "skete-runsc"
	}
	own := b.Millis("gvisor: create to first command done", skete, "p50 <= 120 ms", "machines are run by "+program)
	b.Millis("gvisor: create to answering guest", boot, "", "the server's own measure, part of the line above")
	b.Millis("gvisor: destroy", destroy, "", "")
	for _, p := range []struct {
		name string
		ds   []time.Duration
	}{{"peer: runsc do true (same gVisor)", runsc}, {"peer: bubblewrap true", bwrap}, {"peer: bare process true", bare}} {
		if len(p.ds) == 0 {
			b.Skipped(p.name, "ms", "not on this machine")
			continue
		}
		b.Value("ratio: skete create+exec / "+p.name, own/b.Millis(p.name, p.ds, "", ""), "x", "", "")
	}
	return nil
}

type peers struct{ runsc, bwrap, bare []string }

// peers are the nearest things on this machine that run `true` in a box.
func (b *bench) boxes() peers {
	p := peers{bare: []string{"/bin/true"}}
	if path, err := exec.LookPath("bwrap"); err == nil {
		p.bwrap = []string{path, "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "/bin/true"}
	}
	// The fastest of the same gVisor: to measure ourselves against skete as
	// runsc, which is slower to start, would flatter us.
	program := b.skete
	if _, err := os.Stat(b.runsc); err == nil {
		program = b.runsc
	}
	do := []string{program, "__runsc", "--platform=systrap", "--network=none", "--ignore-cgroups", "do", "/bin/true"}
	if exec.CommandContext(b.ctx, do[0], do[1:]...).Run() == nil {
		p.runsc = do
	}
	return p
}

// exec measures the round trip of /bin/true and what of it is the kernel's.
func (b *bench) exec(s *server) error {
	sb, err := s.sandbox(b.ctx)
	if err != nil {
		return err
	}
	probe, err := b.program("forkexec")
	if err != nil {
		return err
	}
	defer os.Remove(probe)
	if err := upload(b.ctx, sb, probe, "/workspace/forkexec"); err != nil {
		return err
	}
	var whole, kernel []time.Duration
	for range 5 { // in turns, so that drift hits both alike
		for range b.count(100) {
			d, err := timed(func() error { return sb.Command("/bin/true").Run(b.ctx) })
			if err != nil {
				return err
			}
			whole = append(whole, d)
		}
		ds, err := forkexecIn(b.ctx, sb, b.count(100))
		if err != nil {
			return err
		}
		kernel = append(kernel, ds...)
	}
	a := b.Millis("gvisor: exec round trip of /bin/true", whole, "", "client, server and guest; unix socket")
	k := b.Millis("gvisor: fork+exec+wait of /bin/true inside", kernel, "", "the same kernel's own cost, measured by a program in the sandbox")
	b.Value("gvisor: exec, what we add (p50 - p50)", a-k, "ms", "<= 1 ms", "")
	b.Value("ratio: exec / fork+exec+wait inside", a/k, "x", "<= 1.4", "")
	out, err := exec.CommandContext(b.ctx, probe, strconv.Itoa(b.count(500)), "/bin/true").Output()
	if err != nil {
		return err
	}
	bare, err := durations(out)
	if err != nil {
		return err
	}
	b.Millis("peer: bare fork+exec+wait of /bin/true", bare, "", "on the host")
	return nil
}

func upload(ctx context.Context, sb *client.Sandbox, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = sb.Files().WriteFrom(ctx, to, f, client.WriteOptions{Mode: 0o755})
	return err
}

func forkexecIn(ctx context.Context, sb *client.Sandbox, n int) ([]time.Duration, error) {
	out, err := sb.Command("/workspace/forkexec", strconv.Itoa(n), "/bin/true").Output(ctx)
	if err != nil {
		return nil, err
	}
	return durations(out)
}

func durations(text []byte) (ds []time.Duration, err error) {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		n, err := strconv.ParseInt(s.Text(), 10, 64)
		if err != nil {
			return nil, err
		}
		ds = append(ds, time.Duration(n))
	}
	return ds, nil
}

// stat measures one call on a file.
func (b *bench) stat(s *server) error {
	sb, err := s.sandbox(b.ctx)
	if err != nil {
		return err
	}
	if _, err := sb.Files().Write(b.ctx, "/workspace/a.txt", []byte("hello"), client.WriteOptions{}); err != nil {
		return err
	}
	var ds []time.Duration
	for range b.count(2000) {
		d, err := timed(func() error { _, err := sb.Files().Stat(b.ctx, "/workspace/a.txt", false); return err })
		if err != nil {
			return err
		}
		ds = append(ds, d)
	}
	b.Millis("gvisor: stat of a file through the API", ds, "p50 <= 0.6 ms", "")
	return nil
}

// stdout measures a stream of output, beside the same command bare.
func (b *bench) stdout(s *server) error {
	sb, err := s.sandbox(b.ctx)
	if err != nil {
		return err
	}
	const mb = 512
	argv := []string{"dd", "if=/dev/zero", "bs=256k", "count=" + strconv.Itoa(mb*4), "status=none"}
	var rates, bare []float64
	for range 5 {
		cmd := sb.Command(argv...)
		got := &counter{}
		cmd.Stdout = got
		d, err := timed(func() error { return cmd.Run(b.ctx) })
		if err != nil {
			return err
		}
		if got.n != mb<<20 {
			return fmt.Errorf("%d bytes came, %d were sent", got.n, mb<<20)
		}
		rates = append(rates, mb/d.Seconds())
		host := exec.CommandContext(b.ctx, argv[0], argv[1:]...)
		host.Stdout = &counter{}
		if d, err = timed(host.Run); err != nil {
			return err
		}
		bare = append(bare, mb/d.Seconds())
	}
	own, peer := median(rates), median(bare)
	b.Value("gvisor: stdout through the API", own, "MB/s", ">= 200 MB/s", "512 MiB of dd bs=256k, median of 5")
	b.Value("peer: the same command bare, through a pipe", peer, "MB/s", "", "")
	b.Value("ratio: stdout skete / bare", own/peer, "x", "", "")
	return nil
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

func median(vs []float64) float64 {
	sorted := append([]float64(nil), vs...)
	for i := range sorted {
		for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
			sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
		}
	}
	return sorted[len(sorted)/2]
}

// disconnects cuts the connection a thousand times during a stream of 100 MB
// and counts what is missing or wrong.
func (b *bench) disconnects(s *server) error {
	sb, err := s.sandbox(b.ctx)
	if err != nil {
		return err
	}
	const size = 100_000_000
	cuts := b.count(1000)
	proxy, err := newCutter(filepath.Join(s.home, "cut.sock"), s.socket(), size/(cuts+cuts/10))
	if err != nil {
		return err
	}
	defer proxy.close()
	c, err := client.New(client.Config{Socket: proxy.path, ReconnectTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	cmd := c.Sandbox(sb.ID).Shell(fmt.Sprintf("seq 1 20000000 | head -c %d", size))
	check := &sequence{}
	cmd.Stdout = check
	d, err := timed(func() error { return cmd.Run(b.ctx) })
	if err != nil {
		return err
	}
	wrong := int64(0)
	if check.wrong || check.n != size {
		wrong = max(size-check.n, 1)
	}
	b.Value("gvisor: bytes lost over forced disconnects", float64(wrong+cmd.Lost()), "bytes", "0",
		fmt.Sprintf("%d disconnects during 100 MB, %.1f s", proxy.cuts(), d.Seconds()))
	return nil
}

// sequence checks that what is written is "1\n2\n3\n…".
type sequence struct {
	n     int64
	next  int64
	want  []byte
	wrong bool
}

func (s *sequence) Write(p []byte) (int, error) {
	s.n += int64(len(p))
	for rest := p; len(rest) > 0; {
		if len(s.want) == 0 {
			s.next++
			s.want = append(strconv.AppendInt(s.want[:0], s.next, 10), '\n')
		}
		n := min(len(rest), len(s.want))
		if !bytes.Equal(rest[:n], s.want[:n]) {
			s.wrong = true
		}
		rest, s.want = rest[n:], s.want[n:]
	}
	return len(p), nil
}

// burst creates a hundred at once and measures what they and the server weigh.
func (b *bench) burst(s *server) error {
	n := b.count(100)
	before, err := available()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var ds []time.Duration
	var failed []error
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			d, err := timed(func() error {
				sb, err := s.c.CreateSandbox(b.ctx, api.CreateSandbox{Require: "user-kernel", MemoryMB: 256, DiskMB: 256, CPUs: 0.5})
				if err != nil {
					return err
				}
				return s.c.Sandbox(sb.ID).Command("/bin/true").Run(b.ctx)
			})
			mu.Lock()
			defer mu.Unlock()
			ds = append(ds, d)
			if err != nil {
				failed = append(failed, err)
			}
		})
	}
	wg.Wait()
	wall := time.Since(began)
	b.Value("gvisor: burst of creates that succeeded", float64(n-len(failed)), "sandboxes", strconv.Itoa(n), fmt.Sprintf("%d at once, each with a first command; %.1f s in all", n, wall.Seconds()))
	if len(failed) > 0 {
		return errors.Join(failed[0])
	}
	b.Millis("gvisor: burst, create to first command done", ds, "all succeed", "cold; a warm pool is not built yet")
	after, err := available()
	if err != nil {
		return err
	}
	b.Value("gvisor: memory of an idle sandbox", (before-after)/float64(n), "MB", "", "fall of MemAvailable, divided")
	rss, err := s.rss()
	if err != nil {
		return err
	}
	b.Value("server: resident memory with the sandboxes of the burst", rss, "MB", "<= 150 MB", fmt.Sprintf("%d sandboxes", n))
	return nil
}

// available reads MemAvailable in MB.
func available() (float64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kb float64
		if n, _ := fmt.Sscanf(s.Text(), "MemAvailable: %f kB", &kb); n == 1 {
			return kb / 1024, nil
		}
	}
	return 0, io.ErrUnexpectedEOF
}
