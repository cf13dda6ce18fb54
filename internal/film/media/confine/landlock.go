package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// libraryPaths are the places where the dynamic loader looks for libraries.
var libraryPaths = []string{
	"/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64",
	"/usr/local/lib", "/usr/local/lib64",
}

// Rights to a file, or to everything below a folder.
const (
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
	readAll  = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	execute  = unix.LANDLOCK_ACCESS_FS_EXECUTE
	// No file may be both written and executed.
	writeAll = readAll | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG
	toFiles = readFile | execute | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// landlockABI is the kernel's version of Landlock, 0 if it has none.
func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// handled returns everything that a Landlock of this version can refuse.
func handled(abi int) unix.LandlockRulesetAttr {
	var a unix.LandlockRulesetAttr
	a.Handled_access_fs = unix.LANDLOCK_ACCESS_FS_REFER - 1
	if abi >= 2 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		a.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 5 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		a.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return a
}

// applyLandlock gives the calling thread one writable folder, read access to its inputs, its own binary and the
// libraries, and the null device. Restricting this thread is enough, because it becomes the program. A library that
// restricts all threads would look for them in /proc under a process id of another namespace.
func applyLandlock(o order) error {
	abi := landlockABI()
	if older := o.Layers.LandlockABI; older > 0 {
		abi = min(abi, older)
	}
	attr := handled(abi)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("create ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	type rule struct {
		path   string
		access uint64
		must   bool
	}
	rules := []rule{
		{o.Binary, readFile | execute, true},
		{"/etc/ld.so.cache", readFile, false}, {"/dev/urandom", readFile, false}, {"/dev/zero", readFile, false},
		{"/dev/null", readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE, false},
	}
	for _, path := range libraryPaths {
		rules = append(rules, rule{path, readAll, false})
	}
	// The kernel executes the loader together with the program.
	loaders, err := filepath.Glob("/lib*/ld-*.so*")
	if err != nil {
		return err
	}
	for _, path := range loaders {
		rules = append(rules, rule{path, readFile | execute, false})
	}
	if o.Dir != "" {
		rules = append(rules, rule{o.Dir, writeAll, true})
	}
	for _, path := range o.Reads {
		rules = append(rules, rule{path, readAll, false}) // the program itself reports a missing file
	}
	for _, r := range rules {
		err := permit(int(fd), r.path, r.access&attr.Handled_access_fs)
		if err != nil && (r.must || !errors.Is(err, os.ErrNotExist)) {
			return fmt.Errorf("permit %s: %w", r.path, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("restrict: %w", errno)
	}
	return nil
}

// permit adds rights to the file at path, or to everything below the folder.
func permit(ruleset int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= toFiles
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
