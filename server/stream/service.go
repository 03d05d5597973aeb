package stream

import (
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/guest/wire"
)

// serviceStates are the words for states of services.
var serviceStates = map[wire.ServiceState]string{
	wire.ServiceState_SERVICE_STATE_STOPPED: "stopped", wire.ServiceState_SERVICE_STATE_STARTING: "starting",
	wire.ServiceState_SERVICE_STATE_READY: "ready", wire.ServiceState_SERVICE_STATE_UNREADY: "unready",
	wire.ServiceState_SERVICE_STATE_BACKOFF: "backoff", wire.ServiceState_SERVICE_STATE_CRASH_LOOP: "crash-loop",
	wire.ServiceState_SERVICE_STATE_FAILED: "failed",
}

// ServiceView translates a service. A state of an unknown kind is "failed".
func ServiceView(i *wire.ServiceInfo) api.Service {
	v := api.Service{
		ServiceSpec: serviceSpec(i.GetDeclaration()), State: serviceStates[i.GetState()], Reason: validText([]byte(i.GetReason())), PID: int(i.GetPid()),
		ProcessKey: validText([]byte(i.GetProcessKey())), Restarts: i.GetRestarts(), Since: unixNS(i.GetSinceUnixNs()),
		LogStart: i.GetLogStart(), LogSize: i.GetLogSize(), Wanted: i.GetWanted(), KnownAs: validText([]byte(i.GetKnownAs())), Source: "call",
	}
	if v.State == "" {
		v.State = "failed"
	}
	switch i.GetDeclaration().GetSource() {
	case wire.ServiceSource_SERVICE_SOURCE_FILE:
		v.Source = "file"
	case wire.ServiceSource_SERVICE_SOURCE_SPEC:
		v.Source = "spec"
	}
	if e := i.GetLastExit(); e != nil {
		v.LastExit = &api.Exit{Code: int(e.GetCode()), Signal: int(e.GetSignal()), Reason: validText([]byte(e.GetReason()))}
		t := unixNS(i.GetLastExitUnixNs())
		v.LastExitAt = &t
	}
	return v
}

func serviceSpec(d *wire.ServiceDeclaration) api.ServiceSpec {
	s := api.ServiceSpec{
		Name: validText([]byte(d.GetName())), Command: validText(d.GetCommand()), Workdir: validText(d.GetWorkdir()), User: validText([]byte(d.GetUser())),
		LogBytesMax: d.GetLogBytesMax(), StopTimeoutMS: d.GetStopTimeoutMs(), ReadyTimeoutMS: d.GetReadiness().GetTimeoutMs(),
		ReadyHTTP: int(d.GetReadiness().GetHttp().GetPort()), ReadyPath: validText([]byte(d.GetReadiness().GetHttp().GetPath())),
		ReadyTCP: int(d.GetReadiness().GetTcp().GetPort()), ReadyLog: validText([]byte(d.GetReadiness().GetLog().GetPattern())), Restart: "always",
	}
	switch d.GetRestart() {
	case wire.RestartPolicy_RESTART_POLICY_ON_FAILURE:
		s.Restart = "on-failure"
	case wire.RestartPolicy_RESTART_POLICY_NEVER:
		s.Restart = "never"
	}
	if len(d.GetArgv()) > 0 {
		s.Argv = texts(d.GetArgv())
	}
	for k, v := range d.GetEnv() {
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[validText([]byte(k))] = validText(v)
	}
	for _, p := range d.GetPorts() {
		s.Ports = append(s.Ports, int(p))
	}
	for _, l := range d.GetRlimits() {
		if s.Limits == nil {
			s.Limits = map[string]uint64{}
		}
		s.Limits[validText([]byte(l.GetName()))] = l.GetSoft()
	}
	return s
}
