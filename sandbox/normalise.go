package sandbox

import (
	"fmt"
	"maps"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// Smallest machine that is worth booting.
const (
	cpusMin     = 0.05
	memoryMBMin = 32
	diskMBMin   = 1
	pidsMin     = 8
	diskMBpsMax = 100_000
	diskIOPSMax = 10_000_000
	timeMin     = time.Second // of TTL and idle timeout
	clockMax    = 100 * 365 * 24 * time.Hour
)

// Bounds of names and lists in a spec. Together they fit into a record.
const (
	nameBytesMax     = 64
	envCountMax      = 256
	envBytesMax      = 24 << 10
	metadataCountMax = 64
	metadataBytesMax = 8 << 10
	pathBytesMax     = 4096
	keyBytesMax      = 255
	tenantBytesMax   = 64
	problemsMax      = 10 // that one error names
)

// Languages that a spec may name.
var Languages = []string{"python", "node", "go", "ruby"}

// ProviderAuto asks for the strongest provider that works here.
const ProviderAuto = "auto"

// Limits are what a spec may ask for at most, and what a tenant may have at
// most. Zero = the built-in value (see DefaultLimits).
type Limits struct {
	CPUsMax        float64
	MemoryMBMax    int
	DiskMBMax      int
	PidsMax        int
	TTLMax         time.Duration // 0 = no bound
	IdleTimeoutMax time.Duration
	// Per tenant; 0 = no bound for the last three.
	Sandboxes int
	Snapshots int
	// TenantDiskMB bounds what all sandboxes of a tenant are promised together,
	// and what they, their layers, snapshots and histories really hold.
	TenantDiskMB   int
	TenantCPUs     float64
	TenantMemoryMB int
}

// Defaults fill what a spec leaves open. Zero = the built-in value.
type Defaults struct {
	Template    string // "" = what suits the provider (Spec.Settled)
	Network     string // a profile, where the provider gives machines a network; "" = none
	Provider    string
	CPUs        float64
	MemoryMB    int
	DiskMB      int
	PidsMax     int
	TTL         time.Duration // 0 = none
	IdleTimeout time.Duration // then it is paused, or stopped where it cannot be
	// PausedTimeout stops what idleness has paused, and so gives its memory
	// back; negative: idleness stops at once.
	PausedTimeout time.Duration
}

// Used is what a tenant has of its Limits.
type Used struct {
	Sandboxes int
	CPUs      float64 // of its machines, as MemoryMB
	MemoryMB  int
	// DiskMB was promised to its sandboxes; DiskHeldMB is what they, its
	// snapshots and histories really hold, histories of destroyed ones too.
	DiskMB     int
	DiskHeldMB int
}

// defaultLimits are in force where the configuration says nothing.
func defaultLimits() Limits {
	memory := 4096
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		memory = max(int(uint64(si.Totalram)*uint64(si.Unit)>>20)*3/4, 512)
	}
	return Limits{
		CPUsMax:        float64(max(runtime.NumCPU(), 2)),
		MemoryMBMax:    memory,
		DiskMBMax:      100 << 10,
		PidsMax:        16 << 10,
		IdleTimeoutMax: 7 * 24 * time.Hour,
		Sandboxes:      1000,
		Snapshots:      100,
	}
}

// DefaultDefaults fill what neither spec nor configuration says.
func DefaultDefaults() Defaults {
	return Defaults{
		Provider: ProviderAuto,
		CPUs:     1, MemoryMB: 512, DiskMB: 2048, PidsMax: 512,
		IdleTimeout: 30 * time.Minute, PausedTimeout: 8 * time.Hour,
	}
}

// Filled returns l with the built-in values where it says nothing.
func (l Limits) Filled() Limits {
	d := defaultLimits()
	fill(&l.CPUsMax, d.CPUsMax)
	fill(&l.MemoryMBMax, d.MemoryMBMax)
	fill(&l.DiskMBMax, d.DiskMBMax)
	fill(&l.PidsMax, d.PidsMax)
	fill(&l.IdleTimeoutMax, d.IdleTimeoutMax)
	fill(&l.Sandboxes, d.Sandboxes)
	fill(&l.Snapshots, d.Snapshots)
	return l
}

