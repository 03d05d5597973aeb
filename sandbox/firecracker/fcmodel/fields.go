package fcmodel

import (
	"bytes"
	"encoding/json"

	"github.com/skete-dev/skete/sandbox/firecracker/api"
)

// when says in which states a call is allowed.
type when int

const (
	anyTime when = iota
	beforeStart
	bootOnly // before the start, and no snapshot may be loaded afterwards
	afterStart
)

// call is one request of the API: its body's fields as Firecracker's own
// description lists them, written down apart from our client's.
type call struct {
	when   when
	id     string // the field that must equal the last part of the path
	fields []rule
	do     func(*Model, fields) error
}

// rule describes a field.
type rule struct {
	name     string
	kind     byte // s(tring) b(ool) n(umber) o(bject) a(rray)
	required bool
	since    api.Version
}

func need(name string, kind byte) rule { return rule{name: name, kind: kind, required: true} }
func may(name string, kind byte) rule  { return rule{name: name, kind: kind} }
func from(minor int, r rule) rule {
	r.since = api.Version{Major: 1, Minor: minor}
	return r
}

func nothing(*Model, fields) error { return nil }

var calls = map[string]call{
	"PUT logger":  {beforeStart, "", []rule{may("log_path", 's'), may("level", 's'), may("show_level", 'b'), may("show_log_origin", 'b'), may("module", 's')}, nothing},
	"PUT metrics": {beforeStart, "", []rule{need("metrics_path", 's')}, (*Model).setMetrics},
	"PUT serial":  {beforeStart, "", []rule{from(14, may("serial_out_path", 's')), from(16, may("rate_limiter", 'o'))}, nothing},
	"PUT machine-config": {bootOnly, "", []rule{
		need("vcpu_count", 'n'), need("mem_size_mib", 'n'), may("smt", 'b'), may("cpu_template", 's'), may("track_dirty_pages", 'b'), may("huge_pages", 's'),
	}, (*Model).setMachine},
	"PUT boot-source": {bootOnly, "", []rule{need("kernel_image_path", 's'), may("initrd_path", 's'), may("boot_args", 's')}, (*Model).setBootSource},
	"PUT drives": {bootOnly, "drive_id", []rule{
		need("drive_id", 's'), need("is_root_device", 'b'), may("partuuid", 's'), may("cache_type", 's'), may("is_read_only", 'b'),
		may("path_on_host", 's'), may("rate_limiter", 'o'), may("io_engine", 's'), may("socket", 's'),
	}, (*Model).setDrive},
	"PUT network-interfaces": {bootOnly, "iface_id", []rule{
		need("iface_id", 's'), need("host_dev_name", 's'), may("guest_mac", 's'), may("rx_rate_limiter", 'o'), may("tx_rate_limiter", 'o'), from(16, may("mtu", 'n')),
	}, nothing},
	"PUT vsock":   {bootOnly, "", []rule{need("guest_cid", 'n'), need("uds_path", 's'), may("vsock_id", 's')}, (*Model).setVsock},
	"PUT entropy": {bootOnly, "", []rule{may("rate_limiter", 'o')}, nothing},
	"PUT actions": {anyTime, "", []rule{need("action_type", 's')}, (*Model).act},
	"PATCH vm":    {afterStart, "", []rule{need("state", 's')}, (*Model).setState},
	"PUT snapshot/create": {afterStart, "", []rule{
		may("snapshot_type", 's'), need("snapshot_path", 's'), need("mem_file_path", 's'),
	}, (*Model).createSnapshot},
	"PUT snapshot/load": {anyTime, "", []rule{
		need("snapshot_path", 's'), may("mem_file_path", 's'), may("mem_backend", 'o'), may("enable_diff_snapshots", 'b'), may("track_dirty_pages", 'b'),
		may("resume_vm", 'b'), from(12, may("network_overrides", 'a')), from(16, may("vsock_override", 'o')), from(16, may("clock_realtime", 'b')),
	}, (*Model).loadSnapshot},
}

var (
	limiterRules = []rule{may("bandwidth", 'o'), may("ops", 'o')}
	bucketRules  = []rule{need("size", 'n'), may("one_time_burst", 'n'), need("refill_time", 'n')}
)

// checkLimiter refuses a limiter, and buckets in it, of another form. One that
// holds nothing, or refills in no time, bounds nothing: it must be a mistake.
func checkLimiter(limiter map[string]any, v api.Version) error {
	if limiter == nil {
		return nil
	}
	f, err := check(limiter, limiterRules, v)
	if err != nil {
		return err
	}
	for _, name := range []string{"bandwidth", "ops"} {
		bucket := f.object(name)
		if bucket == nil {
			continue
		}
		b, err := check(bucket, bucketRules, v)
		if err != nil {
			return err
		}
		if b.number("size") <= 0 || b.number("refill_time") <= 0 {
			return refuse("the model takes a bucket without a size or a time for a mistake")
		}
	}
	return nil
}

// fields of a request that was decoded.
type fields map[string]any

func (f fields) text(name string) string           { s, _ := f[name].(string); return s }
func (f fields) flag(name string) bool             { b, _ := f[name].(bool); return b }
func (f fields) number(name string) int64          { n, _ := f[name].(float64); return int64(n) }
func (f fields) object(name string) map[string]any { o, _ := f[name].(map[string]any); return o }

const prefix = "An error occurred when deserializing the json body of a request: "

// decode refuses what Firecracker refuses: fields that this version does not
// know, missing ones, and those of another kind.
func decode(body []byte, rules []rule, v api.Version) (fields, error) {
	var f fields
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&f); err != nil || f == nil {
		return nil, refuse(prefix+"%v", err)
	}
	return check(f, rules, v)
}

// check is decode for an object that was read.
func check(f fields, rules []rule, v api.Version) (fields, error) {
	known := map[string]rule{}
	for _, r := range rules {
		if v.AtLeast(r.since) {
			known[r.name] = r
		}
		if _, there := f[r.name]; r.required && !there {
			return nil, refuse(prefix+"missing field `%s`", r.name)
		}
	}
	for name, value := range f {
		r, ok := known[name]
		if !ok {
			return nil, refuse(prefix+"unknown field `%s`", name)
		}
		if value != nil && kindOf(value) != r.kind {
			return nil, refuse(prefix+"invalid type for `%s`", name)
		}
	}
	return f, nil
}

func kindOf(value any) byte {
	switch value.(type) {
	case string:
		return 's'
	case bool:
		return 'b'
	case float64:
		return 'n'
	case []any:
		return 'a'
	default:
		return 'o'
	}
}
