package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// held keeps ports from being given out twice, until this process ends.
var held struct {
	mu  sync.Mutex
	udp []net.PacketConn
}

// FreePort returns a port for a program that is to listen there, now or once more
// later. Nobody else is given it while this process lives, in whatever process they
// ask: who has a port of TCP holds the one of UDP with the same number. It is
// below those that the system gives to other servers and to outgoing connections:
// one of these may even meet itself on the port that it dials.
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
