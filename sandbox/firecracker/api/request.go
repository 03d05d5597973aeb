package api

// The bodies of requests, as the API names them. Firecracker refuses fields it
// does not know, so what is newer than the oldest version we could meet is
// omitted when empty and checked before it is sent (see since).

// Logger is the body of PUT /logger.
type Logger struct {
	LogPath   string `json:"log_path,omitempty"`
	Level     string `json:"level,omitempty"`
	ShowLevel bool   `json:"show_level,omitempty"`
}

// Metrics is the body of PUT /metrics.
type Metrics struct {
	MetricsPath string `json:"metrics_path"`
}

// Bucket bounds a flow: size units every refill_time milliseconds, and
// one_time_burst on top, once.
type Bucket struct {
	Size         int64 `json:"size"`
	OneTimeBurst int64 `json:"one_time_burst,omitempty"`
	RefillTimeMS int64 `json:"refill_time"`
}

// RateLimiter bounds bytes and operations; nil = no bound.
type RateLimiter struct {
	Bandwidth *Bucket `json:"bandwidth,omitempty"`
	Ops       *Bucket `json:"ops,omitempty"`
}

// Serial is the body of PUT /serial. What exceeds the limiter is dropped.
type Serial struct {
	OutPath     string  `json:"serial_out_path,omitempty"`
	RateLimiter *Bucket `json:"rate_limiter,omitempty"`
}

// MachineConfig is the body of PUT /machine-config.
type MachineConfig struct {
	VCPUCount       int    `json:"vcpu_count"` // 1, or even; at most 32
	MemSizeMiB      int    `json:"mem_size_mib"`
	SMT             bool   `json:"smt"`
	TrackDirtyPages bool   `json:"track_dirty_pages"`
	HugePages       string `json:"huge_pages,omitempty"`
}

// BootSource is the body of PUT /boot-source. Args replace the default ones.
type BootSource struct {
	Kernel string `json:"kernel_image_path"`
	Initrd string `json:"initrd_path,omitempty"`
	Args   string `json:"boot_args,omitempty"`
}

// How a drive treats flushes of the guest.
const (
	Unsafe    = "Unsafe"    // ignores them
	Writeback = "Writeback" // syncs the file
)

// Drive is the body of PUT /drives/ID. The order of calls is the order of
// /dev/vda, vdb and so on.
type Drive struct {
	ID          string       `json:"drive_id"` // letters, digits and underscores
	Path        string       `json:"path_on_host"`
	ReadOnly    bool         `json:"is_read_only"`
	Root        bool         `json:"is_root_device"`
	Cache       string       `json:"cache_type,omitempty"`
	Engine      string       `json:"io_engine,omitempty"`
	RateLimiter *RateLimiter `json:"rate_limiter,omitempty"`
}

// NetworkInterface is the body of PUT /network-interfaces/ID.
type NetworkInterface struct {
	ID  string `json:"iface_id"`
	Tap string `json:"host_dev_name"` // must exist
	MAC string `json:"guest_mac,omitempty"`
	MTU int    `json:"mtu,omitempty"`
}

// Vsock is the body of PUT /vsock. Path must not exist; it is limited to 107
// bytes as Firecracker sees it.
type Vsock struct {
	GuestCID uint32 `json:"guest_cid"` // 3 or more; need not be unique
	Path     string `json:"uds_path"`
}

// Entropy is the body of PUT /entropy.
type Entropy struct {
	RateLimiter *RateLimiter `json:"rate_limiter,omitempty"`
}

// CreateSnapshot is the body of PUT /snapshot/create.
type CreateSnapshot struct {
	Type       string `json:"snapshot_type"` // always Full: the other kind is a preview
	StatePath  string `json:"snapshot_path"`
	MemoryPath string `json:"mem_file_path"`
}

// LoadSnapshot is the body of PUT /snapshot/load. It is for a fresh process,
// which ends if it fails. The memory file must not change while the machine runs.
type LoadSnapshot struct {
	StatePath        string            `json:"snapshot_path"`
	Memory           MemoryBackend     `json:"mem_backend"`
	Resume           bool              `json:"resume_vm"`
	NetworkOverrides []NetworkOverride `json:"network_overrides,omitempty"`
	VsockOverride    *VsockOverride    `json:"vsock_override,omitempty"`
	ClockRealtime    bool              `json:"clock_realtime,omitempty"`
}

// MemoryBackend says where a snapshot's memory is.
type MemoryBackend struct {
	Type string `json:"backend_type"` // File
	Path string `json:"backend_path"`
}

// NetworkOverride gives a restored interface another tap.
type NetworkOverride struct {
	ID  string `json:"iface_id"`
	Tap string `json:"host_dev_name"`
}

// VsockOverride gives a restored machine another socket.
type VsockOverride struct {
	Path string `json:"uds_path"`
}

// Info is the answer of GET /.
type Info struct {
	ID      string `json:"id"`
	State   string `json:"state"` // see below
	Version string `json:"vmm_version"`
	App     string `json:"app_name"`
}

// States of Info.
const (
	NotStarted = "Not started"
	Running    = "Running"
	Paused     = "Paused"
)

// field is something that not every version knows.
type field struct {
	name  string
	used  bool
	since Version
}

func (s Serial) fields() []field {
	return []field{
		{"PUT /serial", true, Version{1, 14, 0, ""}},
		{"rate_limiter of /serial", s.RateLimiter != nil, Version{1, 16, 0, ""}},
	}
}

func (n NetworkInterface) fields() []field {
	return []field{{"mtu", n.MTU != 0, Version{1, 16, 0, ""}}}
}

func (l LoadSnapshot) fields() []field {
	return []field{
		{"network_overrides", len(l.NetworkOverrides) > 0, Version{1, 12, 0, ""}},
		{"vsock_override", l.VsockOverride != nil, Version{1, 16, 0, ""}},
		{"clock_realtime", l.ClockRealtime, Version{1, 16, 0, ""}},
	}
}