// Filled returns d with the built-in values where it says nothing; it also
// keeps a default from asking for more than the limits allow.
func (d Defaults) Filled(l Limits) Defaults {
	b := DefaultDefaults()
	fill(&d.Provider, b.Provider)
	fill(&d.CPUs, min(b.CPUs, l.CPUsMax))
	fill(&d.MemoryMB, min(b.MemoryMB, l.MemoryMBMax))
	fill(&d.DiskMB, min(b.DiskMB, l.DiskMBMax))
	fill(&d.PidsMax, min(b.PidsMax, l.PidsMax))
	fill(&d.IdleTimeout, min(b.IdleTimeout, l.IdleTimeoutMax))
	fill(&d.PausedTimeout, b.PausedTimeout)
	if d.TTL == 0 {
		d.TTL = l.TTLMax
	}
	return d
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Normalise fills what the spec leaves open and refuses what is absurd or over
// the limits; the error names every field that is wrong. Both limits and
// defaults may be zero. Template and network may stay open until the provider is known
// (Spec.Settled). The result shares nothing with s.
func Normalise(s Spec, l Limits, d Defaults) (Spec, error) {
	l = l.Filled()
	d = d.Filled(l)
	fill(&s.Template, d.Template)
	fill(&s.Provider, d.Provider)
	fill(&s.CPUs, d.CPUs)
	fill(&s.MemoryMB, d.MemoryMB)
	fill(&s.DiskMB, d.DiskMB)
	fill(&s.PidsMax, d.PidsMax)
	fill(&s.TTL, d.TTL)
	fill(&s.IdleTimeout, d.IdleTimeout)
	if s.Egress != nil {
		fill(&s.Network, egress.None) // rules alone
	}
	s.Env, s.Metadata = maps.Clone(s.Env), maps.Clone(s.Metadata)

	var p problems
	p.ownName("name", s.Name)
	if s.Template != "" {
		p.word("template", s.Template)
	}
	p.word("provider", s.Provider)
	p.oneOf("language", s.Language, append([]string{""}, Languages...))
	p.oneOf("require", string(s.Require), isolationNames())
	p.oneOf("network", s.Network, append([]string{""}, egress.Profiles...))
	if s.Egress != nil {
		s.Egress = &egress.Policy{Allow: slices.Clone(s.Egress.Allow), Deny: slices.Clone(s.Egress.Deny)}
	}
	if p.models(s.Models); s.Models != nil {
		s.Models = s.Models.clone()
	}
	for _, x := range egress.Problems(s.Policy()) {
		p.add("network "+x.Field, "%s", x.Text)
	}
	p.float("cpus", s.CPUs, cpusMin, l.CPUsMax)
	p.size("memory", s.MemoryMB, memoryMBMin, l.MemoryMBMax)
	p.size("disk", s.DiskMB, diskMBMin, l.DiskMBMax)
	p.number("pids", s.PidsMax, pidsMin, l.PidsMax)
	p.number("megabytes a second of the disk", s.DiskMBps, 0, diskMBpsMax)
	p.number("operations a second of the disk", s.DiskIOPS, 0, diskIOPSMax)
	p.times(s, l)
	if s.Workdir != "" {
		p.workdir(s.Workdir)
	}
	p.env(s.Env)
	p.metadata(s.Metadata)
	if s.Persist && s.Ephemeral {
		p.add("ephemeral", "what persists is not")
	}
	if err := p.err(); err != nil {
		return Spec{}, err
	}
	s.Ephemeral = false // that it does not persist says it
	if s.Workdir != "" {
		s.Workdir = path.Clean(s.Workdir)
	}
	return s, nil
}

func isolationNames() []string {
	names := []string{""}
	for _, i := range Isolations {
		names = append(names, string(i))
	}
	return names
}

// problems collects what is wrong with a request. Each begins with the name of a
// field in words, which are those of the flag too, and has the flag's unit: both
// those who call the API and those who type read it.
type problems []string

func (p *problems) add(field, format string, args ...any) {
	if len(*p) == problemsMax {
		return
	}
	*p = append(*p, field+": "+fmt.Sprintf(format, args...))
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return errs.New(errs.Invalid, "%s", strings.Join(p, "; "))
}

func (p *problems) number(field string, n, lowest, highest int) {
	if n < lowest || n > highest {
		p.add(field, "%d is not in %d to %d", n, lowest, highest)
	}
}

// most is number for what is counted or weighed, and may be none.
func (p *problems) most(field, unit string, n, highest int) {
	if n > highest {
		p.add(field, "%d %s, at most %d", n, unit, highest)
	}
}

// size is number for megabytes.
func (p *problems) size(field string, mb, lowest, highest int) {
	if mb < lowest || mb > highest {
		p.add(field, "%s is not in %s to %s", sizeText(mb), sizeText(lowest), sizeText(highest))
	}
}

// sizeText writes a size as people type it.
func sizeText(mb int) string {
	if mb != 0 && mb%1024 == 0 {
		return fmt.Sprintf("%d GB", mb/1024)
	}
	return fmt.Sprintf("%d MB", mb)
}

func (p *problems) float(field string, x, lowest, highest float64) {
	if math.IsNaN(x) || x < lowest || x > highest {
		p.add(field, "%g is not in %g to %g", x, lowest, highest)
	}
}

func (p *problems) times(s Spec, l Limits) {
	p.duration("ttl", s.TTL, l.TTLMax)
	p.duration("idle timeout", s.IdleTimeout, l.IdleTimeoutMax)
}

// duration accepts 0 (none) and a bound of 0 (no bound but that of the clock).
func (p *problems) duration(field string, d, highest time.Duration) {
	switch {
	case d == 0 || d >= timeMin && d <= highest:
	case highest == 0 && d >= timeMin && d <= clockMax:
	case highest == 0:
		p.add(field, "%s is not in %s to 100 years", TimeText(d), TimeText(timeMin))
	default:
		p.add(field, "%s is not in %s to %s", TimeText(d), TimeText(timeMin), TimeText(highest))
	}
}

// TimeText writes a time as people type it.
func TimeText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (p *problems) oneOf(field, value string, allowed []string) {
	if slices.Contains(allowed, value) {
		return
	}
	if known := slices.DeleteFunc(slices.Clone(allowed), func(s string) bool { return s == "" }); len(known) == 1 {
		p.add(field, "%.40q is not known, only %s here yet", value, known[0])
	} else {
		p.add(field, "%.40q is none of %s", value, strings.Join(known, ", "))
	}
}

var wordForm = pattern.Lazy(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// word checks a name that we or an operator gave to something.
func (p *problems) word(field, value string) {
	if !wordForm().MatchString(value) || strings.Contains(value, "..") {
		p.add(field, "%.80q is not a name of 1 to 64 characters a-z 0-9 . _ -", value)
	}
}

// name checks a name that people gave: anything that prints on one line.
func (p *problems) name(field, value string) {
	switch {
	case len(value) > nameBytesMax:
		p.add(field, "%d bytes, at most %d", len(value), nameBytesMax)
	case !printable(value):
		p.add(field, "%q has control characters or is not UTF-8", value)
	case value == "." || value == ".." || strings.Contains(value, "/"):
		p.add(field, "%q looks like a path", value)
	}
}

// ownName is the name of a sandbox: it stands where an ID may.
func (p *problems) ownName(field, value string) {
	p.name(field, value)
	if strings.HasPrefix(value, idPrefix) || value == "events" || value != strings.TrimSpace(value) {
		p.add(field, "%q cannot be told from an id or another path, or begins or ends with a space", value)
	}
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (p *problems) workdir(dir string) {
	if len(dir) > pathBytesMax || !path.IsAbs(dir) || !printable(dir) {
		p.add("workdir", "%.80q is not an absolute path that prints", dir)
	}
}

var envForm = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

func (p *problems) env(env map[string]string) {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		total += len(name) + len(value)
		if !envForm().MatchString(name) {
			p.add("env", "%.80q is not a name of a variable", name)
		} else if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			p.add("env", "the value of %s has a NUL or is not UTF-8", name)
		}
	}
	p.most("env", "variables", len(env), envCountMax)
	p.most("env", "bytes", total, envBytesMax)
}

func (p *problems) metadata(metadata map[string]string) {
	total := 0
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		value := metadata[key]
		total += len(key) + len(value)
		if key == "" || len(key) > nameBytesMax || !printable(key) {
			p.add("metadata", "key %.80q is not 1 to %d bytes that print", key, nameBytesMax)
		} else if strings.HasPrefix(key, OwnPrefix) {
			p.add("metadata", "key %q: those that begin with %q are the server's own", key, OwnPrefix)
		} else if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			p.add("metadata", "the value of %q has a NUL or is not UTF-8", key)
		}
	}
	p.most("metadata", "entries", len(metadata), metadataCountMax)
	p.most("metadata", "bytes", total, metadataBytesMax)
}

