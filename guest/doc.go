// Package guest is supervise: the half of the guest that talks to the host.
// The other half, init (guest/initd), keeps the processes while supervise is
// restarted.
//
//	err := guest.Supervise(ctx, guest.Config{Boot: boot, InitFD: initd.SocketFD, Build: version})
//
// It parks connections with the host (guest/channel). One that the host opens
// on the control port speaks guest.v1 (guest/wire): the services Control (this
// package), Process (guest/process), File (guest/file), Port (portservice.go),
// Service (guest/service). One on a TCP port is carried to the loopback server
// there. Every other port is refused. There is no listener: nothing inside the
// machine can reach the control port.
//
// Supervise may be killed at any moment. It panics through no handler; a lost
// init ends it, because the machine is gone then.
package guest
