// Command tool is what the suite runs inside sandboxes, so that its tests need
// no program of the template:
//
//	tool listen PORT         answer "hello" on 127.0.0.1:PORT, print "ready"
//	tool dial NETWORK ADDR   print "connected" or the error; status 0 or 1
//	tool ask ADDR N          connect to a unix socket or HOST:PORT, print the line that
//	                         comes, send N bytes and print how many come back
//	tool hog MB REST         after REST seconds use that much memory, print
//	                         "allocated", stay
//	tool spin SECONDS        keep all processors busy
//	tool fork N              start N idle children, print how many started
//	tool idle                stay
//	tool fill FILE MB        write that much; print "full" at ENOSPC, else "written"
//	tool count PORT FILE     count in memory, write the number to FILE, answer
//	                         on 127.0.0.1:PORT with "TOKEN NUMBER", then echo
//	tool trace PID           trace a process, as a debugger does; status 0 or 1
//	tool loopback            switch the loopback interface off; status 0 or 1
//	tool packets             open a socket for whole packets; status 0 or 1
//	tool module              load what is no kernel module; status 0 if the kernel
//	                         would have loaded one
//	tool search TEXT FILE... print the names of the files that have it; status 1:
//	                         none, or none can be read
//	tool interfaces          print the names of the network interfaces
package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("no verb"))
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "listen":
		listen(arg(args, 0))
	case "dial":
		dial(arg(args, 0), arg(args, 1))
	case "hog":
		hog(number(arg(args, 0)), time.Duration(number(arg(args, 1)))*time.Second)
	case "spin":
		spin(time.Duration(number(arg(args, 0))) * time.Second)
	case "fork":
		fork(number(arg(args, 0)))
	case "ask":
		ask(arg(args, 0), number(arg(args, 1)))
	case "idle":
		<-time.After(time.Hour)
	case "fill":
		fill(arg(args, 0), number(arg(args, 1)))
	case "room":
		room(arg(args, 0))
	case "count":
		count(arg(args, 0), arg(args, 1))
	case "trace":
		trace(number(arg(args, 0)))
	case "loopback":
		loopback()
	case "packets":
		packets()
	case "module":
		module()
	case "search":
		search(arg(args, 0), args[1:])
	case "interfaces":
		interfaces()
	default:
		fail(errors.New("unknown verb"))
	}
}

func arg(args []string, n int) string {
	if n >= len(args) {
		fail(errors.New("argument missing"))
	}
	return args[n]
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		fail(err)
	}
	return n
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "tool:", err)
	os.Exit(1)
}

// room prints how many bytes df says that a place's file system has.
func room(dir string) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		fail(err)
	}
	fmt.Println(st.Blocks * uint64(st.Bsize))
}

func listen(port string) {
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		fail(err)
	}
	fmt.Println("ready")
	for {
		c, err := ln.Accept()
		if err != nil {
			fail(err)
		}
		go func() {
			defer c.Close()
			_, _ = io.WriteString(c, "hello\n")
			_, _ = io.Copy(c, c)
		}()
	}
}

func dial(network, addr string) {
	c, err := net.DialTimeout(network, addr, 2*time.Second)
	if err != nil {
		fail(err)
	}
	defer c.Close()
	fmt.Println("connected")
}

// ask talks to a service that says a line and echoes.
func ask(addr string, n int) {
	network := "unix"
	if strings.Contains(addr, ":") {
		network = "tcp"
	}
	c, err := net.DialTimeout(network, addr, 10*time.Second)
	if err != nil {
		fail(err)
	}
	defer c.Close()
	data := make([]byte, n)
	_, _ = rand.Read(data)
	go func() {
		_, _ = c.Write(data)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	all, err := io.ReadAll(c)
	if err != nil {
		fail(err)
	}
	line, back, ok := bytes.Cut(all, []byte{'\n'})
	if !ok || !bytes.Equal(back, data) {
		fail(fmt.Errorf("%q and %d bytes came, of %d", line, len(back), n))
	}
	fmt.Printf("%s\n%d bytes came back\n", line, n)
}

// hog takes mb MiB after a rest.
func hog(mb int, rest time.Duration) {
	<-time.After(rest)
	var held [][]byte
	for range mb {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	fmt.Println("allocated")
	<-time.After(time.Hour)
	runtime.KeepAlive(held)
}

// spin keeps all processors busy for d.
func spin(d time.Duration) {
	n := max(4, runtime.NumCPU())
	runtime.GOMAXPROCS(n)
	began := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for x := uint64(88172645463325252); time.Since(began) < d; {
				for range 1 << 14 {
					x ^= x << 13
					x ^= x >> 7
					x ^= x << 17
				}
				runtime.KeepAlive(x)
			}
		})
	}
	all.Wait()
}

func fork(n int) {
	self, err := os.Executable()
	if err != nil {
		fail(err)
	}
	started := 0
	for range n {
		if err := exec.Command(self, "idle").Start(); err != nil {
			fmt.Println(started, err)
			return
		}
		started++
	}
	fmt.Println(started)
}

func fill(path string, mb int) {
	f, err := os.Create(path)
	if err != nil {
		fail(err)
	}
	chunk := make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	for n := range mb {
		if _, err := f.Write(chunk); err != nil {
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				fmt.Println("full", n)
				return
			}
			fail(err)
		}
	}
	fmt.Println("written", mb)
}

// count keeps a number and a random token nowhere but in memory.
func count(port, file string) {
	token := rand.Text()
	var n atomic.Int64
	f, err := os.Create(file)
	if err != nil {
		fail(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		fail(err)
	}
	go func() {
		for range time.Tick(5 * time.Millisecond) {
			_, _ = f.WriteAt(fmt.Appendf(nil, "%020d\n", n.Add(1)), 0)
		}
	}()
	for {
		c, err := ln.Accept()
		if err != nil {
			fail(err)
		}
		go func() {
			defer c.Close()
			fmt.Fprintln(c, token, n.Load())
			_, _ = io.Copy(c, c)
		}()
	}
}

func trace(pid int) {
	runtime.LockOSThread() // a tracer is a thread
	if err := syscall.PtraceAttach(pid); err != nil {
		fail(err)
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	_ = syscall.PtraceDetach(pid)
}

func loopback() {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		fail(err)
	}
	r, err := unix.NewIfreq("lo")
	if err != nil {
		fail(err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		fail(err)
	}
}

func packets() {
	if _, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, 0); err != nil {
		fail(err)
	}
}

// module: who may not load one is refused before the kernel looks at it.
func module() {
	junk := make([]byte, 64)
	err := unix.InitModule(junk, "")
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EACCES) {
		fail(err)
	}
	fmt.Println("it was looked at:", err)
}

// searchBytesMax is how much of a file is read.
const searchBytesMax = 1 << 30

func search(text string, files []string) {
	found := false
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if has(io.LimitReader(f, searchBytesMax), []byte(text)) {
			fmt.Println(name)
			found = true
		}
		_ = f.Close()
	}
	if !found {
		os.Exit(1)
	}
}

// has reads in pieces, each behind the end of the one before it.
func has(r io.Reader, text []byte) bool {
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := io.ReadFull(r, buf[kept:])
		if bytes.Contains(buf[:kept+n], text) {
			return true
		}
		if err != nil {
			return false
		}
		kept = copy(buf, buf[kept+n-len(text):])
	}
}

func interfaces() {
	ifs, err := net.Interfaces()
	if err != nil {
		fail(err)
	}
	for _, i := range ifs {
		fmt.Println(i.Name)
	}
}
