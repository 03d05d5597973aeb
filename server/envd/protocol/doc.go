// Package protocol is the wire format of the clients of envd: two Connect
// services, for commands and for files, made from process.proto and
// filesystem.proto. Both were written from what clients send and expect.
//
// Make it again after a change: make generate.
package protocol

//go:generate protoc --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative,package_suffix= process.proto filesystem.proto
