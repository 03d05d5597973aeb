module github.com/skete-dev/skete/test/bench/peers/goproxy

go 1.26.3

require github.com/elazarl/goproxy v1.9.3

require (
	golang.org/x/net v0.50.0 // indirect
	golang.org/x/text v0.34.0 // indirect
)
