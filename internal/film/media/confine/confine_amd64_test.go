package confine_test

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// old makes a system call whose first argument is a path.
func old(nr uintptr, name string, b, c uintptr) error {
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	return call(nr, uintptr(unsafe.Pointer(p)), b, c)
}

// System calls that only this processor still has.
func init() {
	for name, attempt := range map[string]func(v victim) error{
		"change a mode by chmod":         func(v victim) error { return old(unix.SYS_CHMOD, v.file, 0o666, 0) },
		"change an owner by chown":       func(v victim) error { return old(unix.SYS_CHOWN, v.file, uintptr(os.Getuid()), uintptr(os.Getgid())) },
		"change an owner by lchown":      func(v victim) error { return old(unix.SYS_LCHOWN, v.file, uintptr(os.Getuid()), uintptr(os.Getgid())) },
		"change times by utime":          func(v victim) error { return old(unix.SYS_UTIME, v.file, 0, 0) },
		"change times by utimes":         func(v victim) error { return old(unix.SYS_UTIMES, v.file, 0, 0) },
		"change times by futimesat":      func(v victim) error { return path(unix.SYS_FUTIMESAT, at, v.file, 0, 0) },
		"empty a file by open in mode 3": func(v victim) error { return old(unix.SYS_OPEN, v.file, unix.O_ACCMODE|unix.O_TRUNC, 0) },
		"empty an input by open":         func(v victim) error { return old(unix.SYS_OPEN, v.input, unix.O_TRUNC, 0) },
		"watch files by inotify_init":    func(victim) error { return call(unix.SYS_INOTIFY_INIT, 0, 0, 0) },
		"fork":                           func(victim) error { return call(unix.SYS_FORK, 0, 0, 0) },
		"reach the ports of the machine": func(victim) error { return call(unix.SYS_IOPL, 3, 0, 0) },
		"call by the numbers of x32":     func(victim) error { return call(0x40000000|unix.SYS_GETPID, 0, 0, 0) },
		"change its descriptors' table":  func(victim) error { return call(unix.SYS_MODIFY_LDT, 0, 0, 0) },
	} {
		attempts[name] = attempt
	}
}
