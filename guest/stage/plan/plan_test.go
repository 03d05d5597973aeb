package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

var boot = wire.Boot{Sandbox: "sbx_1", Hostname: "sbx-1", Channel: "vsock:1024", User: "user", UID: 1000, GID: 1000, Home: "/home/user", Workdir: "/workspace", Mounts: true}

func TestParams_areReadAsTheyWereWritten(t *testing.T) {
	for _, p := range []Params{
		{Root: "vda", Boot: boot},
		{Root: "vda", Layer: "vdb", Work: "vdc", Boot: boot},
	} {
		line, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseParams("quiet console=ttyS0 " + line + " -- x\n")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestParams_refusesWhatItDoesNotUnderstand(t *testing.T) {
	good, err := Params{Root: "vda", Boot: boot}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{
		"nothing":          "",
		"no boot":          "skete.root=vda",
		"no root":          strings.Replace(good, "skete.root=vda ", "", 1),
		"twice":            good + " skete.root=vdb",
		"a path":           strings.Replace(good, "vda", "../sda", 1),
		"an empty disk":    strings.Replace(good, "vda", "", 1),
		"an unknown word":  good + " skete.colour=green",
		"broken base64":    "skete.root=vda skete.boot=%%%",
		"broken json":      "skete.root=vda skete.boot=e30x",
		"an unending line": strings.Repeat("a", 100_000),
	} {
		if _, err := ParseParams(line); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if _, err := (Params{Root: "vda init=/bin/sh", Boot: boot}).Encode(); !errs.Is(err, errs.Invalid) {
		t.Errorf("a name with more in it: %v", err)
	}
}

func FuzzParseParams(f *testing.F) {
	good, err := Params{Root: "vda", Layer: "vdb", Boot: boot}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("skete.root=vda skete.boot=e30")
	f.Fuzz(func(t *testing.T, line string) {
		p, err := ParseParams(line)
		if err != nil {
			return
		}
		again, err := p.Encode()
		if err != nil {
			t.Fatalf("%q was read, but cannot be written: %v", line, err)
		}
		q, err := ParseParams(again)
		if diff := cmp.Diff(p, q); err != nil || diff != "" {
			t.Fatalf("%v %s", err, diff)
		}
	})
}

func TestModules_areChosenByUse(t *testing.T) {
	list := []Module{
		{"virtio_ring.ko", []Use{Always, Virtio}},
		{"virtio_console.ko", []Use{Virtio}},
		{"vsock.ko", []Use{Vsock}},
		{"erofs.ko", []Use{Erofs}},
		{"nat.ko", []Use{Net}},
	}
	got, err := ParseModules(EncodeModules(list))
	if diff := cmp.Diff(list, got); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	for channel, want := range map[string][]string{
		"virtio:skete.0": {"virtio_ring.ko", "virtio_console.ko"},
		"vsock:1024":     {"virtio_ring.ko", "vsock.ko"},
	} {
		p := Params{Root: "vda", Boot: wire.Boot{Channel: channel}}
		if diff := cmp.Diff(want, Choose(list, p.Wants())); diff != "" {
			t.Errorf("%s: %s", channel, diff)
		}
	}
	p := Params{Root: "vda", Boot: wire.Boot{Channel: "vsock:1024", Network: &wire.Network{}}}
	if diff := cmp.Diff([]string{"virtio_ring.ko", "vsock.ko", "nat.ko"}, Choose(list, p.Wants())); diff != "" {
		t.Errorf("with a network: %s", diff)
	}
}

func TestModules_refusesJunk(t *testing.T) {
	for name, text := range map[string]string{
		"a path":     "../../init always\n",
		"hidden":     ".x always\n",
		"no use":     "virtio.ko\n",
		"empty line": "\n",
		"too many":   strings.Repeat("a.ko always\n", 300),
		"too long":   strings.Repeat("a", 100) + " always\n",
		"too much":   strings.Repeat("a.ko always\n", 20_000),
	} {
		if _, err := ParseModules(text); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}
