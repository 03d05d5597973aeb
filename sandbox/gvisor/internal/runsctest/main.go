// Command runsctest is the smallest program that can be re-executed as gVisor:
// tests build it, because a test binary is dynamic and does not call Main.
//
//	runsctest create DIR < boot.json
//
// plays a server that creates one machine, says so, and waits to be killed.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor"
)

func main() {
	gvisor.Main()
	if len(os.Args) != 3 || os.Args[1] != "create" {
		fmt.Fprintln(os.Stderr, "runsctest: not called as runsc")
		os.Exit(2)
	}
	if err := create(os.Args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("up")
	select {}
}

func create(dir string) error {
	var b sandbox.Boot
	if err := json.NewDecoder(os.Stdin).Decode(&b); err != nil {
		return err
	}
	p, err := gvisor.New(gvisor.Config{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println("go")
	_, err = p.Create(context.Background(), b)
	return err
}
