package guest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/skete-dev/skete/guest/wire"
)

// An agent reaches what its tools need of guest.v1, and nothing that rules the machine.
func TestAgentDoor(t *testing.T) {
	door := agentDoor(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for path, open := range map[string]bool{
		wire.ProcessStartProcedure: true, wire.FileReadProcedure: true, wire.ServiceListProcedure: true, wire.ControlHelloProcedure: true,
		wire.ControlShutdownProcedure: false, wire.ControlAdoptProcedure: false, wire.ControlStepClockProcedure: false, wire.ControlQuiesceProcedure: false,
		wire.HistoryApplyProcedure: false, wire.PortListProcedure: false, "/": false, "/x/../" + wire.ControlName + "/Shutdown": false,
		"/" + wire.ProcessName + "x/Start": false, wire.ControlHelloProcedure + "/": false,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "http://guest/", nil)
		r.URL.Path = path
		door.ServeHTTP(w, r)
		if got := w.Code == http.StatusTeapot; got != open {
			t.Errorf("%s: open %v", path, got)
		}
	}
}
