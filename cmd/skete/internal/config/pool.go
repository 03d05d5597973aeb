package config

import (
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Pool is a kind of machine that is kept warm.
type Pool struct {
	Template string  `yaml:"template"`
	Language string  `yaml:"language"`
	Provider string  `yaml:"provider"`
	CPUs     float64 `yaml:"cpus"`
	MemoryMB int     `yaml:"memory_mb"`
	DiskMB   int     `yaml:"disk_mb"`
	Pids     int     `yaml:"pids"`
	// Size is kept always; Max at most, when there is demand.
	Size int `yaml:"size"`
	Max  int `yaml:"max"`
}

const (
	poolSizeMax   = 1000 // of one kind
	poolsMax      = 100
	poolTextBytes = 1 << 10
)

// parsePool reads what --pool says: words key=value with commas between, the
// keys being those of the file; a number alone is the size.
func parsePool(s string) (Pool, error) {
	var p Pool
	if len(s) > poolTextBytes {
		return p, errs.New(errs.Invalid, "--pool: too long")
	}
	settings := map[string]func(string) error{}
	for _, f := range flattenOf(&p) {
		settings[f.key] = f.set
	}
	for word := range strings.SplitSeq(s, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(word), "=")
		if !found {
			key, value = "size", key
		}
		set := settings[key]
		if set == nil {
			return p, errs.New(errs.Invalid, "--pool: there is no key %.40q", key).
				WithHint("the keys are: template language provider cpus memory_mb disk_mb pids size max")
		}
		if err := set(value); err != nil {
			return p, errs.New(errs.Invalid, "--pool: %s: %v", key, err)
		}
	}
	return p, p.check("--pool")
}

func (p Pool) check(where string) error {
	switch {
	case p.Size < 0 || p.Max < 0 || p.Size > poolSizeMax || p.Max > poolSizeMax:
		return errs.New(errs.Invalid, "%s: size and max are 0 to %d", where, poolSizeMax)
	case p.Size == 0 && p.Max == 0:
		return errs.New(errs.Invalid, "%s: say a size", where)
	case !(p.CPUs >= 0) || p.MemoryMB < 0 || p.DiskMB < 0 || p.Pids < 0:
		return errs.New(errs.Invalid, "%s: a number is negative", where)
	}
	return nil
}
