package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// held keeps a port from being returned twice until this process ends.
var held struct {
	mu  sync.Mutex
	udp []net.PacketConn
}

// FreePort returns a port on which a program may listen now, and again later. While this process runs, no other call
// returns it, in any process: a process reserves a TCP port by holding the UDP port with the same number. The port is
// below those that the system assigns to servers and to outgoing connections, because an outgoing connection from the
// port that it connects to would connect to itself.
func FreePort() (port string, err error) {
	for range 100 {
		port = strconv.Itoa(10000 + rand.IntN(9000))
		var ours net.PacketConn
		if ours, err = net.ListenPacket("udp", "127.0.0.1:"+port); err != nil {
			continue
		}
		var ln net.Listener
		if ln, err = net.Listen("tcp", ":"+port); err != nil {
			_ = ours.Close()
			continue
		}
		held.mu.Lock()
		defer held.mu.Unlock()
		held.udp = append(held.udp, ours)
		return port, ln.Close()
	}
	return "", fmt.Errorf("find a free port: %w", err)
}
