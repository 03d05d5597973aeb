package debian

import (
	"slices"

	"github.com/skete-dev/skete/template"
)

// basePackages are in every ready template, beside what the distribution
// calls required.
var basePackages = []string{"bash", "ca-certificates", "curl", "git", "procps", "sudo"}

// Ready is a template that can be made.
type Ready struct {
	Name     string
	Variant  string   // of mmdebstrap: how many packages come by themselves; "" = minbase
	Packages []string // beside those
	// Bytes estimates its size on disk, measured with Debian 12.
	Bytes     int64
	Languages []string
}

const mib = 1 << 20

// all lists the ready templates, debian first.
func all() []Ready {
	list := []Ready{
		{Name: template.DebianName, Packages: []string{"nodejs", "python3"}, Bytes: 285 * mib, Languages: []string{"python", "node"}},
		{Name: "python", Packages: []string{"python3", "python3-pip", "python3-venv"}, Bytes: 260 * mib, Languages: []string{"python"}},
		{Name: "node", Packages: []string{"nodejs", "npm"}, Bytes: 700 * mib, Languages: []string{"python", "node"}},
		{Name: "go", Packages: []string{"golang-go"}, Bytes: 600 * mib, Languages: []string{"go"}},
		{Name: "ruby", Packages: []string{"ruby-full"}, Bytes: 330 * mib, Languages: []string{"ruby"}},
	}
	for i := range list {
		list[i].Packages = slices.Concat(basePackages, list[i].Packages)
		slices.Sort(list[i].Packages)
	}
	return list
}