// Check refuses what is absurd or over the limits.
func (u UpdateRequest) Check(l Limits) error {
	var p problems
	if u.TTL != nil {
		p.duration("ttl", *u.TTL, l.TTLMax)
	}
	if u.IdleTimeout != nil {
		p.duration("idle timeout", *u.IdleTimeout, l.IdleTimeoutMax)
	}
	p.metadata(u.Metadata)
	if u.Name != nil {
		p.ownName("name", *u.Name)
	}
	if u.Network != nil {
		for _, x := range egress.Problems(*u.Network) {
			p.add("network "+x.Field, "%s", x.Text)
		}
	}
	if u.Models != nil && len(u.Models.Models) > 0 {
		p.models(u.Models)
	}
	return p.err()
}

// CheckIDOrName refuses what can be neither of a sandbox.
func CheckIDOrName(s string) error {
	if strings.HasPrefix(s, idPrefix) {
		_, err := ParseID(s)
		return err
	}
	var p problems
	p.name("name", s)
	return p.err()
}

// CheckTenant refuses what is no name of a tenant.
func CheckTenant(tenant string) error {
	if tenant == "" || len(tenant) > tenantBytesMax || !printable(tenant) || strings.Contains(tenant, "/") {
		return errs.New(errs.Invalid, "tenant %.80q is not a name", tenant)
	}
	return nil
}

// CheckKey refuses what is no idempotency key.
func CheckKey(key string) error {
	if len(key) > keyBytesMax || !printable(key) {
		return errs.New(errs.Invalid, "the idempotency key is not 1 to %d bytes that print", keyBytesMax)
	}
	return nil
}
