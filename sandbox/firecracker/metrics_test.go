package firecracker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

// one is a line with more in it than we use.
const one = `{"utc_timestamp_ms":1700000000000,"api_server":{"process_startup_time_us":9},"block":{"activate_fails":0,"read_bytes":100,"write_bytes":20,"read_count":3,"write_count":2,"rate_limiter_throttled_events":1},"block_root":{"read_bytes":100},"vsock":{"rx_bytes_count":7,"tx_bytes_count":8},"seccomp":{"num_faults":0}}` + "\n"

func TestRead_addsWholeLines(t *testing.T) {
	var c counts
	used, err := c.Read([]byte(one + one + one[:40]))
	want := counts{DiskReadBytes: 200, DiskWrittenBytes: 40, DiskReads: 6, DiskWrites: 4, DiskThrottled: 2, ChannelInBytes: 14, ChannelOutBytes: 16, Lines: 2}
	if d := cmp.Diff(want, c); d != "" || err != nil || used != 2*len(one) {
		t.Errorf("%s, %d of %d bytes, %v", d, used, 2*len(one), err)
	}
}

func TestRead_refuses(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":            "x\n",
		"a list":             "[]\n",
		"no time":            "{}\n",
		"a text for a count": `{"utc_timestamp_ms":1,"block":{"read_bytes":"1"}}` + "\n",
		"less than nothing":  `{"utc_timestamp_ms":1,"block":{"read_bytes":-1}}` + "\n",
		"too much":           `{"utc_timestamp_ms":1,"block":{"read_bytes":9007199254740993}}` + "\n",
		"no integer":         `{"utc_timestamp_ms":1,"block":{"read_bytes":1e30}}` + "\n",
		"a long line":        strings.Repeat("x", metricsLineBytesMax+1),
		"cut in the middle":  one[:60] + "\n",
	} {
		var c counts
		used, err := c.Read([]byte(one + text))
		if !errs.Is(err, errs.Invalid) || used != len(one) || c.Lines != 1 || c.DiskReadBytes != 100 {
			t.Errorf("%s: %d bytes, %+v, %v", name, used, c, err)
		}
	}
}

func TestRead_doesNotOverflow(t *testing.T) {
	var c counts
	text := fmt.Sprintf(`{"utc_timestamp_ms":1,"block":{"read_bytes":%d}}`+"\n", int64(valueMax))
	for range 2000 {
		if _, err := c.Read([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if c.DiskReadBytes != sumMax {
		t.Errorf("%d", c.DiskReadBytes)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(one))
	f.Add([]byte(one + one[:10]))
	f.Add([]byte("{}\n\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c counts
		used, err := c.Read(data)
		if used < 0 || used > len(data) || err != nil && !errs.Is(err, errs.Invalid) || c.DiskReadBytes < 0 || c.Lines < 0 {
			t.Errorf("%d of %d, %+v, %v", used, len(data), c, err)
		}
	})
}
