package main

import (
	"fmt"
	"net"
	"strings"

	"rsc.io/qr"
)

// ownAddress returns the address of the interface through which this machine reaches others.
func ownAddress() (string, error) {
	// This sends nothing: the kernel only selects the route.
	conn, err := net.Dial("udp", "198.51.100.1:9")
	if err != nil {
		return "", fmt.Errorf("--public-host auto: this machine has no route to others: %w", err)
	}
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err == nil {
		err = conn.Close()
	}
	return host, err
}

// quiet is the width of the white border that QR readers need.
const quiet = 4

// qrCode draws a text as a QR code, two rows in a line of half blocks, always white on black.
func qrCode(text string) (string, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", fmt.Errorf("draw QR code: %w", err)
	}
	var out strings.Builder
	for y := -quiet; y < code.Size+quiet; y += 2 {
		out.WriteString("  \x1b[40;97m")
		for x := -quiet; x < code.Size+quiet; x++ {
			switch top, bottom := code.Black(x, y), code.Black(x, y+1) || y+1 >= code.Size+quiet; {
			case top && bottom:
				out.WriteRune(' ')
			case top:
				out.WriteRune('▄')
			case bottom:
				out.WriteRune('▀')
			default:
				out.WriteRune('█')
			}
		}
		out.WriteString("\x1b[0m\n")
	}
	return out.String(), nil
}
