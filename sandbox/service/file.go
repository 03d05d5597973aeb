package service

import (
	"math"
	"slices"
	"time"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/yamlfile"
)

// document is skete.yaml.
type document struct {
	Services map[string]entry `yaml:"services"`
}

type entry struct {
	Command     string            `yaml:"command"`
	Argv        []string          `yaml:"argv"`
	Env         map[string]string `yaml:"env"`
	Workdir     string            `yaml:"workdir"`
	User        string            `yaml:"user"`
	Ports       []int             `yaml:"ports"`
	Ready       ready             `yaml:"ready"`
	Restart     string            `yaml:"restart"`
	Limits      map[string]int64  `yaml:"limits"`
	LogBytesMax int64             `yaml:"log_bytes_max"`
	StopTimeout time.Duration     `yaml:"stop_timeout"`
}

type ready struct {
	HTTP    int           `yaml:"http"`
	Path    string        `yaml:"path"`
	TCP     int           `yaml:"tcp"`
	Log     string        `yaml:"log"`
	Timeout time.Duration `yaml:"timeout"`
}

// Parse reads a skete.yaml:
//
//	services:
//	  web:
//	    command: npm run dev
//	    ports: [5173]
//	    ready: {http: 5173, path: /, timeout: 60s}
//	    restart: always
//
// The services come by name. The error is Invalid and names every mistake
// with its place.
func Parse(data []byte) ([]Spec, error) {
	var d document
	at, err := yamlfile.Decode(File, data, &d)
	if err != nil {
		return nil, err
	}
	problems := yamlfile.NewProblems(File)
	var names []string
	for n := range d.Services {
		names = append(names, n)
	}
	slices.Sort(names)
	if len(names) > servicesMax {
		problems.Add(at.Of("services"), "more than %d services", servicesMax)
		return nil, problems.Err()
	}
	var list []Spec
	for _, n := range names {
		s, why := d.Services[n].spec(n)
		if why == "" {
			if _, err := Declaration(s, wire.ServiceSource_SERVICE_SOURCE_FILE); err != nil {
				why = err.Error()
			}
		}
		if why != "" {
			problems.Add(at.Of("services."+n), "%s", why)
			continue
		}
		list = append(list, s)
	}
	return list, problems.Err()
}

func (e entry) spec(name string) (s Spec, why string) {
	s = Spec{
		Name: name, Argv: e.Argv, Command: e.Command, Env: e.Env, Workdir: e.Workdir, User: e.User, Ports: e.Ports,
		ReadyHTTP: e.Ready.HTTP, ReadyPath: e.Ready.Path, ReadyTCP: e.Ready.TCP, ReadyLog: e.Ready.Log,
		ReadyTimeoutMS: e.Ready.Timeout.Milliseconds(), Restart: e.Restart, LogBytesMax: e.LogBytesMax, StopTimeoutMS: e.StopTimeout.Milliseconds(),
	}
	if (e.Command == "") == (len(e.Argv) == 0) {
		return s, "service " + name + ": give either command or argv"
	}
	for k, v := range e.Limits {
		if v < 0 || v > math.MaxInt64/2 {
			return s, "service " + name + ": limit " + k + " is not in range"
		}
		if s.Limits == nil {
			s.Limits = map[string]uint64{}
		}
		s.Limits[k] = uint64(v)
	}
	return s, ""
}
