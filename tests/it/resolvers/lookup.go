// The same by Go: its own resolver, or the C library's (GODEBUG=netdns).
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	for _, name := range os.Args[1:] {
		begun := time.Now()
		found, err := net.LookupHost(name)
		took := time.Since(begun).Milliseconds()
		code := "0"
		var failed *net.DNSError
		if errors.As(err, &failed) {
			code = fmt.Sprintf("notfound=%v,timeout=%v", failed.IsNotFound, failed.IsTimeout)
		} else if err != nil {
			code = "other"
		}
		fmt.Printf("%s %s %d", name, code, took)
		for _, one := range found {
			fmt.Printf(" %s", one)
		}
		fmt.Println()
	}
}
