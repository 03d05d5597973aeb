package supervisor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// What a machine could not send is in the log of the run that works there, while it works
// there, once a step for each target; and a guest that floods does not fill the log.
func TestRefused(t *testing.T) {
	const box, other = "sbx_aaaaaaaaaaaaaaaaaaaa", "sbx_bbbbbbbbbbbbbbbbbbbb"
	begun, goOn := make(chan struct{}), make(chan struct{})
	h := newHouse(t, fake{"execute", func(context.Context, tool.Request) (tool.Result, error) {
		begun <- struct{}{}
		<-goOn
		return tool.Text("ok"), nil
	}})
	h.machines = &disk{}
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if req.Step <= 1 {
			return respond(call(fmt.Sprintf("c%d", req.Step), "execute", `{"command":"curl example.com"}`))
		}
		return respond(llm.Text("done"))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Sandbox: box, Input: text("go")})
	must(t, err)
	<-begun
	refuse := func(tenant, machine, host string) {
		k.Refused(tenant, thread.NetworkRefused{Machine: machine, Host: host, Port: 443, Method: "GET", Path: "/a", Why: "no rule allows it"})
	}
	hosts := func(run runs.Run) (list []thread.NetworkRefused) {
		for _, e := range h.check(run.Thread) {
			if b, is := e.Body.(thread.NetworkRefused); is {
				list = append(list, b)
			}
		}
		return list
	}
	refuse(tenant, other, "of-another-machine.example.com")
	refuse("another", box, "of-another-tenant.example.com")
	refuse(tenant, box, "example.com")
	refuse(tenant, box, "example.com")
	refuse(tenant, box, "last.example.com")
	patience.Until(t, time.Minute, "the log tells of both", func() bool { return len(hosts(run)) == 2 })
	if got, want := hosts(run)[0], (thread.NetworkRefused{Machine: box, Host: "example.com", Port: 443, Method: "GET", Path: "/a", Why: "no rule allows it"}); got != want {
		t.Errorf("the log has %+v, not %+v", got, want)
	}
	for i := range 1000 {
		refuse(tenant, box, fmt.Sprintf("h%d.example.com", i))
	}
	patience.Until(t, time.Minute, "the log tells of more", func() bool { return len(hosts(run)) > 2 })
	goOn <- struct{}{}
	if got := await(t, k, run.ID, over); got.State != thread.RunSucceeded {
		t.Fatalf("the run is %+v", got)
	}
	was := len(hosts(run))
	if was > 16 {
		t.Errorf("the log of one step tells of %d", was)
	}
	// One after the other: when the second is told the first was not.
	run2, err := k.Start(t.Context(), tenant, runs.Start{Sandbox: other, Input: text("go")})
	must(t, err)
	<-begun
	refuse(tenant, box, "after-the-end.example.com")
	refuse(tenant, other, "another.example.com")
	patience.Until(t, time.Minute, "the log of the other run tells of one", func() bool { return len(hosts(run2)) == 1 })
	if got := len(hosts(run)); got != was {
		t.Errorf("after the end %d more are told", got-was)
	}
	close(goOn)
	await(t, k, run2.ID, over)
}
